"""docs/tutorials/researcher.md: every step runs as it stands, and shows what the page shows."""

import re

import httpx
import pytest

from tests.tutorials.readers import RESEARCHER, researcher
from tests.tutorials.session import steps


@pytest.mark.slow
def test_every_step_of_the_page_runs_and_shows_its_figures() -> None:
    pytest.importorskip("pandas")
    with researcher() as reader:
        for step in steps(RESEARCHER):
            reader.do(step)
            if step.text == "cat dashboard.log":
                address = re.search(r"http://\S+", reader.run("cat dashboard.log"))
                assert address is not None
                assert httpx.get(address[0], follow_redirects=True).status_code == 200
        for picture in ("accuracy.png", "chains.png", "runs/comparison/communication.png"):
            assert (reader.folder / picture).read_bytes().startswith(b"\x89PNG")
