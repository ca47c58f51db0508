"""A malicious coordinator in the closing sum: it learns totals of many hospitals, or nothing."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec
from protocol.messages import (
    Carries,
    Close,
    Closed,
    EvaluateFinal,
    Masked,
    RefusalCode,
    Reply,
    Survivors,
)
from protocol.model_bytes import ModelState
from protocol.secure_sum.held_out_totals import HeldOutForm, HeldOutTotals
from protocol.secure_sum.member import MaskedVector
from protocol.secure_sum.total import Total
from protocol.secure_sum.vector import Mean, SumForm
from tests.attacks.study import (
    CLASSES,
    FEATURES,
    NAMES,
    TRAINING,
    VICTIM,
    Study,
    expect,
    in_process,
    new_study,
    partition,
    policy,
    refused,
)
from tests.attacks.test_evil_coordinator_sums import (
    OTHERS,
    SECURE,
    Sum,
    ask,
    changed,
    forged_sum,
    secure_study,
)

Code = RefusalCode
SEVEN = ("Aspen", "Birch", "Cedar", "Durmast", "Elm", "Fir", "Gorse")
HELD_OUT: dict[str, Any] = {"metrics": ["held-out"]}


@dataclass
class ClosingSum(Sum):
    """The closing sum of an experiment of one leg, with its final model."""

    final: bytes = b""

    @property
    def form(self) -> SumForm[Any]:
        return HeldOutForm(CLASSES, members=len(self.experiment.members))

    def evaluate(self, **changes: Any) -> EvaluateFinal:
        fields: dict[str, Any] = {
            "experiment": self.experiment.id,
            "leg": self.leg,
            "cohort": self.cohort,
            "payload": self.final,
        }
        return EvaluateFinal(**fields | changes)

    def mask(self, *names: str, **changes: Any) -> None:
        for name in names or self.cohort:
            reply = self.experiment.study.ask(name, self.evaluate(**changes))
            payload = expect(Masked, reply).payload
            self.masked[name] = MaskedVector.from_bytes(payload, self.form)

    def figures(self) -> HeldOutTotals | None:
        totals: HeldOutTotals | None = self.form.decode(self.unmasked(), len(self.masked))
        return totals


def close_to(study: Study, **changes: Any) -> ClosingSum:
    """Run an experiment of one leg; return its closing sum, before anybody was asked."""
    experiment = study.experiment(**SECURE | {"rounds": 1, "minimum_cohort": 3} | changes)
    only = Sum(experiment, 1, experiment.members)
    only.mask()
    return ClosingSum(experiment, 2, experiment.members, final=only.total())


def mixed_study(names: tuple[str, ...], *silent: str) -> Study:
    """Return a study in which some allow no figures."""
    study = new_study(names)
    for number, name in enumerate(names):
        chosen = policy(plain_aggregation=False, **{} if name in silent else HELD_OUT)
        in_process(study, name, partition(name, number), chosen)
    return study


@pytest.fixture
def closing() -> ClosingSum:
    return close_to(secure_study(**HELD_OUT))


def counted(closing: ClosingSum, *names: str) -> tuple[list[int], list[int]]:
    """Count examples and correct predictions by class, one example after another."""
    model: ModelState = Total.from_bytes(closing.final).mean(Sum.form.fget(closing)).model  # type: ignore[attr-defined]
    settings = TrainingSettings.parse(TRAINING, source="test")
    network = Network(settings, TaskSpec((FEATURES,), CLASSES), seed=0)
    network.load(model.parameters, model.buffers)
    examples, correct = [0] * CLASSES, [0] * CLASSES
    for name in names or closing.cohort:
        held_out = partition(name, closing.experiment.members.index(name)).held_out
        features, _ = network.tensors(held_out)
        for row, label in zip(features, held_out.labels.tolist(), strict=True):
            examples[label] += 1
            correct[label] += int(network.module(row[None])[0].argmax()) == label
    return examples, correct


# --- honest, so that the refusals below mean something --------------------------------------------


def test_honest_totals_are_those_of_all_hospitals(closing: ClosingSum) -> None:
    closing.mask()
    totals = closing.figures()
    assert totals is not None
    assert (list(totals.examples), list(totals.correct)) == counted(closing)
    final = Close(experiment=closing.experiment.id, payload=closing.final)
    assert expect(Closed, ask(closing, final)).held_out_accuracy is None


def test_who_allows_no_figures_adds_zeros_and_does_not_show() -> None:
    closing = close_to(mixed_study(SEVEN, "Cedar"))
    closing.mask()
    assert len({len(masked.vector.extras) for masked in closing.masked.values()}) == 1
    assert not any((masked.vector.extras == 0).any() for masked in closing.masked.values())

    totals = closing.figures()
    assert totals is not None
    assert totals.hospitals == 6
    others = [name for name in SEVEN if name != "Cedar"]
    assert (list(totals.examples), list(totals.correct)) == counted(closing, *others)


@pytest.mark.parametrize(
    ("names", "silent"),
    [
        (NAMES, ("Cedar",)),  # one may drop out, and one of the others may collude
        (NAMES[:3], ("Cedar",)),
        (SEVEN, ("Cedar", "Elm")),
        (SEVEN, SEVEN),
    ],
    ids=["one of four", "one of three", "two of seven", "all"],
)
def test_totals_of_a_few_hospitals_do_not_leave(
    names: tuple[str, ...], silent: tuple[str, ...]
) -> None:
    """However the coordinator chooses the survivors, and with what c members tell it."""
    closing = close_to(mixed_study(names, *silent))
    closing.mask()
    assert closing.figures() is None


def test_a_descriptor_with_a_lower_minimum_than_the_policys_gets_no_figures() -> None:
    """Its sums are of enough models, but a total of figures could be of fewer hospitals."""
    closing = close_to(secure_study(**HELD_OUT), minimum_cohort=2)
    closing.mask()
    assert closing.figures() is None


def test_a_hospital_with_few_held_out_examples_adds_none() -> None:
    closing = close_to(secure_study(minimum_held_out=9, **HELD_OUT))
    closing.mask()
    assert closing.figures() is None


def test_a_policy_that_becomes_stricter_ends_the_figures_and_not_the_experiment() -> None:
    study = secure_study(metrics=["loss", "held-out"])
    experiment = study.experiment(**SECURE, rounds=2, minimum_cohort=3)
    first = Sum(experiment, 1)
    first.mask()
    assert set(mean_of(first).figures) == {"loss", "held_out_loss", "held_out_accuracy"}

    restart(study, VICTIM, metrics=[])
    second = Sum(experiment, 2)
    second.mask(payload=first.total(), carries=Carries.SUM)
    assert not mean_of(second).figures
    closing = ClosingSum(experiment, 3, final=second.total())
    closing.mask()
    totals = closing.figures()
    assert totals is not None
    assert (list(totals.examples), list(totals.correct)) == counted(closing, *OTHERS)
    final = Close(experiment=experiment.id, payload=closing.final)
    expect(Closed, ask(closing, final))


def mean_of(sum_: Sum) -> Mean:
    return Total.from_bytes(sum_.total()).mean(sum_.form)  # type: ignore[arg-type]


def restart(study: Study, name: str, **changes: Any) -> None:
    """Start a hospital again with its stored state and another policy."""
    memory = study.memories[name]
    own = partition(name, NAMES.index(name))
    in_process(study, name, own, policy(plain_aggregation=False, **changes), memory=memory)


# --- other models, other cohorts, again -----------------------------------------------------------


def test_different_final_models_for_different_hospitals_give_no_sum(closing: ClosingSum) -> None:
    """A member's key makes a second sum with a right tag; the signed digests differ."""
    closing.mask(*OTHERS)
    closing.mask(VICTIM, payload=forged_sum(closing.experiment, closing.final))
    for name in NAMES:
        assert refused(ask(closing, closing.survivors(), name)) == Code.SURVIVORS_REFUSED
    expect(Survivors, ask(closing, closing.survivors(*OTHERS), "Aspen"))


