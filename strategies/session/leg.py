"""One leg at the coordinator: planned and written down, asked for, waited for, taken in."""

import math
from logging import WARNING
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord

from operation.flower.logger import log
from protocol.model_bytes import ModelState
from protocol.schedule import Ending, Leg
from strategies.routing.planner import Plan
from strategies.wrapped.adapter import Contribution, least_hospitals, least_models
from strategies.wrapped.records import trainable_numbers

from .answers import Expected, LegAnswers, absent, quorum_problem, with_reasons
from .course import Carried, Course, node_of
from .members import ExperimentFailed, Pause
from .spool import StoredModel

if TYPE_CHECKING:
    from strategies.feddc import FedDC


def plan_leg(feddc: "FedDC", leg: Leg, course: Course, config: ConfigRecord) -> Plan[Carried]:
    """Plan a leg, and write it down; wait if too few hospitals are there."""
    members, wrapped = course.members, course.wrapped
    planned = course.present
    if planned is not None:
        plan = course.planner.plan(leg, planned)  # by the run that is resumed, and perhaps sent
    else:
        least = max(_least_models(feddc, leg, wrapped.model), least_hospitals(feddc.strategy))
        pause = _pause(feddc, leg)
        while True:
            present = members.present()
            plan = course.planner.plan(leg, present)
            problem = quorum_problem(plan, members, absent(plan), quorum=feddc.quorum, least=least)
            if not problem:
                break
            pause.wait(problem)
        plan = course.plan(leg, present)
    nodes = [node_of(hospital) for hospital in plan.cohort]
    if wrapped.configure(nodes, config, members.grid) != course.agreed:
        raise ValueError(
            f"{type(feddc.strategy).__name__} changed its config in leg {leg.number}, but "
            "hospitals agree to an experiment's settings once, before it starts"
        )
    course.write(feddc.observer.to_state)
    return plan


def ask(feddc: "FedDC", plan: Plan[Carried], course: Course, timeout: float) -> LegAnswers:
    """Send a plan's requests and take in the answers; wait if they are too few."""
    members = course.members
    expected = Expected(course.wrapped.model, course.wire, course.descriptor.sealed)
    answers = LegAnswers(plan, members, expected, course.journal.spool)
    # An aggregation does not ask for parked hand-overs, but says who owes one.
    owing = {*course.planner.parked} & {*plan.cohort} - {task.hospital for task in plan.tasks}
    answers.missing |= dict.fromkeys(owing, "has not answered an earlier leg")
    least = _least_models(feddc, plan.leg, course.wrapped.model)

    def problem() -> str:
        return quorum_problem(plan, members, answers.missing, quorum=feddc.quorum, least=least)

    pause = _pause(feddc, plan.leg)
    requests = course.requests(plan)
    while True:
        members.ask(
            requests,
            timeout=timeout,
            group=f"leg-{plan.leg.number}",
            intake=answers.take,
            enough=lambda: not problem(),
        )
        if not problem():
            break
        if answers.ahead:
            raise ExperimentFailed(
                f"{problem()}; they have answered later legs than this journal knows of, as after "
                "a backup: it can't be resumed, but a new experiment can start from its last "
                "aggregate"
            )
        pause.wait(problem())
        timeout = min(timeout, pause.left)
        missing = {members.names[hospital] for hospital in answers.missing}
        requests = {name: request for name, request in requests.items() if name in missing}
        members.present()
    if answers.missing:
        who = with_reasons(members, answers.missing)
        log(WARNING, "leg %d: missing %s", plan.leg.number, who)
    return answers


def contributions(
    feddc: "FedDC", plan: Plan[Carried], answers: LegAnswers, course: Course
) -> dict[int, Contribution]:
    """Return the models to aggregate, in roster order, with their weights."""
    contributions = {}
    names = course.members.names
    for task in plan.tasks:
        hospital = task.hospital
        reply = answers.trained.get(hospital)
        if reply is None:
            continue
        model = StoredModel(course.journal.spool, answers.models[hospital], course.wire)
        feddc.observer.received(plan.leg, names[hospital], model)
        visited = {hospital}
        if feddc.weighting == "chain-examples":
            visited |= set(task.parcel.chain.visits)
        weight = sum(course.examples[names[each]] or 0 for each in visited)
        contributions[hospital] = Contribution(
            node=node_of(hospital),
            model=model,
            weight=1.0 if feddc.weighting == "equal" else float(weight),
            loss=math.nan if reply.loss is None else reply.loss,
            accuracy=math.nan if reply.accuracy is None else reply.accuracy,
        )
    return contributions


def _pause(feddc: "FedDC", leg: Leg) -> Pause:
    def tell(problem: str) -> None:
        log(WARNING, "waiting up to %g s: %s", feddc.quorum_wait, problem)
        feddc.observer.waiting(leg, problem)

    return Pause(feddc.quorum_wait, tell)


def _least_models(feddc: "FedDC", leg: Leg, model: ModelState) -> int:
    if leg.ending is Ending.HAND_OVER:
        return 1
    return least_models(feddc.strategy, trainable_numbers(model))
