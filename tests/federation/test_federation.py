"""A whole study with real processes arrives where its simulation does."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from lab.flower.in_process import simulate_in_process
from lab.flower.simulate import simulate
from learning.local_data import load_partitions
from tests.federation.federation import SEED, federation, needs_nginx, simulation, wait_for

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]


def test_four_hospitals_arrive_at_the_parameters_of_feddc_simulate(tmp_path: Path) -> None:
    with federation() as study:
        outcome = study.run()
        assert outcome.code == 0, outcome.errors
        assert outcome.result["status"] == "completed"
        assert outcome.result["sealed"] is True
        assert (outcome.result["hand_overs"], outcome.result["aggregations"]) == (6, 3)
        assert outcome.result["readable_models"] == 0  # real hospitals average securely
        assert (outcome.result["lost_chains"], outcome.result["missed_rounds"]) == (0, 0)
        assert not (study.experiment() / "journal").exists()
        said = (study.experiment() / "log.jsonl").read_text().splitlines()
        assert any("[leg 9/9]" in json.loads(line)["text"] for line in said)
        deployed = study.model()
    simulate(simulation(), run_dir=tmp_path / "ray")
    simulated = load_file(tmp_path / "ray" / "model.safetensors")
    assert set(deployed) == set(simulated)
    for name, array in simulated.items():
        np.testing.assert_array_equal(deployed[name], array)
    simulate_in_process(simulation(), tmp_path / "in-process")
    for name, array in load_file(tmp_path / "in-process" / "model.safetensors").items():
        np.testing.assert_array_equal(deployed[name], array)


def test_every_hospital_ends_with_the_final_model_and_its_evaluation() -> None:
    with federation() as study:
        outcome = study.run()
        assert outcome.code == 0, outcome.errors
        deployed, experiment = study.model(), study.experiment().name
        for name in study.names:
            kept = study.hospital(name) / "models" / experiment
            own = load_file(kept / "model.safetensors")
            assert set(own) == set(deployed)
            for key, array in own.items():
                np.testing.assert_allclose(array, deployed[key], rtol=1e-12)
        folder = study.hospital(study.names[0])
        evaluation = folder / "models" / experiment / "evaluation.json"

        def look() -> dict[str, object] | None:
            found = json.loads(evaluation.read_text()) if evaluation.exists() else {}
            return found if found.get("alone") else None

        found = wait_for(look, "the agent's evaluation", timeout=900)
        assert found["alone"]["examples"] == found["study"]["examples"] > 0


def test_a_hospital_enrolled_in_mid_run_takes_part_after_the_next_aggregation() -> None:
    """A new roster that everybody pinned opens a generation: new keys, one hospital more."""
    late = "hospital-05"
    (*_, partition) = load_partitions(simulation(hospitals=5).local, 5, SEED)
    # Without `held` there is no quorum: nothing goes on before it is back; all have time to join.
    with federation(rounds=18, quorum=1.0, quorum_wait=900.0) as study:
        run = study.begin()
        study.wait_for_leg(1)
        held, *others = study.names
        study.kill("agent", held)
        study.enrol(late, partition)
        study.sign_roster()
        for name in (*study.names, late):
            study.join(name)
        for name in others:
            study.restart("agent", name)  # an agent reads its roster when it starts
        study.start("agent", late)
        study.start("supernode", late)
        study.wait_until_connected(late)
        study.start("agent", held)
        outcome = study.ended(run)
        assert outcome.code == 0, outcome.errors
        (generation,) = study.events("generation")
        assert (generation["generation"], generation["staying_out"]) == (2, {})
        assert generation["hospitals"] == [*study.names, late]
        lines = [line for line in study.events("hospital") if line["hospital"] == late]
        first = min(line["leg"] for line in lines)
        assert first % 3 == 1  # the leg after an aggregation
        assert [line["leg"] for line in lines if line["weight"]] == [*range(first + 2, 19, 3)]
        assert outcome.result["sealed"] is True
        assert outcome.result["lost_chains"] == 0
