"""All hospitals of an experiment train by the same terms, or none of their models open."""

from typing import Any

import pytest

from protocol.bundle import from_bundle
from protocol.messages import Announcement, KeyShares, Refusal, RefusalCode, SetUp
from tests.attacks.study import (
    TRAINING,
    Experiment,
    Study,
    expect,
    in_process,
    new_study,
    share,
)


@pytest.fixture
def study() -> Study:
    study = new_study(("Aspen", "Birch", "Cedar"))
    for seed, name in enumerate(study.roster.names):
        study.hospitals[name] = in_process(study, name, share(name, seed))
    return study


@pytest.mark.parametrize("training", [{}, {"learning-rate": 0.2}], ids=["the same", "another rate"])
def test_other_settings_for_one_hospital_make_keys_that_do_not_match(
    study: Study, training: dict[str, Any]
) -> None:
    descriptor = study.descriptor()
    shown = dict.fromkeys(study.roster.names, descriptor)
    changes: dict[str, Any] = {"training": TRAINING | training, "experiment": descriptor.experiment}
    shown["Cedar"] = descriptor.model_copy(update=changes)
    experiment = Experiment(study, descriptor)
    for name, terms in shown.items():
        request = SetUp(experiment=terms.experiment, payload=terms.to_bytes())
        experiment.announced[name] = expect(Announcement, study.ask(name, request)).payload
    for name in study.roster.names:
        reply = expect(KeyShares, study.ask(name, experiment.exchange()))
        experiment.shares[name] = from_bundle(reply.payload)

    answers = {name: study.ask(name, experiment.open(name)) for name in study.roster.names}

    if training:
        refused = [a for a in answers.values() if isinstance(a, Refusal)]
        assert {refusal.code for refusal in refused} == {RefusalCode.KEYS_REFUSED}
        assert len(refused) == 3  # each lacks a share that opens
    else:
        assert not any(isinstance(answer, Refusal) for answer in answers.values())
