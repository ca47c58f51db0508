"""A new roster in a running experiment: new keys after the next aggregation, and who stays out."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message
from flwr.serverapp.strategy import FedAvg

from client_app.hospital.agreement.policy import Policy
from client_app.hospital.hospital import Hospital
from client_app.state.decisions import Decisions
from client_app.state.store import MappingStore
from lab.flower.in_process import InProcessGrid
from learning.data import Examples, Partition
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec
from protocol.descriptor import Descriptor
from protocol.message_bytes import decode_signed_reply, decode_signed_request, sign_request
from protocol.messages import (
    Announcement,
    Carries,
    ExchangeKeyShares,
    Refusal,
    RefusalCode,
    SetUp,
    TrainLeg,
    Vouch,
)
from protocol.records import from_records, to_records
from protocol.sealing.keys import Identity
from protocol.study.roster import Member, Roster
from strategies.session.observer import LegReport, Observer
from strategies.session.quorum import QuorumNotReached
from strategies.session.storage.journal import DiskJournal
from tests.strategies.unruly_grid import make_feddc

NAMES = ("east", "north", "south", "west")
ALL = (*NAMES, "centre")
IDENTITIES = {name: Identity.from_bytes(bytes([n] * 32)) for n, name in enumerate(ALL, start=1)}
COORDINATOR = Identity.from_bytes(bytes([99] * 32))
TASK = TaskSpec((4,), 2)
TRAINING = {"model": "mlp", "model-options": '{"hidden": [3]}', "precision": "float64"}


POLICY = {
    "approval": "automatic",
    "maximum-fraction-per-recipient": 1.0,
    "plain-aggregation": True,
}


def roster(names: Iterable[str], generation: int) -> Roster:
    members = [Member(name, IDENTITIES[name].public) for name in names]
    return Roster.make("study", generation, COORDINATOR.public, members)


FIRST, SECOND = roster(NAMES, 1), roster(ALL, 2)


def partition(name: str) -> Partition:
    rng = np.random.default_rng(ALL.index(name))
    features = rng.normal(size=(8, 4)).astype(np.float32)
    held_out = Examples(features[:5], np.arange(5) % 2)
    return Partition(name, Examples(features, np.arange(8) % 2), held_out)


class Study(InProcessGrid):
    """Hospitals that are registered by name, each with the roster it has pinned."""

    def __init__(self) -> None:
        super().__init__(self._answer, 0, {})  # type: ignore[arg-type]
        self.memories: dict[str, dict[str, bytes]] = {name: {} for name in ALL}
        self.pinned = dict.fromkeys(ALL, FIRST) | {"centre": SECOND}
        self.connected = list(NAMES)
        self.asked: list[tuple[str, Any]] = []
        self.refused: list[tuple[str, str]] = []

    def get_nodes(self) -> Iterable[Any]:
        return [SimpleNamespace(name=n, node_id=100 + ALL.index(n)) for n in self.connected]

    def get_node_ids(self) -> Iterable[int]:
        return [node.node_id for node in self.get_nodes()]

    def hospital(self, name: str) -> Hospital:
        return self.hospital_with(name, POLICY)

    def hospital_with(
        self, name: str, policy: dict[str, Any], decisions: Decisions | None = None
    ) -> Hospital:
        return Hospital(
            name,
            partition(name),
            MappingStore(self.memories[name]),
            identity=IDENTITIES[name],
            roster=self.pinned[name],
            policy=Policy.parse(policy, source="test"),
            decisions=decisions,
        )

    def _deliver(self, message: Message) -> Message:
        name = ALL[message.metadata.dst_node_id - 100]
        data = from_records(message.content)
        self.asked.append((name, decode_signed_request(data)))
        answer = self.hospital(name).answer(data)
        if isinstance(refusal := decode_signed_reply(answer), Refusal):
            self.refused.append((name, refusal.code))
        return Message(to_records(answer), reply_to=message)

    def _answer(self, *_: Any) -> Any:
        raise AssertionError


class Operator(Observer):
    """Lets something happen after a leg, and writes down what FedDC tells."""

    def __init__(self, events: dict[int, Any]) -> None:
        self.events, self.generations, self.reports = events, {}, {}

    def generation_began(self, number: int, hospitals: Any, staying_out: Any) -> None:
        self.generations[number] = (tuple(hospitals), dict(staying_out))

    def leg_ended(self, report: LegReport) -> None:
        self.reports[report.leg.number] = report
        self.events.get(report.leg.number, lambda: None)()


def run(study: Study, operator: Operator, newest: list[Roster], **changes: Any) -> Any:
    training = TrainingSettings.parse(TRAINING, source="test")
    parameters, _ = Network(training, TASK, seed=1).arrays()
    config = ConfigRecord(dict(training.as_config()))
    config["shape"], config["classes"] = [4], 2
    given: dict[str, Any] = {
        "roster": FIRST,
        "coordinator": COORDINATOR,
        "aggregation_period": 3,
        "route_seed": b"route",
        "training_seed": b"training",
        "experiment": "x",
        "observer": operator,
        "newest_roster": lambda: newest[0],
    }
    arrays = ArrayRecord({name: Array(array) for name, array in parameters.items()})
    return make_feddc(FedAvg(), **given | changes).start(
        study, arrays, num_rounds=12, timeout=5, train_config=config
    )


def pins(study: Study, newest: list[Roster], *names: str) -> Any:
    """Return what happens when a hospital is enrolled and these have pinned the new roster."""

    def happens() -> None:
        newest[0] = SECOND
        study.connected = list(ALL)
        study.pinned |= dict.fromkeys(names, SECOND)

    return happens


def test_a_new_hospital_takes_part_after_the_next_aggregation() -> None:
    study, newest = Study(), [FIRST]
    operator = Operator({4: pins(study, newest, *ALL)})
    run(study, operator, newest)
    assert operator.generations == {2: (SECOND.names, {})}
    legs = [(n, r) for n, r in study.asked if isinstance(r, TrainLeg)]
    assert min(r.leg for n, r in legs if n == "centre") == 7  # legs 3, 6, 9 and 12 aggregate
    assert all(r.carries is Carries.AGGREGATE and r.first_round == 6 for _, r in legs if r.leg == 7)
    # Until then all went on under the old keys, pinned or not; everybody hands over, sealed.
    assert study.refused == []
    assert not any(report.missing for report in operator.reports.values())
    assert {r.recipient for _, r in legs if r.leg > 7 and r.recipient} >= {"centre"}
    assert len(operator.reports[12].weights) == 5


def test_newcomers_accept_the_sum_that_enough_members_vouch_for() -> None:
    study, newest = Study(), [FIRST]
    operator = Operator({4: pins(study, newest, *ALL)})
    run(study, operator, newest, averaging="secure")
    assert operator.generations == {2: (SECOND.names, {})}
    assert study.refused == []
    first = [r for _, r in study.asked if isinstance(r, TrainLeg) and r.leg == 7]
    assert {r.carries for r in first} == {Carries.SUM}
    assert all(set(r.vouchers or {}) == set(NAMES) for r in first)
    assert not any(report.missing for report in operator.reports.values())
    later = [r for _, r in study.asked if isinstance(r, TrainLeg) and r.leg == 10]
    assert all(r.carries is Carries.SUM and r.vouchers is None for r in later)


def test_newcomers_refuse_a_sum_that_too_few_members_vouch_for() -> None:
    class WithOneVoucher(Study):  # one of five members may collude, so two are needed
        def _deliver(self, message: Message) -> Message:
            reply = super()._deliver(message)
            name, request = self.asked[-1]
            if isinstance(request, Vouch) and name != "west":
                return Message(Error(code=2, reason="lost"), reply_to=message)
            return reply

    study, newest = WithOneVoucher(), [FIRST]
    operator = Operator({4: pins(study, newest, *ALL)})
    with pytest.raises(QuorumNotReached):
        run(study, operator, newest, averaging="secure")
    assert ("centre", RefusalCode.SUM_REFUSED) in study.refused


def test_who_has_not_pinned_the_new_roster_stays_out_and_is_named() -> None:
    study, newest = Study(), [FIRST]
    operator = Operator({1: pins(study, newest, "east", "north", "west", "centre")})
    run(study, operator, newest)
    members, staying_out = operator.generations[2]
    assert staying_out == {"south": "refused: another-roster"}
    assert members == ("centre", "east", "north", "west")
    assert not any(n == "south" for n, r in study.asked if isinstance(r, TrainLeg) and r.leg > 3)
    assert set(operator.reports[12].weights) == set(members)


def test_an_generation_that_too_few_have_pinned_does_not_begin() -> None:
    study, newest = Study(), [FIRST]
    operator = Operator({1: pins(study, newest, "centre", "east")})
    run(study, operator, newest, quorum=0.6)
    assert operator.generations == {}
    # All go on under the old keys, those too who had agreed to new ones.
    assert set(operator.reports[12].weights) == set(NAMES)
    assert operator.reports[12].lost_chains == 0


def test_a_run_killed_while_it_opens_an_generation_goes_on(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    class Mortal(Study):
        doomed = True

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            (message,) = messages
            request = decode_signed_request(from_records(message.content))
            second = self.pinned["east"] is SECOND
            if self.doomed and second and isinstance(request, ExchangeKeyShares):
                self.doomed = False
                raise Killed
            return super().push_messages([message])

    study, newest = Mortal(), [FIRST]
    operator = Operator({1: pins(study, newest, *ALL)})
    with pytest.raises(Killed):
        run(study, operator, newest, journal=DiskJournal(tmp_path))
    run(study, operator, newest, journal=DiskJournal(tmp_path))
    assert operator.generations == {2: (SECOND.names, {})}
    assert len(operator.reports[12].weights) == 5


# --- what a hospital allows -----------------------------------------------------------------------


def agreed(pinned: Roster = FIRST) -> tuple[Study, Descriptor]:
    study = Study()
    study.pinned["east"] = pinned
    descriptor = Descriptor(
        experiment="x",
        rounds=12,
        daisy_period=1,
        aggregation_period=3,
        init="shared",
        shape=(4,),
        classes=2,
        training=TrainingSettings.parse(TRAINING, source="test").as_config(),
        training_seed=b"seed",
        sealed=True,
        roster=pinned.digest,
        first_model=bytes(32),
        first_model_is_given=True,
    )
    assert isinstance(set_up(study, descriptor), Announcement)
    return study, descriptor


def set_up(study: Study, descriptor: Descriptor) -> Any:
    request = SetUp(experiment="x", payload=descriptor.to_bytes())
    data = sign_request(request, COORDINATOR, study=FIRST.study, hospital="east")
    return decode_signed_reply(study.hospital("east").answer(data))


def code(reply: Any) -> RefusalCode:
    assert isinstance(reply, Refusal)
    return reply.code


def test_no_generation_without_the_operator_having_pinned_its_roster() -> None:
    study, descriptor = agreed()
    newer = descriptor.model_copy(update={"roster": SECOND.digest})
    assert code(set_up(study, newer)) is RefusalCode.ANOTHER_ROSTER


def test_an_generation_changes_the_members_and_nothing_else() -> None:
    study, descriptor = agreed()
    study.pinned["east"] = SECOND
    newer = descriptor.model_copy(update={"roster": SECOND.digest, "rounds": 5000})
    assert code(set_up(study, newer)) is RefusalCode.DESCRIPTOR_REFUSED
    older = descriptor.model_copy(update={"rounds": 11})
    assert code(set_up(study, older)) is RefusalCode.ANOTHER_ROSTER


def test_one_announced_key_per_identity_and_generation() -> None:
    study, descriptor = agreed()
    study.pinned["east"] = SECOND
    newer = descriptor.model_copy(update={"roster": SECOND.digest})
    first = set_up(study, newer)
    assert isinstance(first, Announcement)
    assert set_up(study, newer) == first
    assert code(set_up(study, descriptor)) is RefusalCode.ANOTHER_ROSTER  # no way back
    other = newer.model_copy(update={"rounds": 11})
    assert code(set_up(study, other)) is RefusalCode.CONFLICTING_REQUEST


def test_an_experiment_begins_with_the_whole_roster() -> None:
    """Only a later generation may leave members out: no hospital is isolated from the start."""
    study, newest = Study(), [FIRST]
    study.connected = ["east", "north", "south"]
    with pytest.raises(Exception, match="not connected after"):
        run(study, Operator({}), newest, start_timeout=0.1)
