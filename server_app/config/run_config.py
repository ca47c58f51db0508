"""A run's configuration as one typed object: every key checked before anything starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from learning.settings import LocalSettings, TrainingSettings
from operation.config import Scalar, SettingsError, SettingsGroup, refuse_renamed

Aggregator = Literal[
    "fedavg",
    "fedavgm",
    "fedprox",
    "fedadam",
    "fedyogi",
    "fedadagrad",
    "median",
    "trimmed-mean",
    "krum",
    "multi-krum",
    "bulyan",
    "qfedavg",
    "radon",
    "geometric-median",
]
# Flower computes these from the models alone: weights would silently do nothing.
_IGNORE_WEIGHTS = {"median", "trimmed-mean", "krum", "multi-krum", "bulyan", "qfedavg", "radon"}


class AlgorithmSettings(SettingsGroup):
    """The coordinator's part: the schedule, the hand-overs and the aggregation."""

    renamed: ClassVar[Mapping[str, str]] = {
        "fairness": "qfedavg-q",
        "malicious": "krum-malicious",
        "sealing": "sealed",
        "trim": "trim-fraction",
    }

    rounds: int = Field(100, ge=1, description="local updates of every model, the paper's T")
    daisy_period: int = Field(1, ge=0, description="rounds between hand-overs; 0: never")
    aggregation_period: int = Field(5, ge=0, description="the paper's b; 0: only at the end")
    schedule: Literal["periodic", "random"] = Field(
        "periodic", description="random: each communication aggregates with probability d/b"
    )
    ramp: bool = Field(False, description="first gaps between aggregations 1, 2, 4, … b")
    tail: float = Field(0.0, ge=0, lt=1, description="last share of rounds without hand-overs")
    permutation: Literal["uniform", "derangement", "coverage"] = Field(
        "uniform", description="how the recipients of a hand-over are drawn"
    )
    fraction: float = Field(1.0, gt=0, le=1, description="share of hospitals drawn in a leg")
    init: Literal["shared", "own"] = Field(
        "shared", description="all begin with the same model, or each with its own"
    )
    weighting: Literal["equal", "examples", "chain-examples"] = Field(
        "equal", description="a model's weight in the aggregate"
    )
    sealed: bool = Field(True, description="seal models for their recipients in hand-overs")
    aggregator: Aggregator = Field("fedavg", description="what aggregates, by name")
    proximal_mu: float = Field(0.1, ge=0, allow_inf_nan=False, description="fedprox's μ")
    server_learning_rate: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="0: 1 for fedavgm, 0.1 for the adaptive ones"
    )
    server_momentum: float = Field(0.9, ge=0, lt=1, description="fedavgm's")
    krum_malicious: int = Field(0, ge=0, description="hospitals krum and bulyan must withstand")
    trim_fraction: float = Field(
        0.2, ge=0, lt=0.5, description="trimmed-mean: share cut at each end"
    )
    qfedavg_q: float = Field(0.1, ge=0, allow_inf_nan=False, description="qfedavg's q")
    radon_iterations: int = Field(1, ge=1, le=4, description="the paper's h")
    hospitals: int = Field(10, ge=2, description="members of the study")
    quorum: float = Field(0.5, gt=0, le=1, description="share of asked hospitals that must answer")
    quorum_wait: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds to wait for a quorum; then the run ends",
    )
    leg_timeout: float = Field(
        600.0, gt=0, allow_inf_nan=False, description="seconds a leg may take"
    )
    start_timeout: float = Field(
        120.0, gt=0, allow_inf_nan=False, description="seconds to wait for all hospitals"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="simulation: all randomness comes from it")
    run_dir: str = Field("", description="where results go; empty: runs/<time>-<id>")

    @model_validator(mode="after")
    def _fits_together(self) -> "AlgorithmSettings":
        d, b = self.daisy_period, self.aggregation_period
        if self.schedule == "random" and not (0 < d <= b):
            raise ValueError(
                "schedule = random needs daisy-period and aggregation-period with "
                f"1 ≤ daisy-period ≤ aggregation-period, got {d} and {b}"
            )
        if self.schedule == "random" and (self.ramp or self.tail > 0):
            raise ValueError(
                "schedule = random can't be combined with ramp or tail: leave them off"
            )
        if self.ramp and not b:
            raise ValueError("ramp needs an aggregation-period of at least 1, got 0")
        if self.weighting != "equal" and self.aggregator in _IGNORE_WEIGHTS:
            raise ValueError(
                f"weighting = {self.weighting} has no effect with aggregator = {self.aggregator}: "
                "set weighting = equal"
            )
        if self.aggregator == "qfedavg" and (d or self.fraction < 1):
            raise ValueError(
                "aggregator = qfedavg weighs each hospital by its own loss, so it needs "
                f"daisy-period = 0 and fraction = 1, got {d} and {self.fraction}"
            )
        return self


@dataclass(frozen=True)
class Settings:
    """All settings of a run."""

    algorithm: AlgorithmSettings
    training: TrainingSettings
    local: LocalSettings

    @staticmethod
    def from_run_config(values: Mapping[str, Scalar], *, source: str) -> "Settings":
        """Check a flat run configuration; keys left out have their defaults."""
        known = Settings.defaults()
        refuse_renamed(values, RENAMED_SETTINGS, source=source)
        for key in values:
            if key not in known:
                raise SettingsError(f"{key} is not a setting ({source})")

        def of(keys: tuple[str, ...]) -> dict[str, Scalar]:
            return {key: values[key] for key in keys if key in values}

        settings = Settings(
            AlgorithmSettings.parse(of(AlgorithmSettings.key_names()), source=source),
            TrainingSettings.parse(of(_TRAINING_KEYS), source=source),
            LocalSettings.parse(of(LocalSettings.key_names()), source=source),
        )
        if settings.training.optimizer == "adam" and settings.training.momentum:
            raise SettingsError(
                f"momentum belongs to optimizer = sgd, adam has its own: set it to 0 ({source})"
            )
        if settings.training.wire_dtype != "same" and settings.training.precision == "float64":
            raise SettingsError(
                f"wire-dtype narrows float32: set it to same with precision = float64 ({source})"
            )
        return settings

    @staticmethod
    def defaults() -> dict[str, Scalar]:
        """Return every key of the run configuration with its default."""
        training = TrainingSettings().as_config()
        del training[
            "proximal-mu"
        ]  # a hospital learns μ from the aggregator, through the descriptor
        return AlgorithmSettings().as_config() | training | LocalSettings().as_config()

    def as_config(self) -> dict[str, Scalar]:
        """Return the settings as the flat run configuration they came from."""
        everything = self.training.as_config() | self.algorithm.as_config() | self.local.as_config()
        return {key: everything[key] for key in Settings.defaults()}

    def replace(self, **changes: Scalar) -> "Settings":
        """Return settings with some keys (underscores for hyphens) changed, checked again."""
        keys = {key.replace("_", "-"): value for key, value in changes.items()}
        return Settings.from_run_config(self.as_config() | keys, source="changed settings")


RENAMED_SETTINGS: Mapping[str, str] = {
    **AlgorithmSettings.renamed,
    **TrainingSettings.renamed,
    **LocalSettings.renamed,
}
_TRAINING_KEYS = tuple(key for key in TrainingSettings.key_names() if key != "proximal-mu")


def preflight(settings: Settings) -> None:
    """Check what only data, network and aggregator can tell."""
    # Imported only when asked for: settings are also read where torch is not wanted.
    from .simulation_check import preflight as check

    check(settings)
