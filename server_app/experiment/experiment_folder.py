"""An experiment's folder: its settings, secrets, journal and results.

The run configuration holds only the experiment's name. Everything else is read from this folder,
on the coordinator's machine.
"""

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from operation import files
from operation.config import Scalar, SettingsError, refuse_renamed
from operation.locks import LockHeld, ProcessLock
from protocol.codebook import Codebook, CodebookError
from protocol.randomness import SEED_BYTES, derive_seed
from protocol.study.roster import Roster, RosterError
from server_app.config.card_settings import CardSettings
from server_app.config.run_config import RENAMED_SETTINGS, AlgorithmSettings, Settings
from server_app.config.study_check import check_in_subprocess
from server_app.config.task_settings import TaskSettings
from server_app.study.study_folder import Study, StudyError
from strategies.session.secure.secure_average import LEAST_MEMBERS

from . import first_model

FIGURES = "test-figures.json"
# In a real study the roster lists the members, the experiment's folder holds the results, models
# are always sealed, and routes are random.
SIMULATION_ONLY = frozenset({"hospitals", "run-dir", "seed", "sealed"})


@dataclass(frozen=True)
class Secrets:
    """The seeds of an experiment; the route seed never leaves this machine."""

    route_seed: bytes
    training_seed: bytes
    rehearsal: int | None = None

    @staticmethod
    def draw(rehearsal: int | None) -> "Secrets":
        """Draw both seeds; a rehearsal derives them from its seed, like a simulation."""
        if rehearsal is not None:
            route, training = (derive_seed(rehearsal, name) for name in ("route", "training"))
            return Secrets(route, training, rehearsal)
        return Secrets(secrets.token_bytes(SEED_BYTES), secrets.token_bytes(SEED_BYTES))


@dataclass(frozen=True)
class ExperimentFolder:
    """An experiment's folder; hospitals know the experiment by `id`."""

    id: str
    folder: Path

    @staticmethod
    def create(
        study: Study,
        settings: Mapping[str, Scalar],
        seed: int | None = None,
        begin_with: Path | None = None,
    ) -> "ExperimentFolder":
        """Check the settings against the study's roster and create a new experiment.

        `seed` makes it a rehearsal with the results of `feddc simulate --seed`; every route can be
        computed from the seed. `begin_with` is a file with the first model. A wrong setting raises
        SettingsError.
        """
        roster, codebook = study.roster(), study.codebook()
        settings = with_codebook(settings, codebook)
        parsed, task = parse_for(study, settings)
        if begin_with is not None and parsed.algorithm.init == "own":
            raise SettingsError(
                "--from needs init = shared: with init = own each hospital makes its first model"
            )
        computed = check_in_subprocess(settings, len(roster.members), begin_with, codebook)
        parsed, task = parse_for(study, dict(settings) | computed)
        delete_leftover_routes(study)
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        experiment = ExperimentFolder(name, study.experiments / name)
        files.make_folder(experiment.folder)
        experiment.write_secrets(Secrets.draw(seed))
        config = {
            key: value
            for key, value in (parsed.as_config() | task.as_config()).items()
            if key in deployed_keys()
        }
        if begin_with is not None:
            files.write_new(experiment.folder / first_model.GIVEN, begin_with.read_bytes())
        # The roster at the start; a newer one takes effect after the next aggregation.
        files.write_new(experiment.roster_file, study.roster_file.read_bytes(), mode=0o644)
        if codebook is not None:
            signed = study.signed_codebook_file.read_bytes()
            files.write_new(experiment.codebook_file, signed, mode=0o644)
        # Last: it marks the folder as an experiment's.
        files.write_new(
            experiment.folder / "settings.json", json.dumps(config, indent=2).encode(), mode=0o644
        )
        return experiment

    @staticmethod
    def open(study: Study, name: str) -> "ExperimentFolder":
        """Open an existing experiment."""
        folder = study.experiments / name
        if Path(name).name != name or not (folder / "settings.json").is_file():
            raise StudyError(f"there is no experiment {name} in {study.experiments}")
        return ExperimentFolder(name, folder)

    @property
    def has_given_first_model(self) -> bool:
        """Whether it starts from a model of its own, not from the one its seed gives."""
        return (self.folder / first_model.GIVEN).exists()

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    @property
    def secrets_file(self) -> Path:
        return self.folder / "secrets.json"

    def delete_routes(self) -> None:
        """Delete what only a resumed run needs: the journal, and the seeds that give the routes."""
        shutil.rmtree(self.journal, ignore_errors=True)
        with suppress(FileNotFoundError):
            files.overwrite_and_remove(self.secrets_file)

    @property
    def log(self) -> Path:
        return self.folder / "log.jsonl"

    @property
    def roster_file(self) -> Path:
        return self.folder / "roster"

    def roster(self) -> Roster:
        """Return the roster of the experiment's keys."""
        try:
            return Roster.from_signed(self.roster_file.read_bytes())
        except (OSError, RosterError) as error:
            raise StudyError(f"{self.roster_file} cannot be read: {error}") from error

    @property
    def codebook_file(self) -> Path:
        return self.folder / "codebook"

    def codebook(self) -> Codebook | None:
        """Return the codebook that the experiment began with, if it has one."""
        try:
            data = self.codebook_file.read_bytes()
            return Codebook.from_signed(data, self.roster().coordinator)
        except FileNotFoundError:
            return None
        except (OSError, CodebookError) as error:
            raise StudyError(f"{self.codebook_file} cannot be read: {error}") from error

    def class_names(self, classes: int) -> tuple[str, ...]:
        """Return the codebook's classes, or numbers where there is none."""
        codebook = self.codebook()
        return codebook.classes if codebook else tuple(f"class {k}" for k in range(classes))

    @property
    def figures_file(self) -> Path:
        """The final model's figures on the coordinator's test data, if it has any."""
        return self.folder / FIGURES

    @property
    def is_complete(self) -> bool:
        return (self.folder / "summary.json").is_file()

    def settings(self, hospitals: int) -> tuple[Settings, TaskSettings]:
        values = json.loads((self.folder / "settings.json").read_text(encoding="utf-8"))
        return parse(values, hospitals=hospitals)

    def write_secrets(self, drawn: Secrets) -> None:
        values = {
            "route-seed": drawn.route_seed.hex(),
            "training-seed": drawn.training_seed.hex(),
            "rehearsal": drawn.rehearsal,
        }
        files.write_new(self.secrets_file, json.dumps(values).encode())

    def secrets(self) -> Secrets:
        path = self.secrets_file
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return Secrets(
                bytes.fromhex(values["route-seed"]),
                bytes.fromhex(values["training-seed"]),
                values["rehearsal"],
            )
        except (OSError, ValueError, KeyError) as error:
            raise StudyError(f"{path} cannot be read: {error}") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the experiment against a second ServerApp, such as one left over from an old run."""
        lock = ProcessLock(self.folder / "lock")
        try:
            lock.acquire(str(os.getpid()))
        except LockHeld as error:
            raise StudyError(
                f"experiment {self.id} is being run by another process: end it with "
                "`feddc coordinator stop`"
            ) from error
        try:
            yield
        finally:
            lock.release()


def delete_leftover_routes(study: Study) -> None:
    """Delete the routes of complete experiments whose run was killed before it did so itself."""
    for folder in study.experiments.iterdir() if study.experiments.is_dir() else ():
        experiment = ExperimentFolder(folder.name, folder)
        if experiment.is_complete:
            experiment.delete_routes()


def parse(values: Mapping[str, Scalar], *, hospitals: int) -> tuple[Settings, TaskSettings]:
    """Check a study's settings; keys left out have their defaults."""
    source = "settings.toml"
    known = deployed_keys()
    refuse_renamed(values, RENAMED_SETTINGS, source=source)
    for key in values:
        if key in SIMULATION_ONLY:
            raise SettingsError(f"{key} is for simulations only ({source})")
        if key not in known:
            raise SettingsError(f"{key} is not a setting of a study ({source})")
    task_keys, card_keys = set(TaskSettings.key_names()), set(CardSettings.key_names())
    CardSettings.parse({key: values[key] for key in values.keys() & card_keys}, source=source)
    own = {key: value for key, value in values.items() if key not in task_keys | card_keys}
    settings = Settings.from_run_config(own | {"hospitals": hospitals}, source=source)
    task = {key: value for key, value in values.items() if key in task_keys}
    return settings, TaskSettings.parse(task, source=source)


