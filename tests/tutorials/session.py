"""A tutorial as a session: its commands run in one shell, and what they print is compared.

In a tutorial, a `console` block has commands after `$ ` and below each what it prints, abridged by
`…`. A block of another language whose first line is `# NAME.SUFFIX` is a file to write. Other
`python` blocks are a notebook's cells; a `text` block below one is what its last line shows.
"""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from tests.snippets import ROOT, snippets

_FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
# What two runs of the same command never share; numbers of seconds and bytes are of this machine.
_VARYING = {
    r"\b\d{8}-\d{6}-[0-9a-f]{6}\b": "<id>",
    r"\b[A-Z2-7]{4}(?: [A-Z2-7]{4}){7}\b": "<fingerprint>",
    r"\b[0-9a-f]{64}\b": "<digest>",
    r"token=[\w-]+": "token=<token>",
    r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?": "<time>",
    r"\b\d+(?:\.\d+)? (?:s|min|h|B|kB|MB|GB|TB)\b": "<amount>",
}
_FIGURE = re.compile(r"(?<![\w.])-?\d+\.\d+(?!\w|\.\d)")
_LOOKS = ("feddc coordinator status", "feddc hospital experiments", "cat ")
_PATIENCE = 300.0


@dataclass(frozen=True)
class Step:
    """A command, a cell or a file of a tutorial, with what the page shows of its output."""

    heading: str
    kind: str
    text: str
    shown: str = ""
    file: str = ""


def steps(page: Path) -> list[Step]:
    """Return what a reader of the page does, in order."""
    found: list[Step] = []
    for snippet in snippets(page):
        name = _FILE.match(snippet.text)
        match snippet.language:
            case "console":
                found += _commands(snippet.heading, snippet.text)
            case "text":
                assert found[-1].kind == "cell", f"nothing shows this: {snippet.text}"
                last = found.pop()
                found.append(Step(last.heading, "cell", last.text, snippet.text))
            case _ if name:
                found.append(Step(snippet.heading, "file", snippet.text, file=name[1]))
            case "python":
                found.append(Step(snippet.heading, "cell", snippet.text))
            case other:
                raise AssertionError(f"{page.name}: a block of {other or 'no language'}")
    return found


def _commands(heading: str, block: str) -> Iterator[Step]:
    before, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert not before, f"output without a command: {before}"
    for part in parts:
        command, _, shown = part.replace("\\\n", "").partition("\n")
        yield Step(heading, "command", command, shown)


