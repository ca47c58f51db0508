"""Text from outside can't steer a terminal, imitate a line of a log, or fill it."""

import io
import json
import logging
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from operation import cli, terminal
from operation.foreign_text import printable
from operation.log_lines import JsonLine, ReadableLine, TimedLine

ROOT = Path(__file__).parents[2]
# Clears the screen, sets the window's title, turns the text round, hides, breaks the line.
HOSTILE = (
    "\x1b[2J\x1b]0;title\x07\x9b31m\u202egnp.\u2066\u200b\u2028\u2029\r\x7f\ufeff\U000e0001end"
)


def is_harmless(text: str) -> bool:
    return all(
        sign == "\n" or unicodedata.category(sign)[0] not in "CZ" or sign == " " for sign in text
    )


def test_everything_that_steers_a_terminal_is_spelled_out() -> None:
    assert printable("\x1b[31mred\n\u202e") == r"\x1b[31mred\n\u202e"
    assert is_harmless(printable(HOSTILE))
    assert printable("a\n\tb", lines=True) == "a\n\tb"
    assert printable("\ud800") == r"\ud800"


def test_invisible_letters_are_spelled_out() -> None:
    assert printable("a\u3164b\ufe0f") == r"a\u3164b\ufe0f"


def test_ordinary_text_of_any_language_is_unchanged() -> None:
    text = "Universitätsklinikum Köln – 東京大学 → Ωμέγα 'x' [b]"
    assert printable(text) == text


def test_a_long_text_is_cut_off_before_it_is_worked_on() -> None:
    assert printable("\x1b" * 10_000_000, limit=3) == r"\x1b\x1b\x1b… (9999997 more characters)"
    assert len(printable("a" * 50_000_000)) < 3_000


def test_an_error_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(terminal.typer.Exit):
        terminal.fail(1, f"bad field {HOSTILE}\nIt is a member already.")
    (line,) = capsys.readouterr().err.splitlines()
    assert is_harmless(line)
    assert line.endswith(r"\nIt is a member already.")


def test_tables_are_harmless() -> None:
    console = terminal.console()
    console.file, console.width = io.StringIO(), 300
    table = Table("name")
    table.add_row(Text(HOSTILE))
    console.print(table)
    console.print(HOSTILE, markup=False)
    assert is_harmless(console.file.getvalue())
    assert console.file.getvalue().count(r"\x1b[2J") == 2


def test_log_lines_are_harmless_and_one_each() -> None:
    record = logging.LogRecord(
        "feddc.x", 40, "f", 1, "reply: %s\n12:00:00 forged", (HOSTILE,), None
    )
    for formatter in (JsonLine(), ReadableLine(), TimedLine()):
        line = formatter.format(record)
        assert is_harmless(line)
        assert "\n" not in line
    assert json.loads(JsonLine().format(record))["text"].endswith("\n12:00:00 forged")


def test_the_trace_of_an_error_is_harmless() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("feddc.x", 40, "f", 1, "ended", (), sys.exc_info())
    for formatter in (JsonLine(), TimedLine()):
        assert is_harmless(formatter.format(record))
        assert "ValueError" in formatter.format(record)


def test_an_unexpected_error_of_a_command_is_harmless(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(**_: object) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(cli, "app", breaks)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert "RuntimeError" in said
    assert is_harmless(said)


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any output for a terminal's
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_shows_what_is_under_way_and_keeps_nothing_of_it(
    on_terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal.activity("reading [b]data[/b]") as now:
        now(f"training {HOSTILE}")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "reading [b]data[/b]" in shown.err
    assert r"training \x1b[2J" in shown.err
    assert "\x1b[2J" not in shown.err
    assert shown.err.endswith("\x1b[1A\x1b[2K")  # the line is erased


def test_output_meanwhile_goes_where_it_belongs(
    on_terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal.activity("working"):
        terminal.echo("the result")
    shown = capsys.readouterr()
    assert shown.out == "the result\n"
    assert "the result" not in shown.err


def test_an_error_ends_the_activity(on_terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="wrong"), terminal.activity("working"):
        raise ValueError("wrong")
    assert "\x1b[?25h" in capsys.readouterr().err  # the cursor is back


def test_with_quiet_and_in_a_log_nothing_is_shown(
    on_terminal: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal.activity("working", quiet=True) as now:
        now("still")
    monkeypatch.delenv("FORCE_COLOR")
    with terminal.activity("working") as now:
        now("still")
    assert capsys.readouterr().err == ""


def test_no_command_makes_a_console_of_its_own() -> None:
    """One that is not `operation.terminal`'s would print escape sequences as they are."""
    for package in ("client_app", "server_app"):
        for file in (ROOT / package).rglob("*.py"):
            assert not re.search(r"\bConsole\(", file.read_text()), file


def test_percentages_are_written_in_one_way() -> None:
    assert terminal.percent(0.7286) == "72.9 %"
    assert terminal.percent(1.0, digits=0) == "100 %"
    assert terminal.percent(None) == "–"
    for package in ("client_app", "server_app", "lab", "learning", "operation", "benchmarks"):
        for file in (ROOT / package).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            assert not re.search(r":[+,]?(?:\.\d)?%\}", text), file
    script = (ROOT / "server_app" / "pages" / "static" / "page.js").read_text(encoding="utf-8")
    assert "percent(run.accuracy)" in script
    assert not re.search(r"\} ?%", script)
