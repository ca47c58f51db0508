"""`feddc docs`: the documentation that was installed with this version, without a network."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from operation.terminal import console, echo, fail

_ROOT = Path(__file__).resolve().parents[2]
# In a wheel the pages are below feddc/; in a copy of the repository `make docs` builds them too.
_PLACES = (_ROOT / "feddc" / "docs", _ROOT / "docs")
_BUILT = _ROOT / "dist" / "docs"
_INDEX = "README"


def pages() -> dict[str, Path]:
    """Return every page by its name, e.g. `hospital` or `tutorials/dicom`."""
    folder = next((place for place in _PLACES if (place / f"{_INDEX}.md").is_file()), None)
    if folder is None:
        fail(2, "this installation has no documentation: install the wheel, or a copy's `docs/`")
    found = sorted(folder.rglob("*.md"))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in found}


def _names(incomplete: str) -> list[str]:
    return list(pages())


def docs(
    page: Annotated[
        str, typer.Argument(help="Name of a page; see --list.", autocompletion=_names)
    ] = _INDEX,
    list_pages: Annotated[bool, typer.Option("--list", help="List the pages.")] = False,
    path: Annotated[bool, typer.Option("--path", help="Print where the page's file is.")] = False,
    browser: Annotated[
        bool, typer.Option("--browser", help="Open the pages that `make docs` has built.")
    ] = False,
) -> None:
    """Show the documentation of this version; nothing is downloaded."""
    found = pages()
    name = page.removesuffix(".md")
    if list_pages:
        echo("\n".join(found))
        return
    if name not in found:
        fail(2, f"there is no page {page!r}: `feddc docs --list` shows all")
    if browser:
        _open(name)
    elif path:
        echo(str(found[name]))
    else:
        _show(found[name])


def _open(name: str) -> None:
    built = _BUILT / f"{name}.html"
    if not built.is_file():
        fail(2, f"{built} does not exist: build it with `make docs` in a copy of the repository")
    webbrowser.open(built.as_uri())
    echo(str(built))


def _show(path: Path) -> None:
    from rich.markdown import Markdown

    screen = console()
    text = Markdown(path.read_text(encoding="utf-8"))
    if screen.is_terminal:
        with screen.pager(styles=True):
            screen.print(text)
    else:
        screen.print(text)
