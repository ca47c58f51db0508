"""Membership attacks: rates by hand, gradients against autograd, the whole attack at full size."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from lab.attack.membership import gradients_of, judged
from lab.attack.scenario import knowledge, study
from lab.cli import app
from learning.losses import loss_of


def test_rates_and_advantage_of_scores_by_hand() -> None:
    strangers = np.arange(100.0)
    # Above 90: 4 of 10; above 99: 2 of 10.
    members = np.array([1, 2, 3, 50, 60, 70, 91, 95, 100, 101], dtype=float)
    result = judged("by hand", members, strangers)
    assert result.at[0.1].rate == 0.4
    assert result.at[0.01].rate == 0.2
    # The best threshold is just below 91: 4 of 10 members, 9 of 100 strangers.
    assert result.advantage == pytest.approx(0.4 - 0.09)


@pytest.mark.parametrize("hits", [0, 3, 10])
def test_intervals_are_clopper_and_pearsons(hits: int) -> None:
    strangers = np.zeros(1000)
    members = np.array([1.0] * hits + [-1.0] * (10 - hits))
    rate = judged("by hand", members, strangers).at[0.1]
    wanted = binomtest(hits, 10).proportion_ci(method="exact")
    assert (rate.low, rate.high) == pytest.approx((wanted.low, wanted.high))


def test_scores_without_information_have_no_advantage() -> None:
    rng = np.random.default_rng(0)
    result = judged("chance", rng.normal(size=2000), rng.normal(size=20_000))
    assert result.at[0.1].low < 0.1 < result.at[0.1].high
    assert result.at[0.01].low < 0.01 < result.at[0.01].high
    assert result.advantage < 0.05


def test_gradients_are_those_of_each_record_alone() -> None:
    attacker = knowledge(study(noise=False))
    network, few = attacker.network, attacker.own.take(range(3))
    for row, gradient in enumerate(gradients_of(network, few)):
        features, labels = network.tensors(few.take([row]))
        loss = loss_of("cross-entropy", network.module(features), labels)
        wanted = torch.autograd.grad(loss, list(network.parameters.values()))
        flat = torch.cat([part.flatten() for part in wanted]).double()
        torch.testing.assert_close(gradient, flat, rtol=1e-4, atol=1e-6)


def test_the_attackers_own_records_are_nobody_elses() -> None:
    attacker = knowledge(study(noise=False))
    assert len(attacker.own) == 180
    own = {row.tobytes() for row in attacker.own.features}
    assert not own & {row.tobytes() for row in attacker.strangers.features}


@pytest.mark.slow
def test_noise_defeats_attacks_that_succeed_without_it(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = f"{tmp_path}/attack.png"
    with pytest.raises(SystemExit) as ended:
        app(["attack", "--json", "--picture", picture])
    assert ended.value.code == 0
    results = json.loads(capsys.readouterr().out)
    without, with_noise = results["membership"]
    rates = {
        each["epsilon"]: each["attacks"][1]["true_positives"] for each in (without, with_noise)
    }
    assert without["epsilon"] is None
    assert with_noise["epsilon"] <= 8
    assert rates[None]["0.1"]["rate"] >= 0.9
    assert rates[None]["0.01"]["rate"] >= 0.4
    assert rates[with_noise["epsilon"]]["0.1"]["rate"] <= 0.15
    assert rates[with_noise["epsilon"]]["0.01"]["rate"] <= 0.03
    found = {
        (e["batch"], e["epsilon"] is None): e["reconstructed"] for e in results["reconstruction"]
    }
    assert found[2, True] == found[4, True] == 1
    assert all(share == 0 for (_, clear), share in found.items() if not clear)
