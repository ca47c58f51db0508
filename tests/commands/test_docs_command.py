"""`feddc docs` shows the pages of this version without a network."""

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from operation.cli import app
from operation.command_line import docs_command
from tests.snippets import ROOT


def docs(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["docs", *arguments], catch_exceptions=False)


def test_the_index_is_shown_and_every_page_can_be() -> None:
    listed = docs("--list").stdout.split()
    written = (ROOT / "docs").rglob("*.md")
    assert listed == sorted(
        p.relative_to(ROOT / "docs").with_suffix("").as_posix() for p in written
    )
    assert "glossary" in listed
    assert docs().stdout.strip()
    page = docs("glossary").stdout
    assert "envelope" in page
    assert "](" not in page  # rendered, not the source


def test_the_path_is_the_files() -> None:
    assert Path(docs("tutorials/dicom", "--path").stdout.strip()).is_file()


def test_an_unknown_page_is_refused() -> None:
    done = docs("nothing")
    assert (done.exit_code, "feddc docs --list" in done.stderr) == (2, True)


def test_the_browser_gets_a_local_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(docs_command.webbrowser, "open", opened.append)
    monkeypatch.setattr(docs_command, "_BUILT", tmp_path)
    assert "make docs" in docs("--browser").stderr
    (tmp_path / "README.html").write_text("<html>", encoding="utf-8")
    assert docs("--browser").exit_code == 0
    assert opened == [(tmp_path / "README.html").as_uri()]
