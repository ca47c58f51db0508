"""FedDC where too few answer: it ends, and says who is missing."""

import pytest
from flwr.serverapp.strategy import Krum

from protocol.messages import Close, Request, TrainLeg
from protocol.schedule import Ending
from strategies.session.quorum import QuorumNotReached
from tests.strategies.misconduct import Conduct, keeps_silent, raises
from tests.strategies.unruly_grid import NAMES, UnrulyGrid, prepare, run, tiny


def test_fewer_answers_than_the_quorum_end_the_run_and_name_the_missing() -> None:
    def rule(position: int, request: Request) -> Conduct | None:
        late = isinstance(request, TrainLeg) and request.leg >= 2
        return raises if late and position in (0, 1, 5) else None

    outcome, start = prepare(UnrulyGrid(tiny(), rule), quorum=0.6)
    with pytest.raises(QuorumNotReached) as caught:
        start()
    message = str(caught.value)
    assert "leg 2: 3 of 6 hospitals answered, 4 are needed" in message
    for position in (0, 1, 5):
        assert f"{NAMES[position]} (no answer from its agent: Flower error 2)" in message
    assert not any(f"{NAMES[p]} (" in message for p in (2, 3, 4))
    assert outcome.result is None
    assert not any(isinstance(r, Close) for _, _, r in outcome.grid.conversation())


def test_the_quorum_is_met_by_exactly_its_share() -> None:
    failing = {0, 1, 5}  # once each

    def rule(position: int, request: Request) -> Conduct | None:
        if isinstance(request, TrainLeg) and position in failing:
            failing.remove(position)
            return raises
        return None

    outcome, start = prepare(UnrulyGrid(tiny(rounds=4), rule), quorum=0.5)
    assert len(start().diary.reports[1].missing) == 3
    # Who is only without a model sits out: it is not missing, and has not answered either.
    asked = {NAMES[position] for position in outcome.grid.requests(2)}
    assert 3 <= len(asked) < 6
    assert set(outcome.diary.reports[2].answered) == asked
    assert not outcome.diary.reports[2].missing


def test_before_anybody_trains_the_connected_must_be_enough() -> None:
    outcome, start = prepare(UnrulyGrid(tiny(), away={3: {0, 1, 2, 3}}))
    with pytest.raises(QuorumNotReached, match=r"leg 3: 2 of 6 .*\(not connected\)"):
        start()
    assert outcome.grid.requests(3) == {}


@pytest.mark.timeout(120)
def test_a_single_hospital_left_of_two_ends_the_run_instead_of_waiting_for_ever() -> None:
    # FedAvg's own sampling would wait until two are there.
    _, start = prepare(UnrulyGrid(tiny(hospitals=2), away={2: {0}}))
    with pytest.raises(QuorumNotReached, match="leg 2: 1 of 2 hospitals answered, 2 are needed"):
        start()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("present", [0, 1])
def test_with_subsampling_too_the_quorum_is_of_those_who_were_to_be_drawn(present: int) -> None:
    gone = {3: set(range(6 - present))}
    _, start = prepare(UnrulyGrid(tiny(fraction=0.7), away=gone))
    with pytest.raises(QuorumNotReached, match=f"leg 3: {present} of 4 hospitals answered"):
        start()


def test_an_aggregation_counts_models_not_hospitals() -> None:
    # All but hospital 0 are silent in legs 1 to 3, and back for the aggregation: what they trained
    # is parked, and they have at most the one model that is on its way between them.
    def rule(position: int, request: Request) -> Conduct | None:
        return keeps_silent if isinstance(request, TrainLeg) and position != 0 else None

    outcome, start = prepare(UnrulyGrid(tiny(), rule), quorum=0.1)
    with pytest.raises(QuorumNotReached, match=r"leg 4: 1 of 6 hospitals answered, 2 are needed"):
        start()
    assert len(outcome.diary.reports[3].missing) == 5
    assert outcome.grid.leg == 4


def test_krum_never_aggregates_fewer_models_than_it_can_withstand() -> None:
    outcome, start = prepare(
        UnrulyGrid(tiny(), away={4: {0, 1}}), Krum(num_malicious_nodes=1), quorum=0.5
    )
    with pytest.raises(QuorumNotReached, match="leg 4: 4 of 6 hospitals answered, 5 are needed"):
        start()
    assert outcome.grid.requests(4) == {}  # nobody has trained for nothing
    assert outcome.diary.reports[3].leg.ending is Ending.HAND_OVER


def test_hand_overs_go_on_where_krum_could_not_aggregate() -> None:
    outcome = run(UnrulyGrid(tiny(), away={2: {0, 1}}), Krum(num_malicious_nodes=1))
    assert len(outcome.grid.requests(2)) == 4
    assert list(outcome.diary.aggregates) == [4, 8, 12]
