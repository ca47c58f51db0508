"""A victim in the middle of things, and what must hold whatever it is asked."""

import time
from functools import cache

from client_app.hospital.hospital import Hospital
from client_app.state.store import MappingStore
from protocol.messages import (
    Carries,
    Close,
    Hello,
    Refusal,
    RefusalCode,
    Reply,
    Request,
    decode_reply,
)
from tests.attacks.study import NAMES, VICTIM, Experiment, in_process, new_study, partition

ROUNDS = 20
AGREED, WITH_KEYS = ("e1", "e2", "e3"), "e3"

KINDS = (
    *("hello", "set-up", "exchange-key-shares", "open-key-shares"),
    *("train-leg", "aggregate", "close"),
)


class Scene:
    """A victim in the middle of things, and the honest request that each of them waits for.

    It has agreed to three experiments: it is about to receive announcements in the first, key
    shares in the second, and the envelope of leg 3 in the third. A fourth is about to be opened.
    """

    def __init__(self) -> None:
        self.study = new_study()
        for seed, name in enumerate(NAMES):
            in_process(self.study, name, partition(name, seed))
        self.announced, self.shared, self.training, self.new = (
            Experiment(self.study, self.study.descriptor(rounds=ROUNDS)) for _ in range(4)
        )
        for begun in (self.announced, self.shared, self.training):
            begun.agree()
        self.shared.exchange_all()
        self.training.make_keys()
        self.training.leg()
        self.training.leg()
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
            self.training.request(
                VICTIM,
                carries=Carries.AGGREGATE,
                sealed_in=None,
                recipient=None,
                payload=self.model,
            ),
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
    memory = dict(scene().memory)
    victim = scene().victim(memory)
    started = time.thread_time()
    reply = decode_reply(victim.answer(data))
    assert time.thread_time() - started < 1
    if isinstance(reply, Refusal):
        assert reply.code != RefusalCode.INTERNAL_ERROR
        assert forget_trail(memory) == forget_trail(scene().memory)
    return reply


def forget_trail(memory: dict[str, bytes]) -> dict[str, bytes]:
    return {name: value for name, value in memory.items() if name != "audit-head"}