class Session:
    """One reader with one shell and one notebook, in a folder of its own.

    `replaced` are texts of the page and what they are here, `added` what is added to the commands
    that begin so, `awaited` what a command that looks must print before the reader goes on.
    `points` is by how much a percentage may differ from the page's, and a hundredth of it by how
    much any other figure may.
    """

    def __init__(
        self,
        folder: Path,
        replaced: dict[str, str],
        added: dict[str, str],
        awaited: dict[str, str],
        points: float,
    ) -> None:
        self.folder, self.points = folder, points
        self.replaced, self.added, self.awaited = replaced, added, awaited
        self._cells: dict[str, Any] = {}
        self._own = folder / ".session"
        self._own.mkdir()
        (self._own / "answers").write_text("y\n" * 5)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        more = {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "110"}
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | more,
        )

    def do(self, step: Step) -> None:
        """Do what a step says, and compare what it prints with the page."""
        if step.kind == "file":
            (self.folder / step.file).write_text(self._here(step.text), encoding="utf-8")
            return
        deadline = time.monotonic() + _PATIENCE
        while True:
            is_last = not step.text.startswith(_LOOKS) or time.monotonic() > deadline
            if step.kind == "command":
                printed = self.run(step.text, may_fail=not is_last)
            else:
                printed = self._cell(step.text)
            problem = self.difference(step.shown, printed) or self._lacking(step.text, printed)
            if not problem or is_last:
                break
            time.sleep(0.5)  # a look at something that has not happened yet
        assert not problem, f"{step.heading}: {step.text}\n{problem}\n--- printed:\n{printed}"

    def run(self, command: str, *, may_fail: bool = False) -> str:
        """Run a command in the shell, answer its questions with yes, and return its output."""
        more = "".join(text for start, text in self.added.items() if command.startswith(start))
        (self._own / "command").write_text(f"{self._here(command)} {more}\n", encoding="utf-8")
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(
            ". .session/command <.session/answers >.session/out 2>&1; echo $?\n"
        )
        self._shell.stdin.flush()
        code = self._shell.stdout.readline().strip()
        printed = (self._own / "out").read_text(encoding="utf-8")
        assert code == "0" or may_fail, f"{command}: exit code {code}\n{printed}"
        return printed.replace("[y/N]: ", "[y/N]: y\n")  # as a terminal shows the answer

    def _cell(self, text: str) -> str:
        """Run a cell as a notebook would: its last expression is shown."""
        *most, last = ast.parse(text).body
        tree = ast.Module([*most, *([] if isinstance(last, ast.Expr) else [last])], [])
        printed, before = StringIO(), Path.cwd()
        os.chdir(self.folder)
        try:
            with redirect_stdout(printed), redirect_stderr(StringIO()):
                exec(compile(tree, "cell", "exec"), self._cells)  # noqa: S102 (our own page)
                if isinstance(last, ast.Expr):
                    value = ast.Expression(last.value)
                    shown = eval(compile(value, "cell", "eval"), self._cells)  # noqa: S307
                    printed.write("" if shown is None else f"{shown}\n")
        finally:
            os.chdir(before)
        return printed.getvalue()

    def difference(self, shown: str, printed: str) -> str:
        """Return the first line of the page that was not printed; empty if all were.

        Lines that follow each other on the page follow each other in the output, but for `…`.
        """
        lines = [_words(line) for line in self._as_shown(printed).splitlines() if line.strip()]
        place, is_open = 0, False
        for line in filter(str.strip, shown.splitlines()):
            if line.strip() == "…":
                is_open = True
                continue
            until = len(lines) if is_open else place + 1
            found = (
                n for n in range(place, until) if n < len(lines) and self._same(line, lines[n])
            )
            if (here := next(found, None)) is None:
                return f"not printed where the page has it: {line}"
            place, is_open = here + 1, False
        return "" if is_open or place == len(lines) or not shown else f"not shown: {lines[place]}"

    def _same(self, shown: str, printed: str) -> bool:
        pattern = re.escape(_words(shown)).replace("…", ".*")
        figures = [float(figure) for figure in _FIGURE.findall(_masked(shown))]
        pattern = re.sub(r"(?<![\w.])(?:\\-)?\d+\\\.\d+(?!\w|\\\.\d)", r"(-?\\d+\\.\\d+)", pattern)
        match = re.fullmatch(pattern, printed)
        if match is None:
            return False
        percents = re.findall(rf"{_FIGURE.pattern}( %)?", _masked(shown))
        limits = [self.points if percent else self.points / 100 for percent in percents]
        return all(
            abs(float(here) - figure) <= limit
            for here, figure, limit in zip(match.groups(), figures, limits, strict=True)
        )

    def _lacking(self, command: str, printed: str) -> str:
        awaited = [text for start, text in self.awaited.items() if command.startswith(start)]
        return next((f"not printed: {text}" for text in awaited if text not in printed), "")

    def _here(self, text: str) -> str:
        for shown, ours in self.replaced.items():
            text = text.replace(shown, ours)
        return text

    def _as_shown(self, text: str) -> str:
        for shown, ours in self.replaced.items():
            text = text.replace(ours, shown)
        return text

    def close(self) -> None:
        """End the shell and everything that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._shell.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()


def _masked(text: str) -> str:
    for pattern, name in _VARYING.items():
        text = re.sub(pattern, name, text)
    return text


def _words(line: str) -> str:
    """Return a line without what varies and with single spaces."""
    return " ".join(_masked(line).split())


@contextmanager
def session(
    page_folder: str,
    *,
    replaced: dict[str, str] | None = None,
    added: dict[str, str] | None = None,
    awaited: dict[str, str] | None = None,
    points: float,
) -> Iterator[Session]:
    """Start a session; `page_folder` is the reader's folder on the page."""
    # Not pytest's folder: a socket's path may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="fdc-"))
    here = {page_folder: str(folder)} | (replaced or {})
    made = Session(folder, here, added or {}, awaited or {}, points)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
