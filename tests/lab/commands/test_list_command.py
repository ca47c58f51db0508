"""`feddc lab list` fits a screen; names, --long and --json tell all."""

import json

import pytest
from typer.testing import CliRunner

from lab.experiments import ablation_names, experiment_names, load_experiment
from operation.cli import app


def lab_list(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["lab", "list", *arguments], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_list_fits_a_screen_with_one_line_for_each_experiment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FEDDC_DATA", raising=False)
    lines = lab_list().splitlines()
    words = {line.split()[0]: line.split()[1:] for line in lines}
    assert words["mnist"] == ["MNIST", "needs", "data"]
    assert words["privacy"] == ["Differential", "privacy", "ready", "in", "part"]
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines]
    for name in (*experiment_names(), *ablation_names()):
        assert names.count(name) == 1


@pytest.mark.parametrize("arguments", [("susy",), ("--long",), ("susy", "--json")])
def test_a_name_long_or_json_tells_where_the_data_come_from(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDDC_DATA", raising=False)
    shown = " ".join(lab_list(*arguments).split())
    assert load_experiment("susy").title in shown
    assert "the UCI repository" in shown


def test_json_has_every_experiment() -> None:
    listed = json.loads(lab_list("--json"))
    assert [one["name"] for one in listed] == [*experiment_names(), *ablation_names()]
    assert set(listed[0]) == {"name", "kind", "title", "source", "state"}


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    done = CliRunner().invoke(app, ["lab", "list", "sussy"])
    assert done.exit_code == 2
    assert "did you mean 'susy'?" in done.output
