"""A tiny study to attack: four hospitals over one roster, and a coordinator that can be honest.

Hospitals are objects in this process or real agents behind their sockets. All that passes between
them and the coordinator is kept, as bytes.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from client_app.connect.agent_client import AgentUnreachable, ask, health
from client_app.enrol.enrolment import initialise
from client_app.hospital.agreement.policy import Policy
from client_app.hospital.hospital import Hospital
from client_app.hospital_folder import HospitalFolder
from client_app.state.store import MappingStore, Store
from learning.data import Examples, Partition
from learning.models import ModelError
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec
from operation.config import SettingsError
from protocol.audit_head import AuditHead
from protocol.descriptor import Descriptor
from protocol.message_bytes import decode_signed_reply, is_reply_by, sign_request
from protocol.messages import (
    Announcement,
    Carries,
    Close,
    Closed,
    ExchangeKeyShares,
    KeyShares,
    OpenKeyShares,
    Ready,
    Refusal,
    Reply,
    Request,
    SetUp,
    Trained,
    TrainLeg,
)
from protocol.model_bytes import ModelState
from protocol.sealing.bundle import from_bundle, to_bundle
from protocol.sealing.keys import Identity
from protocol.sealing.membership import Announced
from protocol.study.roster import Member, Roster

ROOT = Path(__file__).parents[2]
NAMES = ("Aspen", "Birch", "Cedar", "Durmast")
VICTIM = "Birch"
FEATURES, CLASSES, ROUNDS = 4, 2, 1000
AGREED = ("0", "1")  # the classes
TRAINING: dict[str, Any] = {"model": "mlp", "model-options": '{"hidden": [3]}', "batch-size": 8}
# What an operator leaves as it is; attacks open many experiments, which were approved before. These
# ones average plainly; attacks on secure sums are in test_evil_coordinator_sums.py.
POLICY: dict[str, Any] = {
    "approval": "automatic",
    "maximum-experiments": 1000,
    "plain-aggregation": True,
}
R = TypeVar("R", bound=Reply)


class Answering(Protocol):
    """A hospital, wherever it is."""

    def answer(self, data: bytes) -> bytes: ...


@dataclass(frozen=True)
class Passed:
    """A request and its reply, as they passed the coordinator."""

    hospital: str
    request: bytes
    reply: bytes


@dataclass
class Study:
    """The members, the coordinator's key, and everything that has passed.

    `memories` holds what the hospitals in this process remember: a malicious member's too.
    """

    coordinator: Identity
    identities: Mapping[str, Identity]
    roster: Roster
    hospitals: dict[str, Answering] = field(default_factory=dict)
    memories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    passed: list[Passed] = field(default_factory=list)
    heads: dict[str, AuditHead] = field(default_factory=dict)
    opened: int = 0

    def ask(self, name: str, request: Request | bytes) -> Reply:
        """Deliver a request, signed if it is not bytes yet, and keep what passes."""
        data = request if isinstance(request, bytes) else self.sign(request, name)
        answer = self.hospitals[name].answer(data)
        self.passed.append(Passed(name, data, answer))
        assert is_reply_by(
            self.identities[name].public,
            answer,
            study=self.roster.study,
            hospital=name,
            request=hashlib.sha256(data).digest(),
        )
        reply = decode_signed_reply(answer)
        if reply.audit is not None:
            self.heads[name] = reply.audit
        return reply

    def sign(self, request: Request, name: str = VICTIM) -> bytes:
        return sign_request(request, self.coordinator, study=self.roster.study, hospital=name)

    def descriptor(self, **changes: Any) -> Descriptor:
        """Return the descriptor of a new experiment, with changes."""
        self.opened += 1
        fields: dict[str, Any] = {
            "experiment": f"e{self.opened}",
            "rounds": ROUNDS,
            "daisy_period": 1,
            "aggregation_period": None,
            "init": "shared",
            "shape": (FEATURES,),
            "classes": CLASSES,
            "training": TRAINING,
            "training_seed": b"training" * 4,
            "sealed": True,
            "roster": self.roster.digest,
            "first_model_is_given": True,  # so that tests can choose it
        }
        fields |= changes
        if fields["init"] == "own":
            fields["first_model_is_given"] = False
        elif "first_model" not in fields:
            fields["first_model"] = first_model(fields).digest()
        return Descriptor(**fields)

    def experiment(self, **changes: Any) -> "Experiment":
        """Open an experiment and make its keys, honestly."""
        experiment = Experiment(self, self.descriptor(**changes))
        experiment.agree()
        if experiment.descriptor.sealed:
            experiment.make_keys()
        return experiment


class Experiment:
    """An experiment under an honest coordinator: each leg hands every model to another member."""

    def __init__(self, study: Study, descriptor: Descriptor) -> None:
        self.study = study
        self.descriptor = descriptor
        self.id = descriptor.experiment
        self.first_model = first_model(vars(descriptor))
        self.legs = 0
        self.announced: dict[str, bytes] = {}
        self.key_shares: dict[str, dict[str, bytes]] = {}
        self.envelopes: dict[str, bytes] = {}  # by recipient
        self.asked: dict[str, TrainLeg] = {}  # the last leg's requests

    @property
    def members(self) -> tuple[str, ...]:
        return self.study.roster.names

    # --- set-up -----------------------------------------------------------------------------------

    def set_up(self, **changes: Any) -> SetUp:
        return SetUp(experiment=self.id, payload=self.descriptor.to_bytes(), **changes)

    def agree(self) -> None:
        for name in self.members:
            self.announced[name] = expect(Announcement, self.study.ask(name, self.set_up())).payload

    def exchange(self, announced: Mapping[str, bytes] | None = None) -> ExchangeKeyShares:
        return ExchangeKeyShares(experiment=self.id, payload=to_bundle(announced or self.announced))

    def open(self, recipient: str, key_shares: Mapping[str, bytes] | None = None) -> OpenKeyShares:
        sent = {
            name: sealed[recipient] for name, sealed in self.key_shares.items() if name != recipient
        }
        return OpenKeyShares(experiment=self.id, payload=to_bundle(key_shares or sent))

    def exchange_all(self) -> None:
        for name in self.members:
            reply = expect(KeyShares, self.study.ask(name, self.exchange()))
            self.key_shares[name] = from_bundle(reply.payload)

    def make_keys(self) -> None:
        self.exchange_all()
        tags = {expect(Ready, self.study.ask(n, self.open(n))).confirmation for n in self.members}
        assert len(tags) == 1

    # --- legs -------------------------------------------------------------------------------------

    def next_to(self, name: str) -> str:
        """Return who gets this member's model: each of the others in turn."""
        shift = 1 + self.legs % (len(self.members) - 1)
        return self.members[(self.members.index(name) + shift) % len(self.members)]

    def request(self, name: str, **changes: Any) -> TrainLeg:
        """Return the next honest request for a hospital, with changes."""
        envelope = self.envelopes.get(name)
        number = changes.get("leg", self.legs + 1)
        fields: dict[str, Any] = {
            "experiment": self.id,
            "leg": number,
            "first_round": number - 1,
            "local_rounds": 1,
            "carries": Carries.AGGREGATE if envelope is None else Carries.ENVELOPE,
            "sealed_in": None if envelope is None else self.legs,
            "recipient": self.next_to(name),
            "seen": self.study.heads.get(name),
            "payload": envelope or self.first_model.to_bytes(),
        }
        return TrainLeg(**(fields | changes))

    def leg(self, **asked: TrainLeg) -> dict[str, Trained]:
        """Have every member train one leg; `asked` are requests in place of the usual ones."""
        requests = {name: asked.get(name) or self.request(name) for name in self.members}
        replies = {
            name: expect(Trained, self.study.ask(name, request))
            for name, request in requests.items()
        }
        self.legs += 1
        self.asked = requests
        self.envelopes = {
            requests[name].recipient or "": reply.payload for name, reply in replies.items()
        }
        return replies

    def close(self) -> None:
        final = Close(experiment=self.id, payload=self.first_model.to_bytes())
        for name in self.members:
            expect(Closed, self.study.ask(name, final))

    # --- what a malicious member knows ------------------------------------------------------------

    def secret(self, page: str, member: str = "Aspen") -> bytes:
        return self.study.memories[member][f"{self.id}/{page}"]

    def key_of(self, name: str) -> bytes:
        return Announced.from_bytes(name, self.announced[name]).sealing_key


