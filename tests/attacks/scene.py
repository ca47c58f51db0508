"""A victim in the middle of things, and what must hold whatever it is asked."""

from functools import cache

from client_app.hospital.hospital import Hospital
from client_app.state.store import MappingStore
from protocol.message_bytes import decode_signed_reply
from protocol.messages import Close, Hello, Refusal, RefusalCode, Reply, Request
from tests.attacks.study import NAMES, VICTIM, Experiment, in_process, new_study, partition
from tests.little_work import with_little_work

ROUNDS = 20
AGREED, HANDING_OVER, AVERAGING = ("e1", "e2", "e3", "e4"), "e3", "e4"

KINDS = (
    *("hello", "set-up", "exchange-key-shares", "open-key-shares"),
    *("train-leg", "aggregate", "close"),
)


class Scene:
    """A victim in the middle of things, and the honest request that each of them waits for.

    It has agreed to four experiments: it is about to receive announcements in the first, key shares
    in the second, the envelope of leg 3 in the third, and the aggregate of leg 1 in the fourth,
    which aggregates in every leg. A fifth is about to be opened.
    """

    def __init__(self) -> None:
        self.study = new_study()
        for seed, name in enumerate(NAMES):
            in_process(self.study, name, partition(name, seed))
        never = {"daisy_period": None, "aggregation_period": 1}
        self.announced, self.shared, self.training, self.averaging, self.new = (
            Experiment(self.study, self.study.descriptor(rounds=ROUNDS, **changes))
            for changes in ({}, {}, {}, never, {})
        )
        for begun in (self.announced, self.shared, self.training, self.averaging):
            begun.agree()
        self.shared.exchange_all()
        self.training.make_keys()
        self.training.leg()
        self.training.leg()
        self.averaging.make_keys()
        self.averaging.leg(**{name: self.averaging.request(name, recipient=None) for name in NAMES})
        self.averaging.envelopes.clear()
        self.memory = dict(self.study.memories[VICTIM])
        self.asked = {p.request for p in self.study.passed if p.hospital == VICTIM}
        self.model = self.training.first_model.to_bytes()
        self.leg = self.training.request(VICTIM)
        requests: tuple[Request, ...] = (
            Hello(),
            self.new.set_up(),
            self.announced.exchange(),
            self.shared.open(VICTIM),
            self.leg,
            self.averaging.request(VICTIM, recipient=None),
            Close(experiment=self.training.id, payload=self.model),
        )
        self.honest = dict(zip(KINDS, requests, strict=True))
        self.signed = {kind: self.study.sign(request) for kind, request in self.honest.items()}
        self.pieces = [request.payload for request in requests]
        self.pieces += [self.training.asked[VICTIM].payload, b""]

    def victim(self, memory: dict[str, bytes]) -> Hospital:
        hospital = self.study.hospitals[VICTIM]
        assert isinstance(hospital, Hospital)
        return hospital.with_store(MappingStore(memory))


@cache
def scene() -> Scene:
    return Scene()


def answered(data: bytes) -> Reply:
    """Ask the victim as it was; see what must hold whatever is asked."""

    def answer() -> tuple[Reply, dict[str, bytes]]:
        memory = dict(scene().memory)
        return decode_signed_reply(scene().victim(memory).answer(data)), memory

    reply, memory = with_little_work(answer)
    if isinstance(reply, Refusal):
        assert reply.code != RefusalCode.INTERNAL_ERROR
        assert forget_trail(memory) == forget_trail(scene().memory)
    return reply


def forget_trail(memory: dict[str, bytes]) -> dict[str, bytes]:
    return {name: value for name, value in memory.items() if name != "audit-head"}
