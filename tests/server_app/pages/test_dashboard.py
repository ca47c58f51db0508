"""The dashboard answers this machine's user, and shows runs as they grow."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from operation.runs.event_file import FILE_NAME, VERSION, EventWriter
from server_app.pages.dashboard import TOKEN_FILE, _events, dashboard, listen, stored_token
from server_app.pages.watched_runs import WatchedRuns

TOKEN, PORT = "the-token", 8790
START = {"legs": 3, "rounds": 3, "hospitals": ["Anna", "Barts"], "experiment": "one"}


def leg(writer: EventWriter, number: int) -> None:
    for name in START["hospitals"]:
        writer.write("hospital", leg=number, hospital=name, problem="", loss=0.5, bytes_up=10)
    writer.write("leg", leg=number, last_round=number - 1, ending="hand-over", loss=0.5, parked=[])


@pytest.fixture
def writer(tmp_path: Path) -> EventWriter:
    (tmp_path / "one").mkdir()
    writer = EventWriter(tmp_path / "one" / FILE_NAME, append=False)
    writer.write("start", **START)
    leg(writer, 1)
    return writer


@pytest.fixture
def browser(tmp_path: Path, writer: EventWriter) -> TestClient:
    app = dashboard(WatchedRuns(tmp_path), title="FedDC: <hearts>", token=TOKEN, port=PORT)
    return TestClient(app, base_url=f"http://127.0.0.1:{PORT}")


def test_the_address_can_be_opened_as_soon_as_it_is_known() -> None:
    with listen(0) as sock, socket.create_connection(sock.getsockname(), timeout=10) as visitor:
        assert visitor.getpeername() == sock.getsockname()


PATHS = ["/", "/metrics", "/events", "/static/page.js", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("query", ["", "?token=", "?token=the-toke", "?token=the-token2"])
def test_nothing_is_answered_without_the_token(browser: TestClient, path: str, query: str) -> None:
    answer = browser.get(path + query)
    assert answer.status_code == 403
    assert "Anna" not in answer.text
    assert TOKEN not in answer.text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", ""])
def test_a_foreign_host_is_refused(browser: TestClient, path: str, host: str) -> None:
    answer = browser.get(f"{path}?token={TOKEN}", headers={"host": host})
    assert answer.status_code == 403


def test_the_page_is_strict_about_what_it_loads(browser: TestClient) -> None:
    answer = browser.get(f"/?token={TOKEN}")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "<hearts>" not in answer.text
    assert "http://" not in answer.text
    assert "https://" not in answer.text


def test_only_the_page_s_own_files_are_served(browser: TestClient) -> None:
    for name in ("uplot/uPlot.iife.min.js", "page.js", "map.js", "live.js", "page.css"):
        assert browser.get(f"/static/{name}?token={TOKEN}").status_code == 200
    for name in ("../report.py", "..%2freport.py", "page.html", "uplot/LICENSE", "/etc/passwd"):
        assert browser.get(f"/static/{name}?token={TOKEN}").status_code == 404


def test_prometheus_gets_states_and_counters_and_no_figures(browser: TestClient) -> None:
    answer = browser.get("/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    lines = answer.text.splitlines()
    assert 'feddc_run_legs_done{run="one"} 1.0' in lines
    assert 'feddc_run_state{run="one",state="running"} 1.0' in lines
    assert 'feddc_bytes_total{direction="up",hospital="Anna",run="one"} 10.0' in lines
    assert not any("loss" in line or "accuracy" in line for line in lines)


async def _next_run(stream: Any) -> dict[str, Any]:
    async for text in stream:
        if text.startswith("event: run\n"):
            view: dict[str, Any] = json.loads(text.partition("data: ")[2])
            return view
    raise AssertionError("the stream ended")


def test_a_run_is_sent_again_when_it_has_grown(
    tmp_path: Path, writer: EventWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_app.pages.dashboard._LOOK_SECONDS", 0.0)

    async def watch() -> list[int]:
        stream = _events(WatchedRuns(tmp_path))
        first = await _next_run(stream)
        leg(writer, 2)
        second = await _next_run(stream)
        return [first["done"], second["done"]]

    assert asyncio.run(watch()) == [1, 2]


def test_a_run_of_a_newer_version_is_shown_as_such_and_others_go_on(
    tmp_path: Path, writer: EventWriter
) -> None:
    (tmp_path / "new").mkdir()
    line = {"event": "start", "version": VERSION + 1}
    (tmp_path / "new" / FILE_NAME).write_text(json.dumps(line) + "\n")
    runs = WatchedRuns(tmp_path)
    views = {run.record.name: runs.view(run) for run in runs.refresh()}
    assert views["new"]["state"] == "failed"
    assert "update" in views["new"]["reason"]
    assert views["one"]["done"] == 1


def test_the_token_is_secret_and_survives_a_restart(tmp_path: Path) -> None:
    token = stored_token(tmp_path)
    path = tmp_path / TOKEN_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert stored_token(tmp_path) == token
    path.chmod(0o644)  # others may have read it
    assert stored_token(tmp_path) != token
    assert path.stat().st_mode & 0o777 == 0o600
