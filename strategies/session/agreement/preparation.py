"""Before hospitals are asked: check that settings and members suit, and write the descriptor."""

from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord
from flwr.serverapp.strategy import Strategy

from protocol.descriptor import Descriptor, Scalar
from protocol.messages import Carries
from protocol.model_bytes import ModelState
from protocol.schedule import Leg, schedule_commitment, schedule_seed
from strategies.identifiers import cohort_node
from strategies.routing.planner import ModelRef, Planner, cohort_size
from strategies.session.generation import Generation, wire_of
from strategies.session.members import Members
from strategies.session.sealed_study import SealedStudy
from strategies.session.secure.secure_average import aggregate_of, check_secure
from strategies.session.storage.journal import JournalError
from strategies.settings import FedDCSettings
from strategies.wrapped.adapter import Wrapped
from strategies.wrapped.requirements import check_wrapped

FIRST_MODEL = "first"  # its name in the spool


@dataclass(frozen=True)
class Prepared:
    """What the hospitals are asked to agree to, and a planner for them.

    `config` is what the wrapped strategy asks of every hospital; it stays the same in all legs.
    """

    config: ConfigRecord
    descriptor: Descriptor
    planner: Planner


def prepare(
    settings: FedDCSettings,
    study: SealedStudy,
    wrapped: Wrapped,
    legs: tuple[Leg, ...],
    config: ConfigRecord,
    members: Members,
) -> Prepared:
    """Check that the strategy suits the members, and derive what they are asked to agree to."""
    check_wrapped(
        wrapped.strategy,
        parameters=wrapped.model.trainable_numbers,
        cohort=cohort_size(len(members), settings.fraction),
        chained=settings.is_chained,
    )
    if study.averaging == "secure":
        check_secure(settings, wrapped.strategy, len(members), study.minimum_cohort)
    nodes = [cohort_node(hospital) for hospital in members.positions]
    agreed = wrapped.configure(nodes, config, members.grid)
    rounds = legs[-1].last_round + 1
    descriptor = make_descriptor(settings, study, rounds, agreed, wrapped.model, wrapped.strategy)
    given = (Carries.AGGREGATE, ModelRef(FIRST_MODEL))
    sends_sums = Generation(members, descriptor, {}, b"").sends_sums
    planner = Planner(
        hospitals=len(members),
        last_leg=legs[-1].number,
        start=given if descriptor.first_model_is_given else (Carries.NOTHING, ModelRef("")),
        permutation=settings.permutation,
        fraction=settings.fraction,
        route_seed=study.route_seed,
        aggregates_as=Carries.SUM if sends_sums else Carries.AGGREGATE,
    )
    return Prepared(agreed, descriptor, planner)


def make_descriptor(
    settings: FedDCSettings,
    study: SealedStudy,
    rounds: int,
    config: ConfigRecord,
    first_model: ModelState,
    strategy: Strategy,
) -> Descriptor:
    """Return the settings that every hospital agrees to before the first leg."""
    is_shared = settings.init == "shared"
    seed = schedule_seed(study.route_seed)
    shape: Any = config.get("shape", [])
    classes: Any = config.get("classes", 0)
    training: dict[str, Scalar] = {}
    for key, value in config.items():
        if isinstance(value, bool | int | float | str) and key != "classes":
            training[key] = value
        elif key not in ("shape", "classes"):
            raise ValueError(f"train_config: {key} must be a number, text, true or false")
    return Descriptor(
        experiment=study.experiment,
        rounds=rounds,
        daisy_period=settings.daisy_period,
        aggregation_period=settings.aggregation_period,
        schedule_commitment=schedule_commitment(seed) if settings.random_schedule else None,
        fraction=settings.fraction,
        init=settings.init,
        first_model=first_model.digest(wire=wire_of(training)) if is_shared else None,
        first_model_is_given=is_shared and not study.first_model_from_seed,
        shape=tuple(shape),
        classes=classes,
        training=training,
        training_seed=study.training_seed,
        sealed=study.sealed,
        averaging=study.averaging,
        weighted=study.averaging == "secure" and settings.weighting == "examples",
        aggregate=aggregate_of(strategy) if study.averaging == "secure" else "verified",
        minimum_cohort=study.minimum_cohort if study.averaging == "secure" else 2,
        codebook=study.codebook,
        roster=study.roster.digest,
    )


def check_same(agreed: Descriptor, descriptor: Descriptor) -> Descriptor:
    """Return what hospitals agreed to; refuse to continue an experiment with other settings."""
    if agreed != descriptor.model_copy(update={"roster": agreed.roster}):
        raise JournalError(
            f"experiment {agreed.experiment} began with other settings, to which the hospitals "
            "agreed: start a new one"
        )
    return agreed
