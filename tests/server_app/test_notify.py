"""The operator is told of an end or a pause, and of nothing else."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from server_app.run.notify import Notifier


def command(path: Path) -> str:
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
    return f'{sys.executable} -c "{code}" {path}'


def told(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_command_gets_one_line_for_a_pause_and_one_for_the_end(tmp_path: Path) -> None:
    notifier = Notifier(command(tmp_path / "told"), study="hearts", experiment="e1")
    for happening in ("waiting", "waiting", "completed"):
        notifier.tell(happening)  # type: ignore[arg-type]
    expected = {"study": "hearts", "experiment": "e1"}
    assert told(tmp_path / "told") == [
        expected | {"event": "waiting"},
        expected | {"event": "completed"},
    ]


def test_a_later_pause_is_told_again(tmp_path: Path) -> None:
    notifier = Notifier(command(tmp_path / "told"), study="hearts", experiment="e1")
    notifier.tell("waiting")
    notifier.resumed()
    notifier.tell("waiting")
    assert len(told(tmp_path / "told")) == 2


def test_a_webhook_gets_the_same() -> None:
    bodies: list[bytes] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        target = f"http://127.0.0.1:{server.server_port}/hook"
        Notifier(target, study="hearts", experiment="e1").tell("failed")
        thread.join()
    assert json.loads(bodies[0]) == {"study": "hearts", "experiment": "e1", "event": "failed"}


def test_a_broken_command_disturbs_nothing_and_none_is_fine() -> None:
    for target in ("", "/nowhere/command", "http://127.0.0.1:9/", "http://["):
        Notifier(target, study="hearts", experiment="e1").tell("completed")
