"""Beginning an experiment, taking one up that was killed, and opening a new generation of one."""

import math
from collections.abc import Mapping
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from operation.flower.logger import log
from protocol.descriptor import Descriptor, Scalar
from protocol.messages import Carries
from protocol.schedule import Leg
from protocol.study.roster import Roster
from strategies.routing.planner import Planner, cohort_size
from strategies.wrapped.adapter import Wrapped, check_wrapped
from strategies.wrapped.records import trainable_numbers

from .course import Carried, Course, agreed_wire, node_of, read_descriptor
from .members import ExperimentFailed, Members, meet
from .set_up import set_up, who_agrees

if TYPE_CHECKING:
    from strategies.feddc import FedDC

_FIRST_MODEL = "first"


def begin(
    feddc: "FedDC",
    grid: Grid,
    wrapped: Wrapped,
    config: ConfigRecord,
    legs: tuple[Leg, ...],
    timeout: float,
) -> Course:
    """Set an experiment up, or take up the one that the journal tells of."""
    timeout = max(timeout, feddc.start_timeout)  # no training, but everyone must be there
    if feddc.journal.is_kept:
        wrapped.check_savable()
    state = feddc.journal.load()
    begun = state is not None and "planner" in state
    roster, names = feddc.roster, ()
    if state is not None and begun:  # the roster of the generation it was in
        roster = Roster.from_content(bytes.fromhex(state["roster"]))
        names = tuple(state["members"])
    members = meet(
        grid,
        roster,
        feddc.coordinator,
        patience=feddc.start_timeout,
        timeout=timeout,
        names=names,
        everyone=not begun,
        bell=feddc.bell,
        batch=feddc.journal.batch,
    )
    _check(feddc, members, wrapped)
    agreed = wrapped.configure([node_of(h) for h in range(len(members))], config, grid)
    descriptor = _descriptor(feddc, legs[-1].last_round + 1, agreed)
    wire = agreed_wire(descriptor)
    if state is not None:
        descriptor = read_descriptor(state, descriptor)
    else:
        # The hospitals remember what they agreed to: whoever resumes must ask for the same.
        note = {"descriptor": descriptor.to_bytes().hex()}
        feddc.journal.write(lambda: note, ())
    examples = (
        state["examples"] if state and begun else set_up(members, descriptor, timeout=timeout)
    )
    _check_examples(feddc, examples)
    planner = _planner(feddc, members, legs[-1].number)
    course = Course(feddc.journal, members, descriptor, agreed, examples, planner, wrapped)
    if state is not None and begun:
        course.restore(state)
        feddc.observer.restore(state["observer"])
        log(INFO, "Going on after leg %d", course.legs_done)
    else:
        feddc.journal.spool.put(_FIRST_MODEL, wrapped.model.to_bytes(wire=wire))
        feddc.observer.started(feddc.experiment, examples, len(legs))
    return course


def renew(feddc: "FedDC", leg: Leg, course: Course, timeout: float) -> None:
    """Open a new generation if the roster has changed: everybody makes new keys, some stay out."""
    if not 0 < course.legs_done == course.last_aggregation or course.present is not None:
        return  # chains are on their way under the keys of this generation
    timeout = max(timeout, feddc.start_timeout)
    staying_out: dict[str, str] = {}
    if course.next_generation is None:
        roster = feddc.newest_roster()
        if roster is None or roster.generation <= course.members.roster.generation:
            return
        everybody = course.members.of(roster)
        everybody.present()
        descriptor = course.descriptor.model_copy(update={"roster": roster.digest})
        answers = who_agrees(everybody, descriptor, timeout=timeout)
        staying_out = {name: why for name, why in answers.items() if why}
        names = tuple(name for name in roster.names if not answers[name])
        needed = max(2, math.ceil(feddc.quorum * len(roster.names)))
        if len(names) < needed:
            log(
                WARNING,
                "generation %d can't begin, %d of %d have agreed and %d are needed: %s",
                roster.generation,
                len(names),
                len(roster.names),
                needed,
                "; ".join(f"{name}: {why}" for name, why in staying_out.items()),
            )
            return
        course.next_generation = (roster, names)
        course.write(feddc.observer.to_state)  # whoever resumes must ask the same hospitals
    roster, names = course.next_generation
    members = course.members.of(roster, names)
    members.present()
    descriptor = course.descriptor.model_copy(update={"roster": roster.digest})
    examples = set_up(members, descriptor, timeout=timeout)
    _check_examples(feddc, examples)
    course.begin_generation(members, descriptor, examples, leg.first_round)
    log(INFO, "Generation %d: %s", roster.generation, ", ".join(names))
    feddc.observer.generation_began(roster.generation, examples, staying_out)


def _check(feddc: "FedDC", members: Members, wrapped: Wrapped) -> None:
    check_wrapped(
        feddc.strategy,
        parameters=trainable_numbers(wrapped.model),
        cohort=cohort_size(len(members), feddc.fraction),
        chained=feddc.daisy_period is not None or feddc.fraction < 1,
    )


def _check_examples(feddc: "FedDC", examples: Mapping[str, int | None]) -> None:
    silent = [name for name, count in examples.items() if count is None]
    if silent and feddc.weighting != "equal":
        raise ExperimentFailed(
            f"weighting by examples needs their numbers, which {', '.join(silent)} keeps to "
            "itself: use equal weights"
        )


def _descriptor(feddc: "FedDC", rounds: int, config: ConfigRecord) -> Descriptor:
    shape: Any = config.get("shape", [])
    classes: Any = config.get("classes", 0)
    training: dict[str, Scalar] = {}
    for key, value in config.items():
        if isinstance(value, bool | int | float | str) and key != "classes":
            training[key] = value
        elif key not in ("shape", "classes"):
            raise ValueError(f"train_config: {key} must be a number, text, true or false")
    return Descriptor(
        experiment=feddc.experiment,
        rounds=rounds,
        daisy_period=feddc.daisy_period,
        aggregation_period=feddc.aggregation_period,
        init=feddc.init,
        shape=tuple(shape),
        classes=classes,
        training=training,
        training_seed=feddc.training_seed,
        sealed=feddc.sealed,
        roster=feddc.roster.digest,
    )


def _planner(feddc: "FedDC", members: Members, last_leg: int) -> Planner[Carried]:
    shared = (Carries.AGGREGATE, Carried(_FIRST_MODEL))
    return Planner(
        hospitals=len(members),
        last_leg=last_leg,
        start=shared if feddc.init == "shared" else (Carries.NOTHING, Carried("")),
        permutation=feddc.permutation,
        fraction=feddc.fraction,
        route_seed=feddc.route_seed,
    )
