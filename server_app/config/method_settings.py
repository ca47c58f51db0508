"""The settings of the method: its schedule, its hand-overs and its aggregation."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import model_validator

from operation.config import SettingsGroup, setting
from protocol.randomness import SEED_BYTES
from protocol.schedule import Schedule, schedule_seed
from protocol.study.roster import DEFAULT_MINIMUM

Aggregator = Literal[
    "fedavg",
    "fedavgm",
    "fedprox",
    "fedadam",
    "fedyogi",
    "fedadagrad",
    "median",
    "trimmed-mean",
    "krum",
    "multi-krum",
    "bulyan",
    "qfedavg",
    "radon",
    "geometric-median",
]
# Flower computes these from the models alone: weights would silently do nothing.
_IGNORE_WEIGHTS = ("median", "trimmed-mean", "krum", "multi-krum", "bulyan", "qfedavg", "radon")


# They need only the mean of the models, which is what secure averaging gives.
SECURE = ("fedavg", "fedprox", "fedavgm", "fedadam", "fedyogi", "fedadagrad")


class MethodSettings(SettingsGroup):
    """The schedule, the hand-overs and the aggregation."""

    renamed: ClassVar[Mapping[str, str]] = {
        "fairness": "qfedavg-q",
        "malicious": "krum-malicious",
        "sealing": "sealed",
        "trim": "trim-fraction",
    }

    rounds: int = setting(
        100,
        "local updates of every model, the paper's T",
        ge=1,
        advice="With few rounds averaging every round may be better: see "
        "[when-it-helps.md](when-it-helps.md#rounds).",
    )
    daisy_period: int = setting(
        1,
        "rounds between hand-overs, the paper's d; 0: never",
        ge=0,
        advice="0 is the aggregator alone (`--daisy-period never`). Larger values save messages; "
        "20 or more local rounds per message did badly with a long `aggregation-period`.",
    )
    aggregation_period: int = setting(
        5,
        "rounds between aggregations, the paper's b; 0: only at the end",
        ge=0,
        advice="0 is plain daisy-chaining. On digits, 2 to 100 made no difference; with "
        "convolutions shorter periods had the higher mean: see "
        "[when-it-helps.md](when-it-helps.md#the-aggregation-period).",
    )
    schedule: Literal["periodic", "random"] = setting(
        "periodic",
        "when aggregations come",
        advice="`periodic`: every `aggregation-period` rounds. `random`: models travel every "
        "`daisy-period` rounds, and each communication is an aggregation with probability d/b, so "
        "no hospital knows in advance which. Needs 1 ≤ d ≤ b.",
    )
    permutation: Literal["uniform", "derangement", "coverage"] = setting(
        "uniform",
        "how recipients of a hand-over are drawn",
        advice="`derangement`: no model stays where it is. `coverage`: no model visits a hospital "
        "twice before it has visited all that are present. Accuracy did not change measurably.",
    )
    fraction: float = setting(
        1.0,
        "fraction of the hospitals that a leg draws, the paper's C",
        gt=0,
        le=1,
        advice="A leg draws max(2, C·m rounded) hospitals, the last leg all of them. Lower it to "
        "save messages in large studies.",
    )
    init: Literal["shared", "own"] = setting(
        "shared",
        "first model of each hospital",
        advice="`own`: each makes its own, as in the paper; averaging independent models shrinks "
        "them, and training may never recover.",
    )
    weighting: Literal["equal", "examples", "chain-examples"] = setting(
        "equal",
        "weight of a model in the aggregate",
        advice="1, the examples of its hospital, or the examples of all hospitals its chain has "
        "visited since the last aggregation. Refused with aggregators that ignore weights: "
        f"{', '.join(f'`{name}`' for name in _IGNORE_WEIGHTS)}.",
    )
    sealed: bool = setting(
        True,
        "seal models for their recipients in hand-overs",
        advice="`false` only in simulations, where it saves time.",
    )
    averaging: Literal["auto", "secure", "plain"] = setting(
        "auto",
        "what the coordinator learns in an aggregation; auto: secure in a study",
        advice="`secure`: only the sum of the models; needs at least three hospitals, `fraction = "
        "1`, and more than two thirds of them in every aggregation. For the aggregators "
        f"{', '.join(f'`{name}`' for name in SECURE)}. `plain`: every model, which hospitals must "
        "allow (`plain-aggregation`). `auto` is `plain` in a simulation, where it saves time. See "
        "[secure-averaging.md](secure-averaging.md).",
    )
    minimum_cohort: int = setting(
        DEFAULT_MINIMUM,
        "fewest models in a secure sum, if two thirds of the hospitals are fewer",
        ge=2,
        lt=2**16,
        advice="An aggregation needs more than two thirds of the hospitals, and at least so many. "
        "A hospital refuses an experiment whose sums could be of fewer models than the "
        "`minimum-cohort` of its policy. No effect with `averaging = plain`.",
    )
    aggregator: Aggregator = setting("fedavg", "what aggregates the models", values="see below")
    proximal_mu: float = setting(
        0.1,
        "strength of the pull towards the last aggregate (fedprox)",
        ge=0,
        advice="FedProx's μ, in local training. No effect with other aggregators.",
    )
    server_learning_rate: float = setting(
        0.0,
        "step size at the coordinator (fedavgm and adaptive); 0: its default",
        ge=0,
        advice="The default is 1 for `fedavgm` and 0.1 for `fedadam`, `fedyogi` and `fedadagrad`.",
    )
    server_momentum: float = setting(0.9, "momentum at the coordinator (fedavgm)", ge=0, lt=1)
    server_beta2: float = setting(
        0.99,
        "decay of the second moment at the coordinator, β₂ (fedadam, fedyogi)",
        ge=0,
        lt=1,
        advice="0.99 is Flower's default, the paper has 0.999.",
    )
    krum_malicious: int = setting(
        0,
        "malicious hospitals to withstand (krum, multi-krum, bulyan)",
        ge=0,
        advice="To withstand f, Krum and Multi-Krum need 2f + 3 hospitals in a leg, Bulyan 4f + 3.",
    )
    trim_fraction: float = setting(
        0.2, "fraction of the values cut off at each end (trimmed-mean)", ge=0, lt=0.5
    )
    qfedavg_q: float = setting(
        0.1, "exponent of the losses (qfedavg); 0 treats all losses alike", ge=0
    )
    radon_iterations: int = setting(
        1,
        "iterations of the Radon point, the paper's h (radon)",
        ge=1,
        le=4,
        advice="A model of p parameters needs (p + 2)^h hospitals.",
    )

    target_epsilon: float = setting(
        0.0,
        "ε that the experiment may cost a patient; 0: given by noise-multiplier",
        ge=0,
        advice="Needs a `privacy-unit`. The noise is computed before the experiment begins. See "
        "[privacy.md](privacy.md).",
    )
    target_delta: float = setting(
        1e-5,
        "δ of target-epsilon",
        gt=0,
        lt=1,
        advice="Hospitals account with the `delta` of their own policy.",
    )

    def to_schedule(self, route_seed: bytes) -> Schedule:
        """Return the legs of an experiment; a random schedule follows from the route seed."""
        return Schedule(
            self.rounds,
            self.daisy_period or None,
            self.aggregation_period or None,
            secret=schedule_seed(route_seed) if self.schedule == "random" else None,
        )

    @model_validator(mode="after")
    def _schedule_is_possible(self) -> "MethodSettings":
        try:
            self.to_schedule(bytes(SEED_BYTES))
        except ValueError as error:
            # In the words of the settings, where 0 stands for a period that never comes.
            message = str(error).replace("_", "-").replace("None", "0")
            raise ValueError(f"schedule = {self.schedule}: {message}") from error
        return self

    @model_validator(mode="after")
    def _can_be_secure(self) -> "MethodSettings":
        if self.averaging == "secure":
            self.check_secure()
        return self

    def check_secure(self) -> None:
        """Refuse settings with which models can't be averaged securely."""
        for is_possible, problem, choice in (
            (
                self.aggregator in SECURE,
                f"aggregator = {self.aggregator} needs the single models",
                f"choose one of {', '.join(SECURE)}",
            ),
            (
                self.fraction == 1,
                f"fraction = {self.fraction} changes who is in a sum",
                "set fraction = 1",
            ),
            (
                self.weighting != "chain-examples",
                "weighting = chain-examples has the coordinator choose weights, by which it could "
                "isolate a model",
                "choose equal or examples",
            ),
            (self.sealed, "sealed = false has no keys for it", "set sealed = true"),
        ):
            if not is_possible:
                raise ValueError(
                    f"averaging = secure is not possible: {problem}. {choice.capitalize()}, or "
                    "averaging = plain, with which the coordinator reads every model it aggregates "
                    "(hospitals must allow plain-aggregation)"
                )

    @model_validator(mode="after")
    def _aggregator_fits(self) -> "MethodSettings":
        if self.weighting != "equal" and self.aggregator in _IGNORE_WEIGHTS:
            raise ValueError(
                f"weighting = {self.weighting} has no effect with aggregator = {self.aggregator}: "
                "set weighting = equal"
            )
        if self.aggregator == "qfedavg" and (self.daisy_period or self.fraction < 1):
            raise ValueError(
                "aggregator = qfedavg weighs each hospital by its own loss, so it needs "
                f"daisy-period = 0 and fraction = 1, got {self.daisy_period} and {self.fraction}"
            )
        return self
