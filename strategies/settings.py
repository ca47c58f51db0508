"""What a user sets about the algorithm, in one record that the loop and its parts share."""

from dataclasses import dataclass
from typing import Literal, get_args

from protocol.descriptor import Init
from protocol.schedule import Schedule, schedule_seed
from strategies.routing.permutation import Permutation

Weighting = Literal["equal", "examples", "chain-examples"]


@dataclass(frozen=True)
class FedDCSettings:
    """The arguments of `FedDC`, checked."""

    daisy_period: int | None
    aggregation_period: int | None
    permutation: Permutation
    fraction: float
    weighting: Weighting
    init: Init
    random_schedule: bool = False

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
        return Schedule(
            rounds,
            self.daisy_period,
            self.aggregation_period,
            secret=schedule_seed(route_seed) if self.random_schedule else None,
        )

    @property
    def is_chained(self) -> bool:
        """Return whether a model may train at more than one hospital between aggregations."""
        return self.daisy_period is not None or self.fraction < 1