def test_a_made_up_or_early_final_model_is_not_evaluated() -> None:
    experiment = secure_study(**HELD_OUT).experiment(**SECURE, rounds=2)
    first = Sum(experiment, 1)
    first.mask()
    early = ClosingSum(experiment, 3, final=first.total())
    for payload in (early.final, changed(early.final, 0, 1), b""):
        assert refused(ask(early, early.evaluate(payload=payload))) == Code.SUM_REFUSED
    for leg in (1, 2, 4):
        reply = ask(early, early.evaluate(leg=leg))
        assert refused(reply) == Code.AGAINST_SCHEDULE


def test_a_model_that_cannot_be_verified_is_not_evaluated_before_the_last_leg() -> None:
    experiment = secure_study(aggregate="same", **HELD_OUT).experiment(**SECURE, aggregate="same")
    early = ClosingSum(experiment, 1001, final=experiment.first_model.to_bytes())
    assert refused(ask(early, early.evaluate())) == Code.AGAINST_SCHEDULE


def test_with_plain_averaging_there_is_no_closing_sum() -> None:
    study = new_study()
    for number, name in enumerate(NAMES):
        in_process(study, name, partition(name, number), policy(**HELD_OUT))
    experiment = study.experiment(rounds=1)
    closing = ClosingSum(experiment, 2, final=experiment.first_model.to_bytes())
    assert refused(ask(closing, closing.evaluate())) == Code.AGAINST_SCHEDULE


