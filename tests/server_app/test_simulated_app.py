"""The ServerApp of a simulation, as `flwr run` runs it."""

import json
import logging
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from client_app.courier import app as client_app
from lab.flower.in_process import InProcessGrid
from server_app.app import app
from server_app.config.run_config import Settings
from tests.conftest import TINY


def test_its_log_has_the_accuracy_and_the_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    settings = Settings.from_run_config(TINY | {"run-dir": str(folder)}, source="test")
    config = settings.as_config()
    flower = logging.getLogger("flwr")
    flower.addHandler(caplog.handler)
    try:
        app(InProcessGrid(client_app, 6, config), Context(1, 1, {}, RecordDict(), config))
    finally:
        flower.removeHandler(caplog.handler)
    accuracy = json.loads((folder / "summary.json").read_text())["test_accuracy"]
    # Each line once: Flower's logger may or may not pass its lines on to the root's handlers.
    assert [*dict.fromkeys(caplog.messages)][-2:] == [
        f"Test accuracy of the final aggregate: {100 * accuracy:.1f} %",
        f"Results are in {folder}",
    ]
