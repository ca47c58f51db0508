"""What is left in an experiment's folder when the experiment is complete."""

from pathlib import Path

import pytest

from server_app.experiment.experiment_folder import (
    ExperimentFolder,
    Secrets,
    delete_leftover_routes,
)
from server_app.study.creation import create_study
from server_app.study.study_folder import Study, StudyError
from strategies.session.storage.journal import DiskJournal
from tests.client_app.stored_bytes import found


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return create_study(
        tmp_path / "s", name="s", address="localhost:9", listen="", internal_port=9000
    )


def begun(study: Study, name: str) -> tuple[ExperimentFolder, list[bytes]]:
    """Return an experiment under way, and what must not outlive it, in every spelling."""
    experiment = ExperimentFolder(name, study.experiments / name)
    experiment.folder.mkdir()
    drawn = Secrets.draw(None)
    experiment.write_secrets(drawn)
    DiskJournal(experiment.journal).write(lambda: {"routes": "Mercy to Charite"}, ())
    assert experiment.secrets() == drawn
    seeds = [drawn.route_seed, drawn.training_seed]
    return experiment, [*seeds, *(seed.hex().encode() for seed in seeds), b"Mercy to Charite"]


def test_a_complete_experiment_keeps_neither_routes_nor_seeds(study: Study) -> None:
    experiment, secrets = begun(study, "e1")
    assert found(secrets, study.folder)

    experiment.delete_routes()

    assert found(secrets, study.folder) == []
    experiment.delete_routes()  # a run that was killed here is resumed
    with pytest.raises(StudyError, match=r"secrets.json cannot be read"):
        experiment.secrets()


def test_what_a_killed_run_left_of_a_complete_experiment_is_deleted_later(study: Study) -> None:
    complete, over = begun(study, "e1")
    _, needed = begun(study, "e2")
    (complete.folder / "summary.json").write_text("{}")

    delete_leftover_routes(study)

    assert found(over[:-1], study.folder) == []
    assert found(needed[2:], study.folder) == needed[2:]  # `resume` needs them
