"""Reports and dashboard in the system's Chromium."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.support.processes import free_port
from server_app.pages.report import COORDINATOR, PUBLIC
from tests.server_app.pages.chromium import WAIT, needs_chromium, opened

pytestmark = [pytest.mark.slow, needs_chromium]
SIMULATION = """
import sys
from pathlib import Path
from lab.flower.in_process import simulate_in_process
from server_app.config.run_config import Settings
values = {"dataset": "digits", "hospitals": 6, "examples": 6, "held-out": 6,
          "rounds": int(sys.argv[2]), "aggregation-period": 5, "model-options": '{"hidden": [8]}'}
simulate_in_process(Settings.from_run_config(values, source="test"), Path(sys.argv[1]))
"""


def simulation(folder: Path, rounds: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", SIMULATION, str(folder), str(rounds)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    assert simulation(folder, 10).wait(300) == 0
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", [PUBLIC, COORDINATOR])
def test_a_report_opens_offline_and_asks_for_nothing(
    browser: Any, finished: Path, name: str, scheme: str
) -> None:
    address = (finished / name).as_uri()
    tab, asked, errors = opened(browser, address, offline=True, color_scheme=scheme)
    tab.wait_for_selector("section.chart canvas", timeout=WAIT)
    assert asked == [address]
    assert errors == []
    drawn = tab.evaluate(
        "[...document.querySelectorAll('canvas')].every(c => { const d = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height).data; return d.some(value => value); })"
    )
    assert drawn
    lines = tab.locator("polyline.chain").count()
    assert (lines > 0) == (name == COORDINATOR)
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


def test_picking_a_chain_brings_it_out(browser: Any, finished: Path) -> None:
    tab, _, _ = opened(browser, (finished / COORDINATOR).as_uri())
    tab.select_option("select", index=2)
    assert tab.locator("polyline.chain.on").count() == 1
    assert tab.locator("polyline.chain.off").count() > 1


class Server:
    """`feddc lab dashboard` as a process, which can be restarted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "operation.cli"),
                *("lab", "dashboard", str(self.folder), "--port", str(self.port)),
            ],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        self.address = found[0]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture
def server(finished: Path) -> Iterator[Server]:
    server = Server(finished.parent)
    yield server
    server.stop()


def until(tab: Any, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; the page's policy forbids the browser to evaluate one."""
    deadline = time.monotonic() + WAIT / 1000
    while not condition():
        assert time.monotonic() < deadline, tab.inner_text("body")
        tab.wait_for_timeout(100)


def leg_shown(tab: Any) -> int:
    found = re.search(r"leg (\d+) of", tab.inner_text("#status"))
    return int(found[1]) if found else 0


def test_the_dashboard_grows_with_a_run_and_survives_a_restart(
    browser: Any, finished: Path, server: Server
) -> None:
    tab, asked, errors = opened(browser, server.address)
    tab.wait_for_selector("section.chart canvas", timeout=WAIT)
    run = simulation(finished.parent / "growing", 100)
    try:
        tab.wait_for_selector("nav label:has-text('growing')", timeout=WAIT)
        tab.click("nav label:has-text('growing') button")
        until(tab, lambda: leg_shown(tab) > 0)
        first, cells = leg_shown(tab), tab.locator("svg rect.t").count()
        assert cells > 0
        until(tab, lambda: leg_shown(tab) > first)

        server.stop()
        tab.wait_for_selector("body.offline", timeout=WAIT)
        server.start()
        tab.wait_for_selector("body:not(.offline)", timeout=WAIT)
        until(tab, lambda: "completed" in tab.inner_text("#status"))
        assert leg_shown(tab) == 100
        assert tab.locator("polyline.chain").count() > 0
    finally:
        run.kill()
        run.wait()
    tab.click("nav label:has-text('finished') button")
    assert leg_shown(tab) == 10
    tab.check("nav label:has-text('growing') input")
    assert "2 runs" in tab.inner_text("#status")
    assert all(address.startswith(f"http://127.0.0.1:{server.port}/") for address in asked)
    assert [error for error in errors if "ERR_" not in error] == []  # the server was away


def test_the_dashboard_is_refused_without_token_and_with_a_foreign_host(
    browser: Any, server: Server
) -> None:
    token = server.address.partition("token=")[2]
    tab, _, _ = opened(browser, f"http://127.0.0.1:{server.port}/")
    assert "lacks the token" in tab.inner_text("body")
    tab, _, _ = opened(browser, f"http://evil.example:{server.port}/?token={token}")
    assert "open the dashboard at the address" in tab.inner_text("body")
    assert httpx.get(server.address).status_code == 200
