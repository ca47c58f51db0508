"""Creation of a study: its folder with identity, certificates and settings."""

from pathlib import Path

from learning.settings import TrainingSettings
from operation import files
from operation.config import SettingsError, SettingsGroup, toml_lines
from protocol.sealing.keys import Identity
from server_app.config.card_settings import CardSettings
from server_app.config.run_config import AlgorithmSettings
from server_app.config.task_settings import TaskSettings
from server_app.experiment.experiment_folder import deployed_keys

from . import certificates
from .compose import compose_file
from .study_file import StudyFile
from .study_folder import Study, StudyError

_GROUPS: tuple[tuple[str, type[SettingsGroup]], ...] = (
    ("The task: fill this in", TaskSettings),
    ("The algorithm", AlgorithmSettings),
    ("Training", TrainingSettings),
    ("The model card of `feddc coordinator export`", CardSettings),
)


def create_study(
    folder: Path, *, name: str, address: str, listen: str, internal_port: int
) -> Study:
    """Create a study's folder; existing files are never overwritten."""
    folder = folder.expanduser().absolute()
    try:
        file = StudyFile.parse(
            {
                "name": name,
                "address": address,
                "listen": listen or f"0.0.0.0:{address.rpartition(':')[2]}",
                "internal-port": internal_port,
            },
            source="command line",
        )
    except SettingsError as error:
        raise StudyError(str(error)) from error
    for existing in ("study.toml", "identity.key", "tls"):
        if (folder / existing).exists():
            raise StudyError(
                f"{folder / existing} already exists and is never overwritten: choose another "
                "--study"
            )
    study = Study(folder, file)
    files.make_folder(folder)
    for place in (study.members, study.tls, study.superlink, study.logs, study.experiments):
        files.make_folder(place)
    certificates.make_authority(study.tls, name)
    certificates.make_server_certificate(study.tls, study.address.host)
    files.write_new(study.identity_file, Identity.generate().to_bytes())
    files.write_new(study.settings_file, settings_template().encode(), mode=0o644)
    files.write_new(folder / "compose.yaml", compose_file(study).encode(), mode=0o644)
    # Last: it marks the folder as a study's.
    files.write_new(folder / "study.toml", file.to_toml().encode(), mode=0o644)
    study.write_connection()
    files.sync_folder(folder)
    return study


def settings_template() -> str:
    """Return a settings.toml with every setting of a real study, its meaning and its default."""
    lines = ["# Settings of this study's experiments. `feddc coordinator run --set` changes one."]
    known, written = deployed_keys(), set[str]()
    for title, group in _GROUPS:
        fields = {
            key: field
            for key, field in group.fields().items()
            if key in known and key not in written
        }
        defaults = {key: field.get_default() for key, field in fields.items()}
        lines += ["", f"# {title}", *toml_lines(fields, defaults)]
        written |= fields.keys()
    return "\n".join(lines) + "\n"
