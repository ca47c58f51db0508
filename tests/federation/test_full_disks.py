"""A disk that fills up in the middle of an experiment: nothing is lost, `resume` goes on."""

from pathlib import Path

import pytest

from tests.federation.failures import VICTIM, options
from tests.federation.federation import (
    assert_chains_accounted_for,
    assert_same_model,
    federation,
    needs_nginx,
)
from tests.small_disk import fill

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.long, pytest.mark.timing]

# Long enough to be filled up in, and nobody can be done without.
RUN: dict[str, object] = {"rounds": 60, "aggregation_period": 3}
PATIENCE: dict[str, object] = {"quorum": 1.0, "quorum_wait": 5.0}


def test_a_hospital_without_space_is_named_and_the_run_goes_on_when_it_has_some(
    tmp_path: Path,
) -> None:
    with federation(disks={VICTIM: 64}) as study:
        run = study.begin(*options(**RUN, **PATIENCE))
        study.wait_for_leg(2)
        filler = fill(study.hospital(VICTIM))
        outcome = study.ended(run)
        assert outcome.code == 1
        assert VICTIM in outcome.result["reason"]
        # The coordinator was told why; the last request before it gave up may have no answer.
        assert f"{VICTIM} (refused: disk-full)" in str(study.events("waiting"))
        # At the hospital: what could not be written, and how much is needed.
        log = (study.folder / f"{VICTIM}.agent.log").read_text()
        assert f"disk full, no space left for {study.hospital(VICTIM) / 'state'}" in log
        assert "B are needed; free some space there" in log

        filler.unlink()
        outcome = study.run(command="resume")
        assert outcome.code == 0, outcome.errors
        assert_same_model(study, tmp_path / "simulated", **RUN)
        assert_chains_accounted_for(study)
