"""A run that is killed at any point and resumed arrives at the same model, to the last bit."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedYogi, Strategy

from protocol.message_bytes import decode_signed_request
from protocol.messages import Close, Refusal, RefusalCode, Request
from protocol.model_bytes import ModelState
from strategies.session.quorum import ExperimentFailed
from strategies.session.storage.journal import DiskJournal, JournalError
from tests.strategies.misconduct import NAMES, Conduct, answers
from tests.strategies.unruly_grid import UnrulyGrid, prepare, tiny

EXPERIMENT = "study-1"


class Killed(BaseException):
    """The coordinator's process ends here; nothing is tidied up."""


class KilledGrid(UnrulyGrid):
    """The coordinator is killed at its n-th call to Flower, before or after it has had effect."""

    def __init__(self, settings: Any, *, at: int | None = None, after: bool = False) -> None:
        super().__init__(settings)
        self.calls, self._at, self._after = 0, at, after

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._guarded(lambda: super(KilledGrid, self).push_messages(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._guarded(lambda: super(KilledGrid, self).pull_messages(message_ids))

    def _guarded(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        killed = self.calls == self._at
        if killed and not self._after:
            raise Killed
        result = call()
        if killed:
            raise Killed
        return result


def arrays(record: ArrayRecord) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in record.items()}


def run(grid: UnrulyGrid, strategy: Strategy, journal: DiskJournal, **changes: Any) -> Any:
    more = {"experiment": EXPERIMENT, "journal": journal} | changes
    return prepare(grid, strategy, **more)[1]().result


def undisturbed(
    folder: Path,
    make: Callable[[], Strategy],
    study: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> tuple[Any, int]:
    grid = KilledGrid(tiny(**settings))
    result = run(grid, make(), DiskJournal(folder / "undisturbed"), **study)
    return arrays(result.arrays), grid.calls


def assert_resumes(
    folder: Path,
    make: Callable[[], Strategy],
    expected: Any,
    at: int,
    after: bool,
    study: Mapping[str, Any] = MappingProxyType({}),
    **settings: Any,
) -> None:
    grid = KilledGrid(tiny(**settings), at=at, after=after)
    with pytest.raises(Killed):
        run(grid, make(), DiskJournal(folder), **study)
    resumed = arrays(run(grid, make(), DiskJournal(folder), **study).arrays)
    assert set(resumed) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(resumed[name], array, err_msg=f"killed at call {at}")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_anywhere_a_run_goes_on_to_the_same_model(tmp_path: Path, after: bool) -> None:
    settings = {"sealed": True, "rounds": 4, "aggregation_period": 2, "hospitals": 3}
    expected, calls = undisturbed(tmp_path, FedAdam, **settings)
    for at in range(4, calls + 1):  # after the greeting, which is no part of the experiment
        assert_resumes(tmp_path / f"{at}", FedAdam, expected, at, after, **settings)


@pytest.mark.parametrize(
    "make", [FedAvg, FedAvgM, FedAdam, FedYogi], ids=lambda make: make.__name__
)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"init": "own"},
        {"optimizer": "adam", "optimizer_state": "kept", "learning_rate": 0.01},
        {"fraction": 0.5, "permutation": "coverage", "weighting": "chain-examples"},
    ],
    ids=["plain", "own init", "kept state", "subsampled"],
)
def test_the_strategys_state_is_taken_up(
    tmp_path: Path, make: Callable[[], Strategy], settings: dict[str, Any]
) -> None:
    expected, calls = undisturbed(tmp_path, make, **settings)
    assert_resumes(tmp_path / "killed", make, expected, at=2 * calls // 3, after=True, **settings)


def test_a_run_killed_twice_goes_on_twice(tmp_path: Path) -> None:
    expected, calls = undisturbed(tmp_path, FedAvgM)
    journal = tmp_path / "killed"
    grid = KilledGrid(tiny(), at=calls // 3)
    with pytest.raises(Killed):
        run(grid, FedAvgM(), DiskJournal(journal))
    grid._at = 2 * calls // 3
    with pytest.raises(Killed):
        run(grid, FedAvgM(), DiskJournal(journal))
    for name, array in arrays(run(grid, FedAvgM(), DiskJournal(journal)).arrays).items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize("averaging", ["plain", "secure"])
def test_a_final_model_that_does_not_fit_at_a_hospital_is_delivered_again(
    tmp_path: Path, averaging: str
) -> None:
    once = [answers(Refusal(code=RefusalCode.DISK_FULL))]

    def rule(position: int, request: Request) -> Conduct | None:
        return once.pop() if once and position == 2 and isinstance(request, Close) else None

    settings = tiny(sealed=True, rounds=4, aggregation_period=2)
    grid, study = UnrulyGrid(settings, rule), {"averaging": averaging}
    with pytest.raises(ExperimentFailed, match=rf"fit on the disk at {NAMES[2]}: .*resume"):
        run(grid, FedAvg(), DiskJournal(tmp_path), **study)
    resumed = arrays(run(grid, FedAvg(), DiskJournal(tmp_path), **study).arrays)

    closings = [data for position, data in grid.asked if position == 2]
    closings = [data for data in closings if isinstance(decode_signed_request(data), Close)]
    assert len(closings) == 2
    assert len(set(closings)) == 1
    if averaging == "plain":
        final = ModelState.from_bytes(decode_signed_request(closings[0]).payload)
        for name, array in final.parameters.items():
            np.testing.assert_array_equal(resumed[name], array)


def test_the_plan_is_on_disk_before_the_first_request_of_its_leg(tmp_path: Path) -> None:
    seen: dict[int, int | None] = {}

    class Watched(UnrulyGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            state = DiskJournal(tmp_path).load() or {}
            if self.leg and self.leg not in seen and self.leg <= 12:
                seen[self.leg] = None if state.get("planned_cohort") is None else state["legs_done"]
            return super().push_messages(messages)

    run(Watched(tiny()), FedAvg(), DiskJournal(tmp_path))
    assert seen == {leg: leg - 1 for leg in range(1, 13)}


def test_models_no_longer_needed_leave_the_spool(tmp_path: Path) -> None:
    largest = 0

    class Watched(UnrulyGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            nonlocal largest
            largest = max(largest, len(list((tmp_path / "models").iterdir())))
            return super().push_messages(messages)

    run(Watched(tiny()), FedAvg(), DiskJournal(tmp_path))
    # An envelope for each of six, or an aggregate; the current model and the strategy's arrays.
    assert largest <= 6 + 1 + 2


def test_other_settings_do_not_go_on_with_an_experiment(tmp_path: Path) -> None:
    grid = KilledGrid(tiny(), at=60)
    with pytest.raises(Killed):
        run(grid, FedAvg(), DiskJournal(tmp_path))
    with pytest.raises(JournalError, match="began with other settings"):
        run(grid, FedAvg(), DiskJournal(tmp_path), daisy_period=2)


def test_a_journal_older_than_the_hospitals_memory_can_not_be_resumed(tmp_path: Path) -> None:
    backup = tmp_path / "backup"

    class BackedUp(KilledGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            if self.leg == 3 and not backup.exists():
                shutil.copytree(tmp_path / "journal", backup)
            return super().push_messages(messages)

    grid = BackedUp(tiny(), at=120)
    with pytest.raises(Killed):
        run(grid, FedAvg(), DiskJournal(tmp_path / "journal"))
    assert grid.leg > 4
    with pytest.raises(ExperimentFailed, match=r"old-leg.* can start from its last aggregate"):
        run(grid, FedAvg(), DiskJournal(backup), quorum_wait=3600.0)


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"format": 1, "descr')
    with pytest.raises(JournalError, match="is damaged"):
        DiskJournal(tmp_path).load()
    (tmp_path / "state.json").write_text('{"format": 2}')
    with pytest.raises(JournalError, match="another version"):
        DiskJournal(tmp_path).load()


def test_a_strategy_whose_state_can_not_be_saved_is_refused_before_training(tmp_path: Path) -> None:
    class Odd(FedAvg):
        def __init__(self) -> None:
            super().__init__()
            self.rng = np.random.default_rng(0)

    grid = UnrulyGrid(tiny())
    with pytest.raises(ValueError, match=r"Odd\.rng holds a Generator, which can't be saved"):
        run(grid, Odd(), DiskJournal(tmp_path))
    assert not grid.asked
