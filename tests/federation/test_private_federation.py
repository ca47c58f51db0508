"""A study of real processes with noise: what it costs is in every hospital's ledger."""

import json

import pytest

from tests.federation.federation import feddc, federation, needs_nginx

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]
PRIVATE = {
    "privacy_unit": "patient",
    "nominal_patients": 15,
    "batch_size": 0,
    "target_epsilon": 8.0,
    "average_noise_multiplier": 1.0,
}


def test_each_hospital_spends_the_target_although_an_agent_was_killed() -> None:
    with federation(**PRIVATE) as study:
        run = study.begin()
        study.wait_for_leg(2)
        killed, *_ = study.names
        study.kill("agent", killed)
        study.start("agent", killed)
        outcome = study.ended(run)
        assert outcome.code == 0, outcome.errors
        assert outcome.result["untrained"] == {}
        assert outcome.result["scheduled_epsilon"] == pytest.approx(8.0, rel=1e-3)

        for name in study.names:
            folder = str(study.hospital(name))
            ledger = json.loads(feddc("hospital", "ledger", "--json", "--folder", folder))
            # Six hand-overs and three averages; the noise was computed to four digits.
            (cost,) = ledger["experiments"]
            assert (cost["releases"], cost["without_noise"]) == (9, 0)
            assert ledger["epsilon"] == pytest.approx(8.0, rel=1e-3)
            assert ledger["epsilon"] <= 8.0
            assert ledger["problem"] == ""
            shown = feddc("hospital", "experiments", "--folder", folder)
            assert (
                "ε = 8 for each patient (δ = 1e-05), against the coordinator and 1 member" in shown
            )