def expect(kind: type[R], reply: Reply) -> R:
    assert isinstance(reply, kind), reply
    return reply


def first_model(fields: Mapping[str, Any]) -> ModelState:
    """Return the first model of a descriptor with these fields."""
    try:
        settings = TrainingSettings.parse(fields["training"], source="test")
        network = Network(settings, TaskSpec(fields["shape"], fields["classes"]), seed=1)
    except (SettingsError, ModelError):
        return ModelState({})  # no descriptor that anybody agrees to
    return ModelState(*network.arrays())


def examples(count: int, seed: int) -> Examples:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, FEATURES)).astype(np.float32)
    return Examples(features, rng.integers(0, CLASSES, count))


def partition(name: str, seed: int) -> Partition:
    return Partition(name, examples(32, seed), examples(8, seed + 1), AGREED)


def new_study(names: tuple[str, ...] = NAMES) -> Study:
    """Return a study without hospitals yet."""
    coordinator = Identity.generate()
    identities = {name: Identity.generate() for name in names}
    members = [Member(name, identity.public) for name, identity in identities.items()]
    return Study(coordinator, identities, Roster.make("attacked", 1, coordinator.public, members))


def in_process(
    study: Study,
    name: str,
    own: Partition,
    chosen: Policy | None = None,
    codebook: bytes | None = None,
    memory: dict[str, bytes] | None = None,
) -> Hospital:
    """Add a hospital to the study that runs in this process; `memory` is from before a restart."""
    memory = {} if memory is None else memory
    hospital = Hospital(
        name,
        own,
        MappingStore(memory),
        identity=study.identities[name],
        roster=study.roster,
        policy=chosen or policy(),
        codebook=codebook,
    )
    study.hospitals[name], study.memories[name] = hospital, memory
    return hospital