def test_figures_are_given_once(closing: ClosingSum) -> None:
    given: Reply = ask(closing, closing.evaluate())
    assert ask(closing, closing.evaluate()) == given
    for again in (
        closing.evaluate(cohort=("Aspen", VICTIM, "Cedar")),
        closing.evaluate(payload=forged_sum(closing.experiment, closing.final)),
    ):
        assert refused(ask(closing, again)) == Code.CONFLICTING_REQUEST


@pytest.mark.parametrize(
    "cohort",
    [("Aspen", VICTIM), OTHERS, tuple(sorted((*NAMES, "Yew"))), NAMES[::-1], ()],
    ids=["two members", "without this hospital", "with a stranger", "not sorted", "nobody"],
)
def test_no_figures_leave_for_a_wrong_cohort(closing: ClosingSum, cohort: Any) -> None:
    assert refused(ask(closing, closing.evaluate(cohort=cohort))) == Code.COHORT_REFUSED
    closing.mask(VICTIM)  # nothing was spent


def test_survivors_of_the_closing_sum_are_one_set_of_at_least_the_threshold(
    closing: ClosingSum,
) -> None:
    closing.mask()
    assert refused(ask(closing, closing.survivors("Aspen", VICTIM))) == Code.SURVIVORS_REFUSED
    expect(Survivors, ask(closing, closing.survivors()))
    other = closing.survivors("Aspen", VICTIM, "Cedar")
    assert refused(ask(closing, other)) == Code.CONFLICTING_REQUEST


def test_after_the_closing_sum_no_leg_is_served_and_no_other_model_closes(
    closing: ClosingSum,
) -> None:
    last = Sum(closing.experiment, 1)
    closing.mask()
    assert refused(ask(last, last.train(VICTIM))) == Code.OLD_LEG
    assert refused(ask(closing, closing.survivors().model_copy(update={"leg": 1}))) == Code.OLD_LEG
    other = forged_sum(closing.experiment, closing.final)
    close = Close(experiment=closing.experiment.id, payload=other)
    assert refused(ask(closing, close)) == Code.SUM_REFUSED
    expect(Closed, ask(closing, close.model_copy(update={"payload": closing.final})))
    assert refused(ask(closing, closing.evaluate())) == Code.UNKNOWN_EXPERIMENT


def test_no_masked_totals_contain_the_figures(closing: ClosingSum) -> None:
    closing.mask()
    for masked in closing.masked.values():
        assert (masked.vector.extras > np.uint64(2**32)).all()
