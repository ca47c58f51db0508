"""Commands that take more than two seconds show what they do; scripts and logs see nothing of it.

A hospital's commands are in tests/client_app, what takes minutes is in test_help_examples.py.
"""

from pathlib import Path

import pytest

from tests.commands.in_terminal import assert_shown_to_people_only, feddc, progress_of
from tests.commands.walk import words
from tests.federation.federation import needs_nginx
from tests.federation.screens import screens_of


def test_the_labs_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDDC_DATA", raising=False)  # `lab data` would read every file there
    assert_shown_to_people_only("simulating chains", *words("lab bound"))
    assert_shown_to_people_only("loading PyTorch", *words("lab list"))
    assert "reading the data" in feddc(*words("lab data")).stderr


@needs_nginx
@pytest.mark.slow
def test_the_coordinators_services() -> None:
    names = [f"coordinator {name}" for name in ("init", "up", "status", "down")]
    with screens_of({name: words(name) for name in names}) as screens:
        screens.run("coordinator init", "coordinator")

        def shown(command: str) -> str:
            return progress_of(screens.words(command, ""), screens.place("coordinator"))

        assert "starting superlink and proxy" in shown("coordinator up")
        again = shown("coordinator up")
        assert "waiting until the services answer" in again
        assert "registering the members" in again
        assert "asking the SuperLink" not in shown("coordinator status")  # its example has --json
        assert "stopping the services" in shown("coordinator down")
