"""The documentation says what the code does: settings, links, commands, examples, fields."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
import pytest
import torch
import typer

from lab.commands.simulate_command import JSON_KEYS
from learning.data import DataOptions, Dataset
from operation.cli import app as feddc
from server_app.config.method_settings import Aggregator
from server_app.config.run_config import Settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def table_rows(page: Path) -> dict[str, list[str]]:
    """Return the cells of all table rows by what their first cell has in backticks."""
    rows: dict[str, list[str]] = {}
    for line in read(page).splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        first = re.fullmatch(r"`([^`]+)`", cells[0])
        if line.startswith("|") and first:
            assert first[1] not in rows, f"{first[1]} has two rows in {page.name}"
            rows[first[1]] = cells[1:]
    return rows


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(read(page)) if kind == language]


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_percentages_are_written_as_the_commands_print_them(page: Path) -> None:
    assert re.findall(r"\S*\d%", read(page)) == []


# --- settings -------------------------------------------------------------------------------------


def documented_settings() -> dict[str, Any]:
    """Return the keys and defaults of settings.md, whose tables of settings have four columns."""
    rows = {key: cells for key, cells in table_rows(DOCS / "settings.md").items() if len(cells) > 1}
    return {key: tomllib.loads(f"v = {cells[0].strip('`')}")["v"] for key, cells in rows.items()}


def test_every_setting_is_documented_with_its_default_and_no_other() -> None:
    documented, defaults = documented_settings(), Settings.defaults()
    assert set(documented) == set(defaults)
    for key, default in defaults.items():
        assert (documented[key], type(documented[key])) == (default, type(default)), key


def test_settings_are_documented_in_the_order_of_the_run_config() -> None:
    assert list(documented_settings()) == list(PYPROJECT["tool"]["flwr"]["app"]["config"])


def test_every_aggregator_is_explained() -> None:
    text = read(DOCS / "settings.md").partition("The aggregators:")[2].partition("##")[0]
    explained = re.findall(r"`([^`]+)`", "\n".join(re.findall(r"^\| (.*?) \|", text, re.MULTILINE)))
    assert sorted(explained) == sorted(get_args(Aggregator))


# --- links ----------------------------------------------------------------------------------------


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", read(page))):
            if not re.match(r"[a-z]+:", target):
                yield page, target


def anchors(page: Path) -> set[str]:
    """Return what GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", read(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_internal_links_lead_somewhere(page: Path) -> None:
    for _, target in [link for link in links() if link[0] == page]:
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(place), f"{page.name}: {target}"