def stored_at(study: Study, name: str, store: Store) -> Hospital:
    """Add a hospital to the study, in this process, whose state is in the caller's store."""
    hospital = Hospital(
        name,
        partition(name, 1),
        store,
        identity=study.identities[name],
        roster=study.roster,
        policy=policy(),
    )
    study.hospitals[name] = hospital
    return hospital


def policy(**changes: Any) -> Policy:
    """Return the policy of a victim, with changes."""
    changed = {key.replace("_", "-"): value for key, value in changes.items()}
    return Policy.parse(POLICY | changed, source="test")


def alone(patients_here: Examples, **changes: Any) -> Study:
    """Return a study in which only the victim's data matter; `changes` are of all policies."""
    study = new_study()
    for seed, name in enumerate(NAMES):
        own = patients_here if name == VICTIM else examples(8, seed)
        in_process(study, name, Partition(name, own, examples(8, seed), AGREED), policy(**changes))
    return study


# --- a real agent ---------------------------------------------------------------------------------


@dataclass
class Agent:
    """A hospital behind a socket: its folder, and its process while it runs."""

    folder: HospitalFolder
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def socket(self) -> str:
        return str(self.folder.path / "socket" / "agent.sock")

    @property
    def log(self) -> Path:
        return self.folder.path / "agent.log"

    def answer(self, data: bytes) -> bytes:
        return ask(self.socket, data, patience=10.0)

    def start(self) -> None:
        command = ["-m", "operation.cli", "hospital", "serve", "--folder", str(self.folder.path)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command], stdout=log, stderr=log, env=environment
            )
        deadline = time.monotonic() + 300
        while True:
            try:
                health(self.socket)
                return
            except AgentUnreachable:
                running = self.process.poll() is None and time.monotonic() < deadline
                assert running, self.log.read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=180)
            self.process = None


@contextmanager
def real_agent(study_of: Study, name: str, **settings: object) -> Iterator[Agent]:
    """Enrol the hospital with 40 patients' records, run its agent; `settings` change its toml."""
    # Short, because a socket's path must be.
    with tempfile.TemporaryDirectory(prefix="a", dir="/tmp") as place:
        folder = HospitalFolder(Path(place) / "h")
        initialise(folder, name, "")
        folder.identity_file.write_bytes(study_of.identities[name].to_bytes())
        folder.pin(study_of.roster.signed(study_of.coordinator))
        own = examples(40, seed=4711)
        rows = zip(own.features.tolist(), own.labels.tolist(), strict=True)
        lines = ["a,b,c,d,label", *(",".join(map(str, (*x, y))) for x, y in rows)]
        (folder.path / "data").mkdir(mode=0o700)
        (folder.path / "data" / "records.csv").write_text("\n".join(lines))
        text = folder.configuration.read_text()
        given: dict[str, object] = {
            "approval": '"automatic"',
            "maximum_experiments": 1000,
            "plain_aggregation": "true",
            "classes": '["0", "1"]',
        }
        for key, value in (given | settings).items():
            before, found, after = text.partition(f"\n{key.replace('_', '-')} = ")
            assert found, key
            text = f"{before}{found}{value}\n{after.partition(chr(10))[2]}"
        folder.configuration.write_text(text)
        agent = Agent(folder)
        agent.start()
        study_of.hospitals[name] = agent
        try:
            yield agent
        finally:
            agent.stop()


def whole_study(victim: str = VICTIM) -> Study:
    """Return a study whose members, all but the victim, are in this process."""
    study = new_study()
    for seed, name in enumerate(NAMES):
        if name != victim:
            in_process(study, name, partition(name, seed))
    return study


def refused(reply: Reply) -> str:
    return expect(Refusal, reply).code
