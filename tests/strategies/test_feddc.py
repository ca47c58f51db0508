"""FedDC on a grid whose hospitals may be late, absent, broken or hostile."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp.strategy import FedAvg, Krum, Result, Strategy

from client_app.courier import app as courier
from lab.inprocess import InProcessGrid
from learning.local_data import load_dataset
from learning.trainer import Task
from protocol.messages import (
    Announcement,
    Carries,
    Close,
    Closed,
    ExchangeShares,
    Hello,
    Introduction,
    OpenShares,
    Ready,
    Refusal,
    RefusalCode,
    Reply,
    Request,
    SetUp,
    Shares,
    Trained,
    TrainLeg,
    decode_reply,
    decode_signed_request,
    encode,
)
from protocol.model_bytes import ModelState
from protocol.randomness import derive_seed, shared_init_seed
from protocol.records import from_records, to_records
from protocol.simulated_study import simulated_study
from server_app.evaluation import Evaluator
from server_app.settings import Settings
from strategies import bell as bell_module
from strategies import exchange as exchange_module
from strategies import members as members_module
from strategies.exchange import Answer
from strategies.feddc import FedDC
from strategies.members import ExperimentFailed, QuorumNotReached
from strategies.report import LegReport, Observer
from strategies.schedule import Ending, Leg
from strategies.spool import StoredModel
from tests.conftest import TINY

NAMES = [f"hospital-{number:02}" for number in range(1, 7)]
_STUDY = simulated_study(3, NAMES)
STUDY: dict[str, Any] = {"roster": _STUDY.roster, "coordinator": _STUDY.coordinator}
ROUTE_SEED = bytes(range(100, 132))

# What a hospital does instead of answering: another reply, an error, or nothing (None).
Conduct = Callable[[Message, Message], Message | None]
Rule = Callable[[int, Request], Conduct | None]


class UnrulyGrid(InProcessGrid):
    """Hospitals answer as they should, but for those a rule finds another conduct for.

    Everything that passes is kept as bytes; a deaf hospital does not even get its request. `away`
    holds the hospitals that are not connected in a leg; a message to them can't be delivered.
    """

    def __init__(
        self,
        settings: Settings,
        rule: Rule = lambda position, request: None,
        away: Mapping[int, set[int]] | None = None,
    ) -> None:
        super().__init__(self._answer, settings.algorithm.hospitals, settings.as_config())  # type: ignore[arg-type]
        self.settings = settings
        self.leg = 0  # none yet
        self.asked: list[tuple[int, bytes]] = []
        self.answered: list[tuple[int, bytes]] = []
        self._leg_of_request: list[int] = []
        self._rule = rule
        self._away = away or {}

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in super().get_node_ids() if not self._is_away(node)]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        (message,) = messages
        if self._is_away(message.metadata.dst_node_id):
            return [""]
        return super().push_messages([message])

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [reply for reply in super().pull_messages(message_ids) if reply is not None]

    def requests(self, leg: int) -> dict[int, TrainLeg]:
        """Return who was asked what while a leg ran."""
        return {p: r for at, p, r in self.conversation() if at == leg and isinstance(r, TrainLeg)}

    def conversation(self) -> list[tuple[int, int, Request]]:
        legs = zip(self._leg_of_request, self.asked, strict=True)
        return [(leg, position, decode_signed_request(data)) for leg, (position, data) in legs]

    def replies(self, leg: int) -> dict[int, Trained]:
        """Return the models trained for the requests a leg made, whatever became of them."""
        found = {}
        for position, data in self.answered:
            reply = decode_reply(data)
            if isinstance(reply, Trained) and reply.leg == leg:
                found[position] = reply
        return found

    def _is_away(self, node: int) -> bool:
        return node - 100 in self._away.get(self.leg, set())

    def _answer(self, message: Message, context: Context) -> Message | None:
        position = message.metadata.dst_node_id - 100
        data = from_records(message.content)
        self.asked.append((position, data))
        self._leg_of_request.append(self.leg)
        conduct = self._rule(position, decode_signed_request(data))
        if conduct is is_deaf:
            return None
        reply = courier(message, context)
        self.answered.append((position, from_records(reply.content)))
        return conduct(message, reply) if conduct else reply


@dataclass
class Diary(Observer):
    """Writes down what FedDC tells, and tells the grid which leg comes next."""

    grid: UnrulyGrid
    hospitals: dict[str, int | None] = field(default_factory=dict)
    reports: dict[int, LegReport] = field(default_factory=dict)
    aggregates: dict[int, ModelState] = field(default_factory=dict)
    models: dict[int, dict[str, ModelState]] = field(default_factory=dict)
    ends: dict[str, Answer] = field(default_factory=dict)

    def started(self, experiment: str, hospitals: Mapping[str, int | None], legs: int) -> None:
        self.hospitals = dict(hospitals)
        self.grid.leg = 1

    def received(self, leg: Leg, hospital: str, model: StoredModel) -> None:
        self.models.setdefault(leg.number, {})[hospital] = model.load()

    def aggregated(self, leg: Leg, model: ModelState) -> None:
        self.aggregates[leg.number] = model

    def leg_ended(self, report: LegReport) -> None:
        self.reports[report.leg.number] = report
        self.grid.leg = report.leg.number + 1

    def closed(self, answers: Mapping[str, Answer]) -> None:
        self.ends = dict(answers)


@dataclass
class Outcome:
    grid: UnrulyGrid
    diary: Diary
    strategy: FedDC
    first: ModelState
    result: Result | None = None

    def mean(self, leg: int) -> dict[str, np.ndarray]:
        """Average what came in for aggregation, without any strategy's help."""
        models = [model.parameters for model in self.diary.models[leg].values()]
        return {name: sum(m[name] for m in models) / len(models) for name in models[0]}  # type: ignore[misc]