def test_every_page_is_reached_from_the_index() -> None:
    reached, waiting = set(), [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = [(page.parent / t.partition("#")[0]).resolve() for p, t in links() if p == page]
        waiting += [t for t in targets if t.suffix == ".md" and t in PAGES and t not in reached]
    ours = {DOCS / name for name in ("algorithm.md", "settings.md", "models-and-data.md")}
    ours |= {DOCS / name for name in ("simulation.md", "when-it-helps.md", "dependencies.md")}
    ours |= {DOCS / name for name in ("coordinator.md", "hospital.md", "threat-model.md")}
    ours |= {DOCS / name for name in ("lab.md", "results.md")}
    assert ours | set((DOCS / "decisions").glob("*.md")) <= reached


# --- commands -------------------------------------------------------------------------------------


def shown_commands(page: Path) -> Iterator[tuple[list[str], bool]]:
    """Yield the words after `feddc`, and whether it is a whole command line or only a mention."""
    text = read(page)
    for _, block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if match := re.match(r"(?:\$ )?(?:\S*/)?feddc (.+)", line):
                command = match[1].partition(" > ")[0]  # what the shell does with it is not ours
                yield shlex.split(command, comments=True), True
    for mention in re.findall(r"`feddc ([^`\n]+)`", FENCE.sub("", text)):
        yield [word for word in shlex.split(mention) if word != "…"], False


def find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    command: click.Command = typer.main.get_command(feddc)
    context = click.Context(command, info_name="feddc")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"feddc has no command {' '.join(words)}"
        command, words = found, words[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    return command, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_shown_commands_exist_and_take_their_options(page: Path) -> None:
    known = Settings.defaults()
    for words, is_whole in shown_commands(page):
        command, arguments = find_command(words)
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        for word in arguments:
            if word.startswith("--"):
                assert word.partition("=")[0] in options, f"{page.name}: feddc {' '.join(words)}"
        if not is_whole:
            continue
        assert not isinstance(command, click.Group) or arguments, f"{page.name}: {words}"
        try:
            context = command.make_context("feddc", list(arguments))
        except click.exceptions.Exit:  # --help, --version
            continue
        except click.ClickException as error:
            pytest.fail(f"{page.name}: feddc {' '.join(words)}: {error.format_message()}")
        for assignment in context.params.get("settings") or ():
            assert assignment.partition("=")[0] in known, f"{page.name}: --set {assignment}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_shown_make_targets_and_modules_exist(page: Path) -> None:
    makefile = read(ROOT / "Makefile")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    text = read(page)
    shown = re.findall(r"`(?:[A-Z]+=\S+ )?make ([a-z-]+)", text)
    shown += re.findall(r"^make ([a-z-]+)", "\n".join(b for _, b in FENCE.findall(text)), re.M)
    assert set(shown) <= targets, page.name
    for module in re.findall(r"python3? -m ((?:benchmarks|tests|server_app)[\w.]*)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), f"{page.name}: {module}"


def test_commands_are_found_in_the_docs() -> None:
    found = [words[0] for words, is_whole in shown_commands(DOCS / "simulation.md") if is_whole]
    assert len(found) >= 5
    assert set(found) == {"simulate"}


# --- examples -------------------------------------------------------------------------------------


def test_the_library_example_runs_and_prints_what_the_page_says() -> None:
    page = DOCS / "algorithm.md"
    (example,) = blocks(page, "python")
    (printed,) = [block for block in blocks(page, "") if "aggregations after legs" in block]
    out = StringIO()
    with redirect_stdout(out):
        exec(compile(example, str(page), "exec"), {"__name__": "example"})  # noqa: S102 (our own)
    legs, accuracy = out.getvalue().splitlines()
    assert legs == printed.splitlines()[0]
    # Accuracy in steps of the 114 test patients; other CPUs may differ by one.
    said = float(printed.splitlines()[1].rpartition(" ")[2])
    assert float(accuracy.rpartition(" ")[2]) == pytest.approx(said, abs=0.02)


def test_the_hospitals_data_example_is_a_valid_section(tmp_path: Path) -> None:
    from client_app.configuration import Configuration

    (section,) = blocks(DOCS / "hospital.md", "toml")
    path = tmp_path / "hospital.toml"
    path.write_text(f'[hospital]\nname = "St Mary"\n\n{section}', encoding="utf-8")
    data = Configuration.read(path).data
    assert (data.dataset, data.label_column) == ("csv", "diagnosis")
    assert data.classes == ["healthy", "sick"]


def test_the_engines_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = blocks(DOCS / "lab.md", "python")
    out = StringIO()
    with redirect_stdout(out):
        exec(compile(example, "lab.md", "exec"), {"__name__": "example"})  # noqa: S102 (our own)
    *_, last = out.getvalue().splitlines()
    assert re.search(r"accuracy=0\.\d+.* [a-z-]+ \d+ client-rounds per second$", last)


@pytest.mark.slow
def test_the_in_process_example_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = blocks(DOCS / "simulation.md", "python")
    said = re.search(r"It printed (0\.\d+)…", read(DOCS / "simulation.md"))
    assert said is not None
    out = StringIO()
    with redirect_stdout(out):
        exec(compile(example, "page", "exec"), {"__name__": "example"})  # noqa: S102 (our own)
    # In steps of the 360 test images; another CPU's rounding may change some.
    assert float(out.getvalue()) == pytest.approx(float(said[1]), abs=0.025)


def test_the_plug_in_example_is_a_model_and_a_data_set() -> None:
    (source,) = blocks(DOCS / "models-and-data.md", "python")
    (project,) = [tomllib.loads(block) for block in blocks(DOCS / "models-and-data.md", "toml")]
    package: dict[str, Any] = {}
    exec(source, package)  # noqa: S102 (our own)

    points = project["project"]["entry-points"]
    assert points == {
        "feddc.models": {"two-layer": "our_study:two_layer"},
        "feddc.datasets": {"wine": "our_study:wine"},
    }
    for group in points:
        for name, value in points[group].items():
            assert f"{name} = {value}" in read(DOCS / "models-and-data.md")
    dataset = package["wine"](None, 0, DataOptions())
    assert isinstance(dataset, Dataset)
    assert (len(dataset.train), len(dataset.test), dataset.shape) == (142, 36, (13,))
    model = package["two_layer"](dataset.shape, len(dataset.classes), width=8)
    assert model(torch.zeros(2, 13)).shape == (2, 3)


def test_the_drawn_schedules_are_those_of_the_code() -> None:
    from protocol.schedule import Ending, Schedule

    drawn = {
        row[0]: row[-1]
        for line in read(DOCS / "algorithm.md").splitlines()
        if (row := re.findall(r"\| ([^|]*?) (?=\|)", line)) and re.fullmatch("`[hA.]+`", row[-1])
    }
    variants: dict[str, dict[str, Any]] = {
        "1, 5": {},
        "2, 5": {"daisy_period": 2},
        "0, 5": {"daisy_period": None},
        "1, 0": {"aggregation_period": None},
    }
    assert set(drawn) == set(variants)
    for name, changes in variants.items():
        schedule = Schedule(**{"rounds": 20, "daisy_period": 1, "aggregation_period": 5} | changes)
        signs = ["."] * 20
        for leg in schedule.legs:
            signs[leg.last_round] = "A" if leg.ending is Ending.AGGREGATION else "h"
        assert drawn[name] == f"`{''.join(signs)}`", name


# --- threat model ---------------------------------------------------------------------------------


def test_every_test_that_the_threat_model_names_is_in_the_suite() -> None:
    pages = read(DOCS / "threat-model.md") + read(DOCS / "secure-averaging.md")
    named = set(re.findall(r"`(test_\w+)`", pages)) - {"test_unprotected"}
    in_suite = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", read(path), re.MULTILINE)
    }
    assert len(named) > 50
    assert named - in_suite == set()
    unprotected = {name for name in in_suite if name.startswith("test_unprotected")}
    assert unprotected <= named


def test_every_table_of_the_threat_model_has_every_attacker() -> None:
    page = read(DOCS / "threat-model.md")
    tables = re.findall(r"^\| attacker .*\n(?:\|.*\n)+", page, re.MULTILINE)
    attackers = [re.findall(r"^\| ([^|]*?) \|", table, re.MULTILINE)[2:] for table in tables]
    assert len(attackers) == 5
    assert all(rows == attackers[0] for rows in attackers)


# --- results --------------------------------------------------------------------------------------


def test_every_field_of_a_run_is_documented(run_tiny: Any) -> None:
    run = run_tiny(rounds=4, aggregation_period=2)
    folder = Path(run.settings.algorithm.run_dir)
    page = read(DOCS / "simulation.md")
    rows = table_rows(DOCS / "simulation.md")
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        fields = set(re.findall(r"`(\w+)`", " ".join(rows[event["event"]])))
        missing = set(event) - fields - {"event", "version", "time"}
        assert not missing, f"event {event['event']} has {missing}"

    summary = page.partition("### summary.json")[2].partition("\n## ")[0]
    told = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (.*?) \|", summary, re.M))))
    assert told == set(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    printed = summary.partition("`--json` prints")[2]
    assert set(re.findall(r"`(\w+)`", printed)) == set(JSON_KEYS)

    written = {path.name for path in folder.iterdir()}
    assert written == {name for name in rows if re.fullmatch(r"[\w-]+\.\w+", name)} - {"flower.log"}


def test_parameter_counts_are_those_of_the_models() -> None:
    from learning.models import build, names

    rows = table_rows(DOCS / "models-and-data.md")
    tasks: dict[str, list[tuple[tuple[int, ...], int, dict[str, object]]]] = {
        "linear": [((18,), 2, {"outputs": 1}), ((1, 8, 8), 10, {})],
        "mlp": [((100,), 2, {}), ((1, 8, 8), 10, {})],
        "mnist-cnn": [((1, 28, 28), 10, {})],
        "mri-cnn": [((3, 150, 150), 2, {}), ((1, 150, 150), 2, {})],
        "resnet-small": [((3, 32, 32), 10, {})],
        "resnet18": [((3, 224, 224), 2, {}), ((1, 224, 224), 2, {})],
        "cnn-3d": [((1, 32, 64, 64), 2, {})],
    }
    assert set(tasks) <= set(names())
    for name, cases in tasks.items():
        for shape, classes, options in cases:
            with torch.device("meta"):  # shapes without memory
                model = build(name, shape=shape, classes=classes, options=options, seed=0)
            count = sum(int(np.prod(tensor.shape)) for tensor in model.parameters())
            assert re.search(rf"(?<![\d,]){count:,}(?![\d,])", rows[name][-1]), (name, count)


def test_every_dependency_is_explained() -> None:
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(package for extra in extras for package in extra)]
    names = {re.split(r"[\[<>=]", requirement)[0] for requirement in wanted}
    names.remove("feddc")  # with the extras that dev brings
    first_cells = re.findall(r"^\| (.*?) \|", read(DOCS / "dependencies.md"), re.MULTILINE)
    assert sorted(re.findall(r"`([^`]+)`", " ".join(first_cells))) == sorted(names)
