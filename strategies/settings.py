"""What a user sets about the algorithm, in one record that the loop and its parts share."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from protocol.descriptor import Init
from protocol.schedule import Schedule, schedule_seed
from strategies.routing.permutation import Permutation

Weighting = Literal["equal", "examples", "chain-examples"]


@dataclass(frozen=True)
class ScheduleOptions:
    """Variants of the periodic schedule; see `protocol.schedule.Schedule`."""

    ramp: bool = False
    tail: float = 0.0
    random: bool = False


@dataclass(frozen=True)
class FedDCSettings:
    """The arguments of `FedDC`, checked."""

    daisy_period: int | None
    aggregation_period: int | None
    permutation: Permutation
    fraction: float
    weighting: Weighting
    init: Init
    schedule_options: ScheduleOptions = field(default_factory=ScheduleOptions)

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must be more than 0 and at most 1, got {self.fraction}")
        for name, value, choices in (
            ("permutation", self.permutation, get_args(Permutation)),
            ("weighting", self.weighting, get_args(Weighting)),
            ("init", self.init, get_args(Init)),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        self.schedule(1, route_seed=b"")  # refuses impossible periods here, where they were given

    def schedule(self, rounds: int, *, route_seed: bytes) -> Schedule:
        """Return the legs of an experiment of `rounds` rounds."""
        options = self.schedule_options
        return Schedule(
            rounds,
            self.daisy_period,
            self.aggregation_period,
            ramp=options.ramp,
            tail=options.tail,
            secret=schedule_seed(route_seed) if options.random else None,
        )

    @property
    def is_chained(self) -> bool:
        """Return whether a model may train at more than one hospital between aggregations."""
        return self.daisy_period is not None or self.fraction < 1
