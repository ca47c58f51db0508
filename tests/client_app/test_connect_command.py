"""`feddc hospital connect`: what is missing is named before anything is started."""

from collections.abc import Callable
from pathlib import Path

import pytest

from client_app.hospital_folder import HospitalFolder
from tests.client_app.commands import feddc
from tests.client_app.conftest import Enrolled


def test_the_former_option_for_a_socket_is_refused_with_the_new_one(tmp_path: Path) -> None:
    done = feddc("connect", "--folder", tmp_path, "--through", tmp_path / "exit.sock")

    assert done.exit_code == 2
    assert "--through was renamed: use --via-socket" in done.stderr


MISSING: dict[str, tuple[Callable[[HospitalFolder], object], str]] = {
    "no address": (lambda folder: None, "run `feddc hospital join` with the coordinator.json"),
    "a cut-off address": (
        lambda folder: folder.connection_file.write_text('{"address":'),
        "run `feddc hospital join` again",
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_without_the_coordinators_address_it_says_how_to_get_it(
    case: str, enrolled: Enrolled
) -> None:
    change, remedy = MISSING[case]
    change(enrolled.folder)

    done = feddc("connect", "--folder", enrolled.folder.path)

    assert done.exit_code == 2
    assert f"feddc: {enrolled.folder.connection_file}: " in done.stderr
    assert remedy in done.stderr