def tiny(**changes: Any) -> Settings:
    changed = {key.replace("_", "-"): value for key, value in changes.items()}
    # Unsealed unless said otherwise: envelopes take time, and their content can't be looked at.
    return Settings.from_run_config(TINY | {"sealing": False} | changed, source="test")


def prepare(
    grid: UnrulyGrid, strategy: Strategy | None = None, **changes: Any
) -> tuple[Outcome, Callable[..., Outcome]]:
    """Build FedDC over the grid's settings; return its outcome to be, and a call to start it."""
    settings = grid.settings
    a = settings.algorithm
    dataset = load_dataset(settings.local, a.seed)
    training_seed = derive_seed(a.seed, "training")
    task = Task(dataset.shape, len(dataset.classes))
    seed = shared_init_seed(training_seed)
    first = Evaluator(settings.training, task, None, seed=seed).first_model
    diary = Diary(grid)
    study = simulated_study(a.seed, NAMES[: a.hospitals])
    arguments: dict[str, Any] = {
        "roster": study.roster,
        "coordinator": study.coordinator,
        "daisy_period": a.daisy_period or None,
        "aggregation_period": a.aggregation_period or None,
        "fraction": a.fraction,
        "weighting": a.weighting,
        "init": a.init,
        "sealed": a.sealing,
        "permutation": a.permutation,
        "route_seed": ROUTE_SEED,
        "training_seed": training_seed,
        "buffers": first.buffers,
        "observer": diary,
    }
    feddc = FedDC(strategy or FedAvg(), **arguments | changes)
    outcome = Outcome(grid, diary, feddc, first)
    config = ConfigRecord(dict(settings.training.as_config()))
    config["shape"], config["classes"] = list(dataset.shape), len(dataset.classes)

    def start(**more: Any) -> Outcome:
        arrays = {name: Array(array) for name, array in (first.parameters | first.buffers).items()}
        given = {"train_config": config, "timeout": 30, "num_rounds": a.rounds} | more
        outcome.result = feddc.start(grid, ArrayRecord(arrays), **given)
        return outcome

    return outcome, start


def run(grid: UnrulyGrid, strategy: Strategy | None = None, **changes: Any) -> Outcome:
    return prepare(grid, strategy, **changes)[1]()


