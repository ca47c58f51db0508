"""The settings of a run as one typed object, checked before anything starts."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic.fields import FieldInfo

from learning.settings import LocalSettings, TrainingSettings
from operation.config import Scalar, SettingsError, refuse_renamed, setting

from .method_settings import MethodSettings


class AlgorithmSettings(MethodSettings):
    """The coordinator's settings: the method, and the study it runs in."""

    hospitals: int = setting(
        10,
        "number of hospitals in the study",
        ge=2,
        advice="With `flwr run` it must equal `num-supernodes`; `feddc simulate` sets that.",
    )
    quorum: float = setting(
        0.5,
        "fraction of the drawn hospitals that must answer in a leg",
        gt=0,
        le=1,
        advice="With fewer answers the run pauses for `quorum-wait` seconds and then ends with an "
        "error that names the missing hospitals.",
    )
    quorum_wait: float = setting(
        0.0,
        "seconds to wait for a quorum before the run ends with an error",
        ge=0,
        advice="The missing hospitals are asked again meanwhile. In a real study make it hours: a "
        "run that has ended is not resumed automatically.",
    )
    leg_timeout: float = setting(
        600.0,
        "seconds a leg may take",
        gt=0,
        advice="Raise it for large models on slow machines.",
    )
    start_timeout: float = setting(120.0, "seconds to wait for all hospitals to connect", gt=0)
    approval_wait: float = setting(
        1_209_600.0,
        "seconds to wait until all hospitals have approved the experiment",
        ge=0,
        advice="14 days. Hospitals that have not approved are asked again, at most once a minute; "
        "`feddc coordinator status` names them. Simulated hospitals approve at once.",
    )
    keep_routes: bool = setting(
        False,
        "keep who sent to whom after a real experiment has ended",
        advice="The file is `routes.jsonl`, for the coordinator only. Members may have stored what "
        "they received: with the routes it is known whose it was.",
    )
    seed: int = setting(
        0,
        "seed of all randomness (simulation)",
        ge=0,
        lt=2**63,
        values="0 to 2⁶³ − 1",
        advice="Every purpose has its own seed, derived one way. Change it to repeat an experiment "
        "with other draws.",
    )
    run_dir: str = setting(
        "",
        "folder for the results; empty: a new one below runs/",
        values="a folder",
        advice="Empty: `runs/<time>-<id>`. The folder must not hold a run already. A relative one "
        "is below the current folder; with `flwr run` that is the SuperLink's: give an absolute "
        "path.",
    )


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
        # The aggregator sets μ; hospitals read it in the descriptor.
        del training["proximal-mu"]
        return AlgorithmSettings().as_config() | training | LocalSettings().as_config()

    def as_config(self) -> dict[str, Scalar]:
        """Return the settings as the flat run configuration they came from."""
        everything = self.training.as_config() | self.algorithm.as_config() | self.local.as_config()
        return {key: everything[key] for key in Settings.defaults()}

    def replace(self, **changes: Scalar) -> "Settings":
        """Return settings with some keys (underscores for hyphens) changed, checked again."""
        keys = {key.replace("_", "-"): value for key, value in changes.items()}
        return Settings.from_run_config(self.as_config() | keys, source="changed settings")


def declaration(key: str) -> FieldInfo:
    """Return how a setting is declared: its summary, type and limits."""
    return (LocalSettings.fields() | TrainingSettings.fields() | AlgorithmSettings.fields())[key]


RENAMED_SETTINGS: Mapping[str, str] = {
    **AlgorithmSettings.renamed,
    **TrainingSettings.renamed,
    **LocalSettings.renamed,
}
_TRAINING_KEYS = tuple(key for key in TrainingSettings.key_names() if key != "proximal-mu")


def preflight(settings: Settings) -> None:
    """Check data, network, aggregator and results folder before a simulation starts."""
    # Imported only when asked for: settings are also read where torch is not wanted.
    from .simulation_check import preflight as check

    check(settings)