def with_codebook(
    settings: Mapping[str, Scalar], codebook: Codebook | None
) -> Mapping[str, Scalar]:
    """Return settings with the codebook's task; refuse settings that contradict it."""
    if codebook is None:
        return settings
    task: dict[str, Scalar] = {
        "input-shape": "x".join(map(str, codebook.shape)),
        "classes": len(codebook.classes),
    }
    for key, value in task.items():
        if str(settings.get(key) or value) != str(value):
            raise SettingsError(
                f"{key} is {settings[key]}, but the codebook has {value}: leave it out "
                "(settings.toml)"
            )
    return {**settings, **task}


def parse_for(study: Study, values: Mapping[str, Scalar]) -> tuple[Settings, TaskSettings]:
    """Check settings for the members and the codebook of a study."""
    hospitals = len(study.roster().members)
    parsed, task = parse(with_codebook(values, study.codebook()), hospitals=hospitals)
    _check_averaging(parsed.algorithm, hospitals)
    return parsed, task


def deployed_keys() -> frozenset[str]:
    """Return the keys that a study's settings may have."""
    from learning.settings import LocalSettings

    simulated = SIMULATION_ONLY | set(LocalSettings.key_names())
    others = (*TaskSettings.key_names(), *CardSettings.key_names())
    return frozenset(Settings.defaults().keys() - simulated) | set(others)


def _check_averaging(algorithm: AlgorithmSettings, members: int) -> None:
    """Refuse settings with which a study, which averages securely unless told otherwise, can't."""
    if algorithm.averaging == "plain":
        return
    try:
        algorithm.check_secure()
    except ValueError as error:
        raise SettingsError(str(error)) from error
    if members < LEAST_MEMBERS:
        raise SettingsError(
            f"averaging = secure needs at least {LEAST_MEMBERS} hospitals, the roster has "
            f"{members}: enrol more, or set averaging = plain, with which the coordinator reads "
            "every model it aggregates (hospitals must allow plain-aggregation)"
        )
    if members < algorithm.minimum_cohort:
        raise SettingsError(
            f"minimum-cohort = {algorithm.minimum_cohort}, but the roster has {members} hospitals: "
            "no sum could have so many models. Lower it, or enrol more"
        )
