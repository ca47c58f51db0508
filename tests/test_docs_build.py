"""`make docs`: all pages build without a warning, and every picture that they show is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.snippets import ROOT


@pytest.mark.slow
def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("furo")
    built = tmp_path / "built"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "docs", str(built)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = {path.relative_to(built).as_posix(): path for path in built.rglob("*.html")}
    for name in ("index", "tutorials/coordinator", "tutorials/researcher", "results"):
        assert f"{name}.html" in pages
    for path in pages.values():
        text = path.read_text(encoding="utf-8")
        for picture in re.findall(r'<img[^>]* src="([^":]+)"', text):
            assert (path.parent / picture).is_file(), f"{path.name}: {picture}"
        assert not re.search(r'<(?:script|link|img)[^>]* (?:src|href)="https?:', text), path.name


def test_pictures_are_small() -> None:
    for path in (ROOT / "docs" / "pictures").glob("*.png"):
        assert path.stat().st_size < 150_000, path.name
