"""A whole study with real processes arrives where its simulation does."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from lab.inprocess import simulate_in_process
from lab.simulate import simulate
from tests.federation.federation import federation, needs_nginx, simulation

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.alone]


def test_four_hospitals_arrive_at_the_parameters_of_feddc_simulate(tmp_path: Path) -> None:
    with federation() as study:
        outcome = study.run()
        assert outcome.code == 0, outcome.errors
        assert outcome.result["status"] == "completed"
        assert outcome.result["sealed"] is True
        assert (outcome.result["hand_overs"], outcome.result["aggregations"]) == (6, 3)
        assert outcome.result["readable_models"] == 3 * 4  # only what was aggregated
        assert (outcome.result["lost_chains"], outcome.result["missed_rounds"]) == (0, 0)
        assert not (study.experiment() / "journal").exists()
        deployed = study.model()
    simulate(simulation(), run_dir=tmp_path / "ray")
    simulated = load_file(tmp_path / "ray" / "model.safetensors")
    assert set(deployed) == set(simulated)
    for name, array in simulated.items():
        np.testing.assert_array_equal(deployed[name], array)
    simulate_in_process(simulation(), tmp_path / "in-process")
    for name, array in load_file(tmp_path / "in-process" / "model.safetensors").items():
        np.testing.assert_array_equal(deployed[name], array)
