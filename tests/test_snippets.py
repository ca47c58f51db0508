"""Every snippet of README.md and docs/flower.md runs as it stands.

Where a command would take long, an option is added at its end that makes it shorter. The screens
for a hospital and a coordinator are run in tests/federation/test_readme_study.py.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message
from flwr.serverapp.strategy import Result, Strategy
from sklearn.datasets import load_breast_cancer

from protocol.sealing.sealed_arrays import is_sealed
from tests.examples.quickstart import FOLDER as QUICKSTART
from tests.snippets import FLOWER, README, ROOT, snippets, under
from tests.strategies.plain.small_app import FIRST, WatchedGrid, make_app, record, round_of

FEDDC = [sys.executable, "-c", "from operation.cli import main; main()"]


def run_python(text: str, grid: WatchedGrid | None = None) -> dict[str, Any]:
    """Run a snippet as a part of a ServerApp, which has a Grid and a first model."""
    names = {"grid": grid or WatchedGrid(make_app(), 6), "initial_arrays": record(FIRST)}
    exec(compile(text, "snippet", "exec"), names)  # noqa: S102 (our own)
    return names


def run_feddc(words: list[str], *more: str, folder: Path) -> str:
    """Run a command of the page in a process of its own and return its output."""
    assert Path(words[0]).name == "feddc"
    done = subprocess.run(
        [*FEDDC, *words[1:], *more], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_snippet_is_left_out() -> None:
    """Whoever adds a snippet adds a test for it."""
    assert [(s.heading, s.language) for s in snippets(README)] == [
        ("Try it", ""),
        ("Try it", ""),
        ("Try it", ""),
        ("In your own Flower app", "python"),
        ("On your own data", ""),
        ("Real hospitals, on one machine", ""),
        ("Real hospitals, on one machine", ""),
        ("For a hospital", ""),
        ("For a coordinator", ""),
        ("For a researcher", ""),
    ]
    assert [(s.heading, s.language) for s in snippets(FLOWER)] == [
        ("FedDC in your own Flower app", "python"),
        ("The change, in Flower's PyTorch quickstart", "diff"),
        ("Sealed hand-overs", ""),
        ("Sealed hand-overs", ""),
        ("Sealed hand-overs", "python"),
        ("Sealed hand-overs", "python"),
        ("Other strategies, inside and around", "python"),
    ]


@pytest.mark.parametrize(
    ("page", "heading"),
    [(README, "In your own Flower app"), (FLOWER, "FedDC in your own Flower app")],
)
def test_the_five_lines_daisy_chain_in_any_flower_app(page: Path, heading: str) -> None:
    (snippet,) = under(page, heading)
    names = run_python(snippet.text)
    result, grid = names["result"], names["grid"]
    assert sorted(result.evaluate_metrics_clientapp) == [*range(10, 101, 10)]
    assert distinct_models(grid, 1) == 1  # the first model
    assert distinct_models(grid, 10) == 6  # each node's own
    assert distinct_models(grid, 11) == 1  # the aggregate


def test_wrappers_compose_in_both_directions_as_the_page_says() -> None:
    (snippet,) = under(FLOWER, "Other strategies, inside and around")
    names = run_python(snippet.text)
    for name in ("inside", "around"):
        strategy: Strategy = names[name]
        grid = WatchedGrid(make_app(), 20)
        result: Result = strategy.start(grid, record(FIRST), num_rounds=20)
        assert set(result.arrays) == set(FIRST)
        assert distinct_models(grid, 2) == 20, name  # models were handed over, not aggregated


def test_hand_overs_are_sealed_as_the_page_says(tmp_path: Path) -> None:
    key, roster, client, server = under(FLOWER, "Sealed hand-overs")
    grid = WatchedGrid(make_app(app=run_python(client.text)["app"]), 3)
    (making_a_key,), (making_the_roster,) = key.commands, roster.commands
    for name, context in zip(("St Mary", "Charite", "Mercy"), grid.contexts, strict=True):
        folder = tmp_path / name
        folder.mkdir()
        words = [word.replace("St Mary", name) for word in making_a_key]
        run_feddc(words, folder=folder)
        shutil.copy(folder / f"{name}.card.json", tmp_path)
        context.node_config["feddc-key"] = str(folder / f"{name}.key.json")
        context.node_config["feddc-roster"] = str(tmp_path / "roster.json")
    assert "Charite, Mercy, St Mary" in run_feddc(making_the_roster, folder=tmp_path)

    result = run_python(server.text, grid)["result"]
    assert sorted(result.evaluate_metrics_clientapp) == [*range(10, 101, 10)]
    handed_over = [m for m in grid.sent if round_of(m) % 10 not in (0, 1) and is_train(m)]
    assert handed_over
    assert all(is_sealed(m.content.array_records["arrays"]) for m in handed_over)


def distinct_models(grid: WatchedGrid, server_round: int) -> int:
    sent = [message for message in grid.sent if is_train(message)]
    models = [m.content.array_records["arrays"] for m in sent if round_of(m) == server_round]
    return len({model["w"].numpy().tobytes() for model in models})


def is_train(message: Message) -> bool:
    return message.metadata.message_type == "train"


def test_the_diff_turns_flowers_quickstart_into_ours() -> None:
    (snippet,) = under(FLOWER, "The change, in Flower's PyTorch quickstart")
    ours = (QUICKSTART / "pytorchexample" / "server_app.py").read_text(encoding="utf-8")
    before = ours
    for hunk in re.split(r"^@@.*\n", snippet.text, flags=re.MULTILINE):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] or "\n" for line in lines if not line.startswith("+"))
        new = "".join(line[1:] or "\n" for line in lines if not line.startswith("-"))
        assert before.count(new) == 1, hunk
        before = before.replace(new, old)
    assert "feddc" not in before.lower().replace("with feddc around its strategy", "")
    compile(before, "server_app.py", "exec")


@pytest.mark.slow
def test_own_data_are_compared_by_the_one_line(tmp_path: Path) -> None:
    source = load_breast_cancer()
    with (tmp_path / "study.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*(name.replace(" ", "-") for name in source.feature_names), "diagnosis"])
        classes = source.target_names[source.target]
        table.writerows([*row, name] for row, name in zip(source.data, classes, strict=True))
    (snippet,) = under(README, "On your own data")
    (words,) = snippet.commands
    shorter = ("--seeds", "1", "--methods", "feddc,fedavg-b", "--set", "rounds=20")
    printed = run_feddc(words, *shorter, folder=tmp_path)
    assert re.search(r"FedDC\(1, \d+\) over FedAvg\(\d+\): [+-]\d", printed)
    (plot,) = tmp_path.glob("runs/*/communication.png")
    assert plot.stat().st_size > 0


def test_the_federations_output_is_the_one_on_the_containers_page() -> None:
    command, output = under(README, "Real hospitals, on one machine")
    assert command.commands == [["make", "federation"]]
    assert output.text in [s.text for s in snippets(ROOT / "docs" / "containers.md")]
    planned = subprocess.run(
        ["make", "--dry-run", "federation"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "docker/local/run.py" in planned.stdout  # tests/docker runs it where there is an engine


def test_the_exported_path_has_the_command(tmp_path: Path) -> None:
    *_, export = under(README, "Try it")
    # Where `make install` puts it; here that is the environment of the tests.
    (tmp_path / ".venv").symlink_to(sys.prefix)
    script = f"{export.text}command -v feddc && feddc --version"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, check=False)
    assert done.stdout.startswith(f"{tmp_path}/.venv/bin/feddc\nfeddc ".encode()), done.stderr


@pytest.mark.slow
def test_make_demo_prints_the_table_of_the_page() -> None:
    command, output, _ = under(README, "Try it")
    assert command.commands == [["make", "demo"]]
    demo = subprocess.run(
        ["make", "--assume-old=install", "demo", f"VENV={sys.prefix}"],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "100"},  # as wide as the page's
        capture_output=True,
        text=True,
        check=False,
    )
    assert demo.returncode == 0, demo.stderr
    expected, found = demo_rows(output.text), demo_rows(demo.stdout)
    for shown, ours in zip(expected, found, strict=True):
        assert (ours[0], ours[2:]) == (shown[0], shown[2:])
        # In steps of the 360 test images; another CPU's rounding may change some.
        assert float(ours[1]) == pytest.approx(float(shown[1]), abs=2.5), ours
    # Flower's runs confirm the figures of the lab's engine.
    assert found[:5] == found[5:]
    (report,) = re.findall(r"^Report: (.+)$", demo.stdout, re.MULTILINE)
    assert (ROOT / report).is_file()
    shutil.rmtree((ROOT / report).parent)


def demo_rows(table: str) -> list[tuple[str, ...]]:
    """Return method, accuracy, hand-overs and aggregations of both tables' rows."""
    rows = re.findall(r"^│ (.+?) +│ +([\d.]+) % │ +(\S+) │ +(\S+) │", table, re.MULTILINE)
    assert len(rows) == 10
    return rows


@pytest.mark.slow
def test_the_researchers_screen_runs(tmp_path: Path) -> None:
    (screen,) = under(README, "For a researcher")
    shorter: dict[str, tuple[tuple[str, ...], Callable[[str], bool]]] = {
        "lab list": ((), lambda text: "synthetic" in text),
        "lab run": (("--seeds", "1", "--methods", "feddc,fedavg-b"), lambda text: "over" in text),
        "lab advise": ((), lambda text: "daisy-period" in text),
        "simulate --hospitals": (("--rounds", "6"), lambda text: "test accuracy" in text),
    }
    assert [" ".join(words[1:3]) for words in screen.commands] == list(shorter)
    for words, (more, is_right) in zip(screen.commands, shorter.values(), strict=True):
        assert is_right(run_feddc(words, *more, folder=tmp_path)), words
