"""FedDC over a grid whose hospitals may be late, absent, broken or hostile."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from client_app.courier import app as courier
from lab.flower.in_process import InProcessGrid
from learning.local_data import load_dataset
from protocol.message_bytes import decode_signed_reply, decode_signed_request
from protocol.messages import Request, Trained, TrainLeg
from protocol.model_bytes import ModelState
from protocol.randomness import derive_seed
from protocol.records import from_records
from protocol.schedule import Leg
from protocol.secure_sum.held_out_totals import HeldOutTotals
from protocol.study.simulated_study import simulated_study
from server_app.config.run_config import Settings
from strategies.feddc import FedDC
from strategies.session.exchange import Answer
from strategies.session.observer import LegReport, Observer
from strategies.session.sealed_study import SealedStudy
from strategies.session.storage.spool import StoredModel
from tests.conftest import TINY
from tests.fake_clock import FakeClock
from tests.strategies.misconduct import NAMES as NAMES
from tests.strategies.misconduct import Rule, is_deaf
from tests.strategies.recorded_aggregations import first_model

_STUDY = simulated_study(3, NAMES)
STUDY: dict[str, Any] = {"roster": _STUDY.roster, "coordinator": _STUDY.coordinator}
_STUDY_ARGUMENTS = {field.name for field in fields(SealedStudy)}
ROUTE_SEED = bytes(range(100, 132))


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
            reply = decode_signed_reply(data)
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
    totals: HeldOutTotals | None = None
    unanswered_after: list[tuple[int, tuple[str, ...], int]] = field(default_factory=list)

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

    def unanswered(self, leg: Leg, hospitals: Sequence[str], seconds: float) -> None:
        self.unanswered_after.append((leg.number, tuple(hospitals), round(seconds)))

    def closed(self, answers: Mapping[str, Answer], totals: HeldOutTotals | None) -> None:
        self.ends, self.totals = dict(answers), totals


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
    return Settings.from_run_config(TINY | {"sealed": False} | changed, source="test")


def prepare(
    grid: UnrulyGrid, strategy: Strategy | None = None, **changes: Any
) -> tuple[Outcome, Callable[..., Outcome]]:
    """Build FedDC over the grid's settings; return its outcome to be, and a call to start it."""
    settings = grid.settings
    a = settings.algorithm
    dataset = load_dataset(settings.local, a.seed)
    training_seed = derive_seed(a.seed, "training")
    first = first_model(settings)
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
        "sealed": a.sealed,
        "permutation": a.permutation,
        "route_seed": ROUTE_SEED,
        "training_seed": training_seed,
        "first_model_from_seed": True,
        "buffers": first.buffers,
        "observer": diary,
        "clock": FakeClock(),  # waiting costs no time
    }
    feddc = make_feddc(strategy or FedAvg(), **arguments | changes)
    outcome = Outcome(grid, diary, feddc, first)
    config = ConfigRecord(dict(settings.training.as_config()))
    config["shape"], config["classes"] = list(dataset.shape), len(dataset.classes)

    def start(**more: Any) -> Outcome:
        arrays = {name: Array(array) for name, array in (first.parameters | first.buffers).items()}
        given = {"train_config": config, "timeout": 30, "num_rounds": a.rounds} | more
        outcome.result = feddc.start(grid, ArrayRecord(arrays), **given)
        return outcome

    return outcome, start


def make_feddc(strategy: Strategy, **arguments: Any) -> FedDC:
    """Build FedDC from its own arguments and the study's."""
    study = {key: arguments.pop(key) for key in _STUDY_ARGUMENTS & set(arguments)}
    return FedDC(strategy, study=SealedStudy(**study), **arguments)


def run(grid: UnrulyGrid, strategy: Strategy | None = None, **changes: Any) -> Outcome:
    return prepare(grid, strategy, **changes)[1]()


def assert_same(left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> None:
    assert set(left) == set(right)
    for name, array in left.items():
        np.testing.assert_allclose(array, right[name], rtol=1e-12, atol=1e-14)
