"""The privacy ledger: every release counts once, whatever is killed, restored or reset."""

import errno
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from client_app.hospital.hospital import Hospital
from client_app.hospital.local_training import LocalTraining
from client_app.state.privacy.ledger import PrivacyLedger
from client_app.state.privacy.ledger_file import LedgerError, LedgerFile
from client_app.state.reset import reset_experiments
from protocol.messages import Refusal, RefusalCode, Trained
from protocol.model_bytes import ModelState
from tests.client_app.small_hospital import (
    EVERY_LEG_AGGREGATES,
    IDENTITIES,
    NAME,
    TRAINING,
    descriptor,
    model,
    set_up,
)
from tests.privacy.ledger_site import NOISE, Site, exact_epsilon


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the agent catches it."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.store.close()


def test_epsilon_is_exact_over_several_experiments(site: Site) -> None:
    """Legs have two rounds, each of which is a release."""
    for experiment, multiplier, legs in (("e1", 8.0, 3), ("e2", 5.0, 1), ("e3", 20.0, 2)):
        site.agree(experiment, **{"noise-multiplier": multiplier})
        for number in range(1, legs + 1):
            assert isinstance(site.train(number, experiment), Trained)

    exact = exact_epsilon(math.sqrt(6 / 8**2 + 2 / 5**2 + 4 / 20**2))
    assert exact <= site.epsilon() <= exact * 1.001
    assert site.totals().spent == {
        "e1": ((8.0, 1.0, 6),),
        "e2": ((5.0, 1.0, 2),),
        "e3": ((20.0, 1.0, 4),),
    }


def test_legs_without_noise_are_counted_too(site: Site) -> None:
    site.agree(**{"privacy-unit": "none", "noise-multiplier": 0.0})
    site.train()

    assert site.totals().spent == {"e1": ((0.0, 1.0, 1),)}


def _torn(self: LedgerFile, line: Any) -> None:
    with self._path.open("ab") as file:
        file.write(line.to_bytes()[:40])
    raise Killed


def _after_the_line(self: LedgerFile, line: Any) -> None:
    _append(self, line)
    raise Killed


def _killed(*arguments: Any, **named: Any) -> None:
    raise Killed


_append = LedgerFile.append
MOMENTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "before the line": (LedgerFile, "append", _killed),
    "within the line": (LedgerFile, "append", _torn),
    "after the line": (LedgerFile, "append", _after_the_line),
    "while it trains": (
        LocalTraining,
        "train_patients",
        _killed,
    ),
    "before the answer is stored": (Hospital, "_complete", _killed),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("times", [1, 3])
def test_a_leg_that_is_repeated_after_a_kill_counts_once(
    site: Site, monkeypatch: pytest.MonkeyPatch, moment: str, times: int
) -> None:
    site.agree()
    site.train(1)
    owner, name, conduct = MOMENTS[moment]
    for _ in range(times):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, conduct)
            with suppress(Killed):
                site.train(2)
        site.restart()

    assert isinstance(site.train(2), Trained)
    assert site.totals().spent == {"e1": ((8.0, 1.0, 4),)}
    site.restart()
    assert isinstance(site.train(2), Trained)  # the answer already given costs nothing
    assert len(site.file.lines) == site.totals().lines == 2


