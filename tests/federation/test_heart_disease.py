"""Four real hospitals' data with a codebook, at real agents: what the lab finds in process."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from lab.engine.run import run
from lab.flower.in_process import simulate_in_process
from learning.data import registry
from tests.examples.heart_disease import EXAMPLE, HEADER, HOSPITALS, METHOD, HeartDisease
from tests.federation.federation import SEED, federation, needs_nginx
from tests.federation.files_study import FilesStudy, WriteFiles, describe, hold_out
from tests.learning.data.conftest import real_data  # noqa: F401 (a fixture)

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.long, pytest.mark.timing]

TEST_FRACTION = 0.2
# Sums are in another order than in the lab: with 53 bits that is far below any figure.
PRECISION = {"precision": "float64"}
CLASSES = ("no disease", "disease")


def table(hearts: HeartDisease, name: str, *, only_test: bool = False) -> str:
    """Return a hospital's file with a header and with numbers for its patients."""
    in_test = hearts.in_test(SEED, TEST_FRACTION)[name]
    pairs = enumerate(zip(hearts.lines(name), in_test, strict=True))
    rows = [f"{number},{line}" for number, (line, test) in pairs if test or not only_test]
    return "\n".join([f"patient,{HEADER}", *rows])


def writer(hearts: HeartDisease, name: str) -> WriteFiles:
    """Each hospital holds out its part of the split's test set."""

    def write(place: Path) -> None:
        (place / "data").mkdir()
        (place / "data" / "patients.csv").write_text(table(hearts, name))
        describe(place, {}, (EXAMPLE / "columns.toml").read_text())
        in_test = hearts.in_test(SEED, TEST_FRACTION)[name]
        hold_out(place, {str(number): test for number, test in enumerate(in_test)})

    return write


def test_real_agents_with_a_codebook_reach_the_figures_of_the_lab(
    real_data: Callable[[str], Path],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hearts = HeartDisease(real_data("heart_disease"), tmp_path)
    monkeypatch.setitem(registry._BUILT_IN, "by-codebook", hearts.by_codebook)
    confusion = np.zeros((2, 2), dtype=np.int64)
    with federation(
        FilesStudy,
        codebook=(EXAMPLE / "codebook.toml").read_text(encoding="utf-8"),
        settings={**METHOD, **PRECISION},
        hospitals={name: writer(hearts, name) for name in HOSPITALS},
    ) as study:
        outcome = study.run()
        assert outcome.code == 0, outcome.errors
        assert (outcome.result["hand_overs"], outcome.result["aggregations"]) == (180, 20)
        assert outcome.result["lost_chains"] == 0
        deployed = study.model()
        for name in HOSPITALS:
            own = study.evaluation(name)
            confusion += own
            # What the model says about these patients is what was evaluated.
            (tmp_path / "held-out.csv").write_text(table(hearts, name, only_test=True))
            said = [one["prediction"] for one in study.predictions(name, tmp_path / "held-out.csv")]
            assert [said.count(one) for one in CLASSES] == own.sum(axis=0).tolist()

    settings = hearts.settings("by-codebook", SEED, averaging="secure", **PRECISION)
    simulate_in_process(settings, tmp_path / "in-process")
    simulated = load_file(tmp_path / "in-process" / "model.safetensors")
    assert set(deployed) == set(simulated)
    for name, array in simulated.items():
        np.testing.assert_allclose(deployed[name], array, rtol=0, atol=1e-9)

    # The figure by which the ten splits are compared in tests/examples/test_heart_disease.py.
    assert confusion.trace() / confusion.sum() == pytest.approx(accuracy(hearts, "by-codebook"))
    assert accuracy(hearts, "by-codebook") >= accuracy(hearts, "heart-disease") - 0.01


def accuracy(hearts: HeartDisease, dataset: str) -> float:
    settings = hearts.settings(dataset, SEED, **PRECISION)
    outcome = run(settings, evaluate_every=1000, evaluate_clients=False)
    return float(outcome.history.evaluations[-1].metrics.accuracy)
