"""The documentation names only code that exists: files, modules, classes, methods, functions."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGES = (
    "benchmarks",
    "client_app",
    "examples",
    "feddc",
    "lab",
    "learning",
    "operation",
    "protocol",
    "server_app",
    "strategies",
    "tests",
)
# Where classes that the pages name come from, other than this project.
LIBRARIES = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy", "torch.nn")
# `feddc/agent` is an image and `feddc lab` a command: the package's own few names need no pattern.
_NAMED = "|".join(package for package in PACKAGES if package != "feddc")
MODULE = re.compile(rf"({_NAMED})(\.\w+)+(:\w+)?")
PATH = re.compile(rf"({_NAMED})(/[\w.-]+)+/?")
CLASS = re.compile(r"[A-Z][a-z]+[A-Z]\w*(\.[a-z_]\w*)?|[A-Z][a-z]\w+\.[a-z_]\w*")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@cache
def names_in(path: Path) -> dict[str, set[str]]:
    """Return the names a module defines at its top level, each with a class's own names."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        inner = set(defined(node.body)) if isinstance(node, ast.ClassDef) else set()
        for name in defined([node]):
            found[name] = inner
    return found


def defined(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)


@cache
def classes() -> dict[str, set[str]]:
    """Return all classes of the project, those of one name together, with their own names."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    found[node.name] |= set(defined(node.body))
    return dict(found)


def is_defined(dotted: str, path: Path) -> bool:
    """Return whether a module defines `name` or `Class.name`."""
    first, _, second = dotted.partition(".")
    names = names_in(path)
    return first in names and (not second or second in names[first])


def module_exists(reference: str) -> bool:
    """Return whether `package.module`, `package.module.name` or `package.module:name` exists."""
    parts = reference.replace(":", ".").split(".")
    for length in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:length])
        rest = ".".join(parts[length:])
        if place.with_suffix(".py").is_file():
            return not rest or is_defined(rest, place.with_suffix(".py"))
        if (place / "__init__.py").is_file():
            return not rest or is_defined(rest, place / "__init__.py")
    return False


def class_exists(name: str, attribute: str) -> bool:
    if name in classes():
        return not attribute or attribute in classes()[name]
    return any(hasattr(import_module(library), name) for library in LIBRARIES)


def wrong_references(page: Path) -> Iterator[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for label, target in re.findall(r"\[`?([^\]`]+\.py)`?\]\(([^)\s]+\.py)\)", text):
        if not (page.parent / target).is_file() or Path(label).name != Path(target).name:
            yield f"[{label}]({target})"
    for name, target in re.findall(r"`([\w.]+)` in \[[^\]]+\]\(([^)\s]+\.py)\)", text):
        if not is_defined(name, (page.parent / target).resolve()):
            yield f"`{name}` in {target}"
    yield from (
        f"`{code}`"
        for code in re.findall(r"`([^`\n]+)`", text)
        if refers(code) and not exists(code)
    )


def refers(code: str) -> bool:
    """Return whether a code span is a reference, and not an option, a value or a drawn schedule."""
    if code in images() or re.fullmatch(r"\w+\.py|[hA.]+", code):  # a link's label is checked above
        return False
    return bool(MODULE.fullmatch(code) or PATH.fullmatch(code) or CLASS.fullmatch(code))


@cache
def images() -> set[str]:
    """Return the names of the Docker images, which begin like the package `feddc`."""
    files = (ROOT / "docker").glob("*/compose.yaml")
    return {name for file in files for name in re.findall(r"image: (feddc/\w+)", file.read_text())}


def exists(code: str) -> bool:
    if PATH.fullmatch(code):
        return (ROOT / code).exists()
    if MODULE.fullmatch(code):
        return module_exists(code)
    name, _, attribute = code.partition(".")
    return class_exists(name, attribute)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_reference_to_code_exists(page: Path) -> None:
    assert list(wrong_references(page)) == []


@pytest.mark.parametrize(
    "line",
    [
        "`FedDC.begin` in [feddc.py](../strategies/feddc.py)",
        "`exchange` in [exchange.py](../strategies/session/exchange.py)",
        "[wrapped.py](../strategies/wrapped/adapter.py)",
        "`Planner.nothing`",
        "`NoSuchClass`",
        "`lab.engine.nothing`",
        "`client_app.courier:nothing`",
        "`lab/experiments/studies`",
    ],
)
def test_a_reference_to_code_that_is_gone_is_found(line: str, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for package in PACKAGES:
        (tmp_path / package).symlink_to(ROOT / package)
    (docs / "page.md").write_text(f"Algorithm 1 is {line}.\n", encoding="utf-8")
    assert list(wrong_references(docs / "page.md")) != []


def test_the_page_of_the_algorithm_has_references_for_every_step() -> None:
    text = (ROOT / "docs" / "algorithm.md").read_text(encoding="utf-8")
    table = text.partition("## Algorithm 1 in the code")[2].partition("\n## ")[0]
    steps = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(steps) >= 10
    for step in steps:
        assert re.search(r"`[\w.]+` in \[\w+\.py\]\(\.\./[\w/]+\.py\)", step), step