class Clock:
    """Time that passes only where somebody sleeps: a timeout costs none."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(exchange_module, "time", clock)
    monkeypatch.setattr(bell_module, "time", clock)
    monkeypatch.setattr(members_module, "time", clock)
    return clock


# --- ways to misbehave ----------------------------------------------------------------------------


def raises(message: Message, reply: Message) -> Message:
    raise RuntimeError("the hospital's disk is full")


def keeps_silent(message: Message, reply: Message) -> None:
    """Train and answer, but the answer gets lost."""


def is_deaf(message: Message, reply: Message) -> None:
    """Neither hear the request nor train: the grid does not even ask."""


def sends(content: RecordDict) -> Conduct:
    return lambda message, reply: Message(content, reply_to=message)


def answers(reply: Reply) -> Conduct:
    return sends(to_records(encode(reply)))


def tampers(change: Callable[[ModelState], ModelState]) -> Conduct:
    """Train as asked, but send something else than the model."""

    def conduct(message: Message, reply: Message) -> Message:
        trained = decode_reply(from_records(reply.content))
        payload = change(ModelState.from_bytes(trained.payload)).to_bytes()
        forged = trained.model_copy(update={"payload": payload})
        return Message(to_records(encode(forged)), reply_to=message)

    return conduct


def in_leg(leg: int, position: int, conduct: Conduct) -> Rule:
    """Let a hospital misbehave once, when first asked for a leg; asked again it behaves."""
    once = [conduct]

    def rule(who: int, request: Request) -> Conduct | None:
        asked = isinstance(request, TrainLeg) and request.leg == leg and who == position
        return once.pop() if asked and once else None

    return rule


def always(position: int, conduct: Conduct) -> Rule:
    def rule(who: int, request: Request) -> Conduct | None:
        return conduct if isinstance(request, TrainLeg) and who == position else None

    return rule


def assert_same(left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> None:
    assert set(left) == set(right)
    for name, array in left.items():
        np.testing.assert_allclose(array, right[name], rtol=1e-12, atol=1e-14)


# --- nothing goes wrong ---------------------------------------------------------------------------


def test_result_and_observer_tell_the_whole_story() -> None:
    seen: list[int] = []

    def evaluate(leg: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(leg)
        return MetricRecord({"norm": float(sum(np.abs(a.numpy()).sum() for a in arrays.values()))})

    outcome, start = prepare(UnrulyGrid(tiny(sealing=True)))
    start(evaluate_fn=evaluate)
    result, diary = outcome.result, outcome.diary
    assert result is not None
    assert list(diary.hospitals) == sorted(NAMES)
    assert set(diary.hospitals.values()) == {7}
    assert [r.leg.ending for r in diary.reports.values()] == [
        Ending.AGGREGATION if leg % 4 == 0 else Ending.HAND_OVER for leg in range(1, 13)
    ]
    assert list(diary.aggregates) == seen == [4, 8, 12]
    assert list(result.train_metrics_clientapp) == [4, 8, 12]
    assert list(result.evaluate_metrics_serverapp) == [4, 8, 12]
    assert_same({k: a.numpy() for k, a in result.arrays.items()}, diary.aggregates[12].parameters)
    for leg in (4, 8, 12):
        assert list(diary.models[leg]) == sorted(NAMES)
        assert_same(diary.aggregates[leg].parameters, outcome.mean(leg))
    for report in diary.reports.values():
        assert report.answered == report.asked == tuple(sorted(NAMES))
        assert (dict(report.missing), report.parked) == ({}, ())
    assert set(diary.ends) == set(NAMES)
    assert all(isinstance(answer.reply, Closed) for answer in diary.ends.values())


def test_every_hospital_is_delivered_the_final_model() -> None:
    outcome = run(UnrulyGrid(tiny()))
    closes = [r for _, _, r in outcome.grid.conversation() if isinstance(r, Close)]
    assert len(closes) == 6
    for close in closes:
        delivered = ModelState.from_bytes(close.payload)
        assert_same(delivered.parameters, outcome.diary.aggregates[12].parameters)


@pytest.mark.parametrize("changes", [{}, {"random_schedule": True}, {"fraction": 0.5}])
def test_the_route_seed_is_in_no_byte_that_leaves_the_coordinator(changes: dict[str, Any]) -> None:
    outcome = run(UnrulyGrid(tiny(init="own", sealing=True)), **changes)
    training_seed = outcome.strategy.training_seed
    assert len(outcome.grid.asked) > 6 + 6 + 6  # greeting, agreement and closing are among them
    for _, data in outcome.grid.asked:
        for secret in (ROUTE_SEED, ROUTE_SEED[::-1]):
            # Not even a part of it, raw or as text.
            assert secret[:8] not in data
            assert secret.hex()[:16].encode() not in data.lower()
        request = decode_signed_request(data)
        knows = training_seed in data or training_seed.hex().encode() in data.lower()
        assert knows == isinstance(request, SetUp)


def test_a_hand_over_names_its_recipient_and_nothing_tells_the_sender() -> None:
    outcome = run(UnrulyGrid(tiny(sealing=True)))
    for _, data in outcome.grid.asked:
        request = decode_signed_request(data)
        if isinstance(request, TrainLeg):
            named = {name for name in NAMES if name.encode() in data}
            assert named == ({request.recipient} if request.recipient else set())


def routes(**seeds: bytes) -> list[tuple[int, int, str | None]]:
    """Return who was asked in which leg, and for whom."""
    grid = UnrulyGrid(tiny(rounds=6, fraction=0.5, aggregation_period=3))
    run(grid, random_schedule=True, **seeds)
    return [(leg, p, r.recipient) for leg, p, r in grid.conversation() if isinstance(r, TrainLeg)]


def test_routes_and_schedule_follow_from_the_route_seed_and_not_from_the_training_seed() -> None:
    one = routes(route_seed=b"one", training_seed=b"a")
    assert routes(route_seed=b"one", training_seed=b"b") == one
    assert routes(route_seed=b"two", training_seed=b"a") != one

    def legs(route: bytes, training: bytes) -> tuple[Leg, ...]:
        seeds = {"route_seed": route, "training_seed": training}
        return FedDC(FedAvg(), random_schedule=True, **STUDY, **seeds).schedule(100).legs

    assert legs(b"one", b"a") == legs(b"one", b"b") != legs(b"two", b"a")


def test_seeds_are_drawn_anew_unless_given() -> None:
    one, two = (FedDC(FedAvg(), **STUDY) for _ in range(2))
    seeds = {one.route_seed, two.route_seed, one.training_seed, two.training_seed}
    assert len(seeds) == 4
    assert {len(seed) for seed in seeds} == {32}


# --- a hospital fails, the others go on -----------------------------------------------------------


@pytest.mark.parametrize(
    ("conduct", "reason"),
    [
        (raises, "Flower error 2"),
        (keeps_silent, "no answer in 30 s"),
        (is_deaf, "no answer in 30 s"),
        (sends(RecordDict()), "unreadable reply: not a FedDC message"),
        (sends(to_records(b"\x00" * 100)), "unreadable reply: does not begin like a message"),
        (answers(Refusal(code=RefusalCode.INTERNAL_ERROR)), "refused: internal-error"),
        (answers(Introduction(hospital="me")), "answered something else"),
        (answers(Announcement(examples=3)), "answered something else"),
        (
            answers(
                Trained(
                    leg=1,
                    sealed=False,
                    loss=0.0,
                    accuracy=1.0,
                    held_out_loss=None,
                    held_out_accuracy=None,
                )
            ),
            "answered something else",  # it is leg 2 that was asked for
        ),
    ],
    ids=[
        "raises",
        "silent",
        "deaf",
        "empty",
        "garbage",
        "refuses",
        "greets",
        "announces",
        "other leg",
    ],
)
def test_a_hospital_that_does_not_answer_is_parked_and_named_and_asked_again(
    conduct: Conduct, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("flwr").addHandler(caplog.handler)
    outcome = run(UnrulyGrid(tiny(sealing=True, rounds=8), in_leg(2, 4, conduct)))
    logging.getLogger("flwr").removeHandler(caplog.handler)
    reports, grid = outcome.diary.reports, outcome.grid
    assert dict(reports[2].missing) == {NAMES[4]: reason}
    assert reports[2].parked == (NAMES[4],)
    assert NAMES[4] not in reports[2].answered
    assert f"leg 2: missing {NAMES[4]} ({reason})" in caplog.text
    assert reports[3].parked == ()
    assert not reports[3].missing
    # Asked again, byte for byte; and the chain goes on where it was to go.
    again = [data for position, data in grid.asked if position == 4]
    twice = [data for data in set(again) if again.count(data) > 1]
    (repeated,) = [r for r in map(decode_signed_request, twice) if isinstance(r, TrainLeg)]
    assert repeated.leg == 2
    recipient = NAMES.index(repeated.recipient)
    assert recipient not in grid.requests(3)  # it has no model, and sits the leg out
    assert grid.requests(4)[recipient].payload == grid.replies(2)[4].payload
    assert list(outcome.diary.aggregates) == [4, 8]


def test_the_same_request_gives_the_same_model_so_lateness_changes_only_routes() -> None:
    grid = run(UnrulyGrid(tiny(sealing=True, rounds=4), in_leg(2, 4, keeps_silent))).grid
    models = [
        decode_reply(answer).payload
        for (position, data), (_, answer) in zip(grid.asked, grid.answered, strict=True)
        if position == 4 and getattr(decode_signed_request(data), "leg", None) == 2
    ]
    assert len(models) == 2
    assert models[0] == models[1]


def test_a_hospital_that_never_answers_does_not_stop_the_others() -> None:
    outcome = run(UnrulyGrid(tiny(aggregation_period=12, sealing=True), always(1, is_deaf)))
    reports = outcome.diary.reports
    assert reports[1].missing == {NAMES[1]: "no answer in 30 s"}
    for leg in range(2, 13):  # from then on nobody waits for it that long
        assert reports[leg].missing[NAMES[1]].startswith("no answer in 5")
        assert list(reports[leg].missing) == [NAMES[1]]
    # One chain is parked, and at most one more was sent to it before that was known.
    assert 4 <= len(outcome.diary.models[12]) <= 5
    assert NAMES[1] not in outcome.diary.models[12]
    assert_same(outcome.diary.aggregates[12].parameters, outcome.mean(12))


def test_at_an_aggregation_the_missing_are_left_out_and_go_on_from_it() -> None:
    outcome = run(UnrulyGrid(tiny(), in_leg(4, 2, raises)))
    models = outcome.diary.models[4]
    assert set(models) == set(NAMES) - {NAMES[2]}
    assert_same(outcome.diary.aggregates[4].parameters, outcome.mean(4))
    assert outcome.diary.reports[4].parked == ()  # its chain is closed
    weights = outcome.diary.reports[4].weights
    assert weights == dict.fromkeys(models, 1.0)
    for request in outcome.grid.requests(5).values():  # 2 is back and has it too
        assert request.carries is Carries.AGGREGATE
        carried = ModelState.from_bytes(request.payload)
        assert_same(carried.parameters, outcome.diary.aggregates[4].parameters)
    assert len(outcome.grid.requests(5)) == 6


def test_who_owes_a_hand_over_is_named_at_the_aggregation_that_does_not_ask_for_it() -> None:
    outcome = run(UnrulyGrid(tiny(rounds=12, sealing=True), in_leg(11, 2, is_deaf)))
    # In this leg it was to keep its model, so that no other's waits for it.
    assert outcome.grid.requests(11)[2].recipient == NAMES[2]
    assert set(outcome.grid.requests(12)) == {0, 1, 3, 4, 5}
    assert outcome.diary.reports[12].missing == {NAMES[2]: "has not answered an earlier leg"}
    assert outcome.diary.reports[12].lost_chains == 1


def test_hospitals_that_disconnect_are_not_asked_and_come_back() -> None:
    away = {2: {0, 5}, 3: {0}}
    outcome = run(UnrulyGrid(tiny(), away=away))
    reports, grid = outcome.diary.reports, outcome.grid
    assert dict(reports[2].missing) == dict.fromkeys((NAMES[0], NAMES[5]), "not connected")
    assert set(grid.requests(2)) == {1, 2, 3, 4}
    for request in grid.requests(2).values():
        assert NAMES.index(request.recipient) in {1, 2, 3, 4}
    assert 0 not in grid.requests(3)
    back = grid.requests(4)[0]  # an aggregation: it sends the model it got in leg 1
    assert (back.first_round, back.local_rounds, back.recipient) == (3, 1, None)
    sent = {r.recipient: grid.replies(1)[p].payload for p, r in grid.requests(1).items()}
    assert back.payload == sent[NAMES[0]]
    assert len(outcome.diary.models[4]) == 6


def test_who_misses_the_delivery_has_missed_only_that() -> None:
    outcome = run(UnrulyGrid(tiny(), away={13: {3}}))
    assert outcome.diary.ends[NAMES[3]].problem == "not connected"
    assert list(outcome.diary.aggregates) == [4, 8, 12]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("changes", [{}, {"fraction": 0.7, "permutation": "coverage"}])
def test_a_run_survives_any_mixture_of_failures_within_the_quorum(
    seed: int, changes: dict[str, Any]
) -> None:
    rng = np.random.default_rng(seed)
    ways = [raises, keeps_silent, sends(RecordDict()), answers(Introduction(hospital="x"))]

    def rule(position: int, request: Request) -> Conduct | None:
        if isinstance(request, TrainLeg) and rng.random() < 0.2:
            return ways[rng.integers(len(ways))]
        return None

    away = {leg: {int(rng.integers(6))} for leg in range(1, 13) if rng.random() < 0.5}
    inner = FedAvg(min_train_nodes=1, min_available_nodes=1)
    outcome = run(UnrulyGrid(tiny(), rule, away), inner, quorum=0.01, **changes)
    assert list(outcome.diary.aggregates) == [4, 8, 12]
    for leg, aggregate in outcome.diary.aggregates.items():
        assert_same(aggregate.parameters, outcome.mean(leg))
    # Nobody was asked for two different models in one leg.
    for leg in range(1, 13):
        asked = [p for at, p, r in outcome.grid.conversation() if at == leg]
        assert len(asked) == len(set(asked))


# --- models that can't be aggregated --------------------------------------------------------------


def other_shape(model: ModelState) -> ModelState:
    name = min(model.parameters)
    return ModelState(model.parameters | {name: np.zeros(17)}, model.buffers)


def other_type(model: ModelState) -> ModelState:
    name = min(model.parameters)
    array = model.parameters[name].astype(np.float32)
    return ModelState(model.parameters | {name: array}, model.buffers)


def one_missing(model: ModelState) -> ModelState:
    name = min(model.parameters)
    return ModelState({k: a for k, a in model.parameters.items() if k != name}, model.buffers)


def one_more(model: ModelState) -> ModelState:
    return ModelState(model.parameters, model.buffers | {"extra": np.zeros(1)})


def not_a_number(model: ModelState) -> ModelState:
    name = min(model.parameters)
    array = model.parameters[name].copy()
    array.flat[0] = np.nan
    return ModelState(model.parameters | {name: array}, model.buffers)


def infinite(model: ModelState) -> ModelState:
    name = min(model.parameters)
    return ModelState(
        model.parameters | {name: np.full_like(model.parameters[name], np.inf)}, model.buffers
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_shape, "in another shape or type"),
        (other_type, "in another shape or type"),
        (one_missing, "other tensors"),
        (one_more, "other tensors"),
        (not_a_number, "not finite"),
        (infinite, "not finite"),
    ],
)
def test_a_model_that_does_not_fit_is_left_out_of_the_aggregate_and_named(
    change: Callable[[ModelState], ModelState], reason: str
) -> None:
    outcome = run(UnrulyGrid(tiny(rounds=5), in_leg(4, 3, tampers(change))))
    assert reason in outcome.diary.reports[4].missing[NAMES[3]]
    assert set(outcome.diary.models[4]) == set(NAMES) - {NAMES[3]}
    assert_same(outcome.diary.aggregates[4].parameters, outcome.mean(4))
    assert len(outcome.diary.models[5]) == 6  # it goes on from the aggregate


def test_bytes_that_are_no_model_are_left_out_of_the_aggregate() -> None:
    def conduct(message: Message, reply: Message) -> Message:
        trained = decode_reply(from_records(reply.content))
        forged = trained.model_copy(update={"payload": b"\x80\x04pickle"})
        return Message(to_records(encode(forged)), reply_to=message)

    outcome = run(UnrulyGrid(tiny(rounds=4), in_leg(4, 3, conduct)))
    assert "sent no model" in outcome.diary.reports[4].missing[NAMES[3]]
    assert len(outcome.diary.models[4]) == 5


def test_a_handed_over_model_that_does_not_fit_is_refused_by_its_recipient() -> None:
    # The coordinator could not look into a sealed one. The chain is lost, and said to be.
    outcome = run(UnrulyGrid(tiny(rounds=8), in_leg(1, 3, tampers(not_a_number))))
    recipient = outcome.grid.requests(1)[3].recipient
    reports = outcome.diary.reports
    assert dict(reports[2].missing) == {recipient: "refused: not-finite"}
    assert (reports[2].lost_chains, reports[2].parked) == (1, ())
    assert len(outcome.grid.requests(3)) == 5  # one model less; nobody is asked in vain
    assert not any(reports[leg].missing for leg in (1, 3, 5, 6, 7, 8))
    assert reports[8].lost_chains == 1
    for aggregate in outcome.diary.aggregates.values():
        assert all(np.isfinite(array).all() for array in aggregate.parameters.values())


def forges(message: Message, reply: Message) -> Message:
    """Flip a bit of the envelope."""
    trained = decode_reply(from_records(reply.content))
    payload = trained.payload[:-1] + bytes([trained.payload[-1] ^ 1])
    return Message(
        to_records(encode(trained.model_copy(update={"payload": payload}))), reply_to=message
    )


def test_a_request_parked_by_a_refusal_is_the_same_also_after_an_absence() -> None:
    # The refusal moves the hospital's audit trail on, which a new request would have to tell.
    settings = tiny(sealing=True, rounds=6, aggregation_period=6)
    refused = answers(Refusal(code=RefusalCode.INTERNAL_ERROR))  # a full disk, say
    outcome = run(UnrulyGrid(settings, in_leg(2, 3, refused), away={3: {3}}))
    assert [outcome.diary.reports[leg].missing.get(NAMES[3]) for leg in (2, 3, 4)] == [
        "refused: internal-error",
        "not connected",
        None,
    ]
    asked = [data for position, data in outcome.grid.asked if position == 3]
    again = [data for data in asked if getattr(decode_signed_request(data), "leg", None) == 2]
    assert len(again) == 2  # in legs 2 and 4
    assert len(set(again)) == 1


def test_a_model_that_may_not_go_to_its_recipient_goes_to_another() -> None:
    declines = answers(Refusal(code=RefusalCode.TOO_MANY_TO_ONE))
    outcome = run(UnrulyGrid(tiny(sealing=True, rounds=6), in_leg(2, 3, declines)))
    reports = outcome.diary.reports
    assert reports[2].missing == {NAMES[3]: "refused: too-many-to-one"}
    assert (reports[2].parked, reports[2].lost_chains) == ((), 0)
    again = outcome.grid.requests(3)[3]
    assert again.payload == outcome.grid.requests(2)[3].payload
    assert again.leg == 3


def test_an_unsealed_hand_over_is_not_forwarded_where_sealing_was_agreed() -> None:
    def opened(message: Message, reply: Message) -> Message:
        trained = decode_reply(from_records(reply.content))
        bare = trained.model_copy(update={"sealed": False, "payload": b"readable"})
        return Message(to_records(encode(bare)), reply_to=message)

    outcome = run(UnrulyGrid(tiny(sealing=True, rounds=6), in_leg(2, 3, opened)))
    assert outcome.diary.reports[2].missing == {NAMES[3]: "did not seal its model"}
    assert not any(b"readable" in data for _, data in outcome.grid.asked)


# --- too few answer -------------------------------------------------------------------------------


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
        assert f"{NAMES[position]} (Flower error 2)" in message
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


# --- meeting the hospitals ------------------------------------------------------------------------


def at(kind: type[Request], position: int, conduct: Conduct) -> Rule:  # type: ignore[valid-type]
    return lambda who, r: conduct if isinstance(r, kind) and who == position else None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (at(Hello, 2, raises), "node 102 did not introduce itself: Flower error 2"),
        (at(Hello, 2, is_deaf), "node 102 did not introduce itself: no answer in 120 s"),
        (at(Hello, 2, answers(Shares())), "node 102 did not introduce itself"),
        (
            at(Hello, 2, answers(Introduction(hospital="alias"))),
            "alias, which is not on the roster",
        ),
        (at(SetUp, 2, raises), f"{NAMES[2]} did not agree: Flower error 2"),
        (
            at(SetUp, 2, answers(Refusal(code=RefusalCode.DESCRIPTOR_REFUSED))),
            f"{NAMES[2]} did not agree: refused: descriptor-refused",
        ),
        (at(SetUp, 2, answers(Shares())), f"{NAMES[2]} did not agree: it answered something else"),
        (at(ExchangeShares, 2, is_deaf), f"{NAMES[2]} did not exchange keys: no answer in 120 s"),
        (at(ExchangeShares, 2, answers(Shares(payload=b"?"))), f"{NAMES[2]} sent no shares"),
        (
            at(OpenShares, 2, answers(Refusal(code=RefusalCode.KEYS_REFUSED))),
            f"{NAMES[2]} did not make its key: refused: keys-refused",
        ),
        (
            at(OpenShares, 2, answers(Ready(confirmation="ab" * 32))),
            "did not derive the same member key",
        ),
    ],
)
def test_an_experiment_begins_with_all_members_agreed_or_not_at_all(
    rule: Rule, message: str
) -> None:
    grid = UnrulyGrid(tiny(sealing=True), rule)
    with pytest.raises(ExperimentFailed, match=message):
        run(grid)
    assert not any(isinstance(r, TrainLeg) for _, _, r in grid.conversation())


@pytest.mark.parametrize(
    ("connected", "error", "message"),
    [
        (4, QuorumNotReached, "only 4 of 5 hospitals are connected after 120 s"),
        (6, ExperimentFailed, "6 hospitals are connected, but the study has 5: set hospitals"),
    ],
)
def test_exactly_the_members_must_be_connected(
    connected: int, error: type[Exception], message: str, clock: Clock
) -> None:
    grid = UnrulyGrid(tiny(hospitals=connected))
    with pytest.raises(error, match=message):
        run(grid, roster=simulated_study(3, NAMES[:5]).roster)
    assert grid.asked == []
    assert clock.now < 121


@pytest.mark.parametrize("weighting", ["examples", "chain-examples"])
def test_weights_by_examples_need_hospitals_that_tell_their_number(weighting: str) -> None:
    def hides(message: Message, reply: Message) -> Message:
        announced = decode_reply(from_records(reply.content))
        hidden = announced.model_copy(update={"examples": None})
        return Message(to_records(encode(hidden)), reply_to=message)

    rule = at(SetUp, 2, hides)
    with pytest.raises(ExperimentFailed, match=f"{NAMES[2]} keeps to itself: use equal weights"):
        run(UnrulyGrid(tiny(), rule), weighting=weighting)
    assert run(UnrulyGrid(tiny(rounds=1), rule)).diary.hospitals[NAMES[2]] is None


def test_two_nodes_of_one_name_are_refused() -> None:
    grid = UnrulyGrid(tiny(), at(Hello, 2, answers(Introduction(hospital=NAMES[3]))))
    _, start = prepare(grid)
    with pytest.raises(ExperimentFailed, match=f"two nodes call themselves {NAMES[3]}"):
        start()


def test_the_roster_is_in_order_of_names_whatever_the_nodes_ids() -> None:
    class Shuffled(UnrulyGrid):
        def get_node_ids(self) -> Iterable[int]:
            return [104, 100, 105, 103, 101, 102]

    outcome = run(Shuffled(tiny()))
    assert list(outcome.diary.hospitals) == sorted(NAMES)
    assert_same(
        outcome.diary.aggregates[12].parameters,
        run(UnrulyGrid(tiny())).diary.aggregates[12].parameters,
    )


# --- what can't be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fraction": 0.0}, "fraction must be more than 0 and at most 1, got 0.0"),
        ({"fraction": 1.2}, "fraction must be more than 0 and at most 1, got 1.2"),
        ({"quorum": 0}, "quorum must be more than 0 and at most 1, got 0"),
        ({"quorum": float("nan")}, "quorum must be more than 0"),
        ({"permutation": "ring"}, "permutation must be one of uniform, derangement, coverage"),
        ({"weighting": "size"}, "weighting must be one of equal, examples, chain-examples"),
        ({"init": "zeros"}, "init must be one of shared, own, got 'zeros'"),
        ({"daisy_period": 0}, "daisy_period must be at least 1, got 0"),
        ({"aggregation_period": 0}, "aggregation_period must be at least 1, got 0"),
        ({"tail": 1.5}, "tail must be at least 0"),
        ({"ramp": True, "aggregation_period": None}, "ramp needs an aggregation_period"),
        ({"random_schedule": True, "daisy_period": None}, "random schedule needs daisy_period"),
    ],
)
def test_impossible_arguments_are_refused_where_they_are_given(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        FedDC(FedAvg(), **STUDY, **arguments)


@pytest.mark.parametrize(
    ("arrays", "buffers", "message"),
    [
        (
            {"w": np.zeros(2), "steps": np.zeros((), np.int64)},
            (),
            "steps holds int64: name it in buffers",
        ),
        ({"w": np.zeros(2), "mask": np.zeros(2, bool)}, (), "mask holds bool: name it in buffers"),
        ({"w": np.zeros(2)}, ("running_mean",), "buffers name .*running_mean.* do not have"),
    ],
)
def test_what_is_not_trained_must_be_named_in_buffers(
    arrays: dict[str, np.ndarray], buffers: tuple[str, ...], message: str
) -> None:
    record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    with pytest.raises(ValueError, match=message):
        FedDC(FedAvg(), **STUDY, buffers=buffers).start(UnrulyGrid(tiny()), record)


class Restless(FedAvg):
    """Lowers the learning rate from one configuration to the next."""

    rate = 0.2

    def configure_train(
        self, server_round: int, arrays: Any, config: ConfigRecord, grid: Any
    ) -> Any:
        self.rate /= 2
        config["learning-rate"] = self.rate
        return super().configure_train(server_round, arrays, config, grid)


def test_a_strategy_that_changes_its_config_between_legs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Restless changed its config in leg 1, .*agree.*once"):
        run(UnrulyGrid(tiny()), Restless())


class Partial(FedAvg):
    """Sends hospitals different settings."""

    def configure_train(
        self, server_round: int, arrays: Any, config: ConfigRecord, grid: Any
    ) -> Any:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        messages[-1].content = RecordDict({"config": ConfigRecord({"learning-rate": 9.0})})
        return messages


def test_a_strategy_that_sends_hospitals_different_configs_is_refused() -> None:
    with pytest.raises(Exception, match="Partial sends hospitals different configs"):
        run(UnrulyGrid(tiny()), Partial())


def test_a_config_that_no_descriptor_can_hold_is_refused() -> None:
    _, start = prepare(UnrulyGrid(tiny()))
    config = ConfigRecord({"model": "mlp", "layers": [1, 2], "shape": [30], "classes": 2})
    with pytest.raises(ValueError, match="train_config: layers must be a number"):
        start(train_config=config)


def test_the_callers_config_is_left_as_it_was() -> None:
    settings = tiny(rounds=4)
    outcome, start = prepare(UnrulyGrid(settings))
    config = ConfigRecord(dict(settings.training.as_config()))
    config["shape"], config["classes"] = [30], 2
    before = dict(config)
    start(train_config=config)
    assert dict(config) == before
    assert outcome.result is not None