def test_a_request_that_fails_counts_even_if_another_follows(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.agree()
    with monkeypatch.context() as patch:
        patch.setattr(Hospital, "_complete", _killed)
        with suppress(Killed):
            site.train(1)
    site.restart()

    assert isinstance(site.train(2), Trained)
    assert site.totals().spent == {"e1": ((8.0, 1.0, 4),)}


def restored(site: Site, what: str, legs: int) -> None:
    """Put one of the two files back to what it was before so many legs."""
    path = site.folder / what
    site.agree()
    site.train(1)
    site.store.close()
    shutil.copy(path, site.folder / "backup")
    site.start()
    for number in range(2, 2 + legs):
        site.train(number)
    site.store.close()
    shutil.copy(site.folder / "backup", path)
    site.start()


@pytest.mark.parametrize(("what", "legs"), [("memory.sqlite", 2), ("ledger", 1), ("ledger", 3)])
def test_a_restored_ledger_stops_the_agent(site: Site, what: str, legs: int) -> None:
    restored(site, what, legs)

    refusal = site.train(5)
    assert isinstance(refusal, Refusal)
    assert refusal.code is RefusalCode.ROLLED_BACK


@pytest.mark.parametrize("what", ["memory.sqlite", "ledger"])
def test_after_a_reset_the_agent_serves_and_nothing_is_forgotten(site: Site, what: str) -> None:
    restored(site, what, 2)
    site.train(5)
    reset_experiments(site.store, IDENTITIES[NAME], site.file)
    site.restart()

    site.agree("e2")
    assert isinstance(site.train(1, "e2"), Trained)
    assert site.totals().spent == {"e1": ((8.0, 1.0, 6),), "e2": ((8.0, 1.0, 2),)}


def test_a_changed_line_is_noticed(site: Site) -> None:
    site.agree()
    site.train(1)
    site.train(2)
    path = site.folder / "ledger"
    path.write_bytes(path.read_bytes().replace(b"8.0", b"9.0", 1))

    with pytest.raises(LedgerError, match="line 2 does not follow"):
        LedgerFile(path)


def test_past_the_budget_models_go_on_as_they_came(tmp_path: Path) -> None:
    site = Site(tmp_path, **{"max-epsilon": 1.2})
    agreed = descriptor(
        rounds=4, training=TRAINING | NOISE | {"noise-multiplier": 12.0}, **EVERY_LEG_AGGREGATES
    )
    site.ask(set_up(agreed))
    first = site.train(1)
    earlier = site.totals()
    # Another experiment spends the rest.
    PrivacyLedger(site.store, site.file).charge(b"x" * 32, "e0", 1, [(3.0, 1.0, 1)])

    last = site.train(2)

    assert not first.untrained
    assert last.untrained
    came = model().parameters
    trained, sent = (ModelState.from_bytes(reply.payload).parameters for reply in (first, last))
    assert all((sent[name] == came[name]).all() for name in came)
    assert any((trained[name] != came[name]).any() for name in came)
    assert site.totals().spent["e1"] == earlier.spent["e1"]
    site.store.close()


@pytest.mark.parametrize(
    ("training", "is_refused"),
    [
        ({"privacy-unit": "none", "noise-multiplier": 0.0}, True),
        ({"noise-multiplier": 0.0}, True),
        ({"noise-multiplier": 1e-300}, True),
        ({"noise-multiplier": 2.0}, True),
        ({"noise-multiplier": 100.0}, False),
    ],
    ids=["no unit", "no noise", "next to none", "too little", "enough"],
)
def test_a_study_may_ask_for_more_privacy_than_the_policy_and_never_for_less(
    tmp_path: Path, training: dict[str, Any], is_refused: bool
) -> None:
    site = Site(tmp_path, **{"max-epsilon": 8.0})
    reply = site.ask(set_up(descriptor(training=TRAINING | NOISE | training)))

    assert isinstance(reply, Refusal) == is_refused
    if is_refused:
        assert reply.code is RefusalCode.AGAINST_POLICY
    site.store.close()


def test_a_leg_whose_line_does_not_fit_on_the_disk_is_refused_as_such(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.agree()
    site.train(1)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refusal = site.train(2)
    assert isinstance(refusal, Refusal)
    assert refusal.code is RefusalCode.DISK_FULL
    assert isinstance(site.train(2), Trained)
    site.restart()
    assert site.totals().spent == {"e1": ((8.0, 1.0, 4),)}


def test_an_epsilon_without_limit_is_null_in_the_audit_log(site: Site) -> None:
    site.agree(**{"noise-multiplier": 1e-3})
    assert isinstance(site.train(1), Trained)

    assert json.loads(site.store.audit_lines()[-1])["reply"]["epsilon"] is None


def test_the_audit_log_has_epsilon(site: Site) -> None:
    site.agree()
    site.train(1)

    line = site.store.audit_lines()[-1].decode()
    assert f'"epsilon":{round(site.epsilon(), 6)}' in line
