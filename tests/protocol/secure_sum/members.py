"""Members of a secure sum in memory, and the three trips between them and a coordinator."""

import functools
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from protocol.model_bytes import ModelState
from protocol.model_size import layout_of
from protocol.sealing.keys import Identity, SealingKey
from protocol.secure_sum.member import MaskedVector, Member
from protocol.secure_sum.secure_leg import SecureLeg, threshold
from protocol.secure_sum.seeds import derive_pair_key, tag_seed
from protocol.secure_sum.statements import Statement
from protocol.secure_sum.tag import check_tag
from protocol.secure_sum.unmasking import unmask
from protocol.secure_sum.vector import Mean, Vector, VectorForm

AGGREGATE = bytes(range(32))
MEMBER_KEY = b"the key that only members have ."
GENERATION = b"g" * 32


@functools.cache
def make_members(count: int) -> dict[str, Member]:
    """Return members that have exchanged all keys; names sort like their numbers."""
    names = [f"h{number:03}" for number in range(count)]
    rng = np.random.default_rng(count)
    identities = {name: Identity.from_bytes(rng.bytes(32)) for name in names}
    sealing = {name: SealingKey.from_bytes(rng.bytes(96)) for name in names}
    pair_keys: dict[str, dict[str, bytes]] = {name: {} for name in names}
    for one, two in itertools.combinations(names, 2):
        key = derive_pair_key({one: rng.bytes(32), two: rng.bytes(32)}, GENERATION)
        pair_keys[one][two] = pair_keys[two][one] = key
    return {
        name: Member(
            name,
            identities[name],
            sealing[name],
            MEMBER_KEY,
            pair_keys[name],
            {n: key.public for n, key in sealing.items()},
            {n: identity.public for n, identity in identities.items()},
        )
        for name in names
    }


def make_leg(members: Collection[str], *, number: int = 7) -> SecureLeg:
    return SecureLeg("e1", GENERATION, number, tuple(sorted(members)), threshold(len(members)))


def make_model(seed: int, *, size: int = 40) -> ModelState:
    """Return a small model of random numbers, with statistics and a counter."""
    rng = np.random.default_rng(seed)
    return ModelState(
        {
            "layer.weight": rng.normal(size=(size // 4, 4)).astype(np.float32),
            "layer.bias": rng.normal(size=4).astype(np.float32),
        },
        {
            "norm.running_var": rng.uniform(0, 5000, size=3).astype(np.float32),
            "norm.batches": np.asarray(seed * 1_000_003, dtype=np.int64),
        },
    )


def form_for(model: ModelState, members: int, **options: bool) -> VectorForm:
    return VectorForm(
        layout_of(model.parameters), layout_of(model.buffers), members=members, **options
    )


@dataclass
class Coordinator:
    """An honest coordinator: it adds vectors up and keeps everything that passes."""

    leg: SecureLeg
    form: VectorForm
    total: Vector = field(init=False)
    masked: dict[str, MaskedVector] = field(default_factory=dict)
    signatures: dict[str, bytes] = field(default_factory=dict)
    revealed: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total = self.form.zeros()

    def receive(self, name: str, masked: MaskedVector) -> None:
        masked = MaskedVector.from_bytes(masked.to_bytes(), self.form)
        self.total.add(masked.vector)
        self.masked[name] = masked

    @property
    def statements(self) -> dict[str, Statement]:
        return {name: masked.statement for name, masked in self.masked.items()}

    def shares_for(self, name: str) -> dict[str, bytes]:
        return {sender: masked.shares[name] for sender, masked in self.masked.items()}

    def finish(self) -> Mean:
        unmask(self.total, self.leg, self.masked, self.revealed)
        check_tag(self.total, tag_seed(MEMBER_KEY, self.leg))
        return self.form.decode(self.total, len(self.masked))


def run_trips(
    members: Mapping[str, Member],
    vectors: Mapping[str, Vector],
    form: VectorForm,
    *,
    dropped: tuple[Collection[str], Collection[str], Collection[str]] = ((), (), ()),
) -> Mean:
    """Run a secure sum; `dropped` are the members that do not answer in each trip, from then on."""
    leg = make_leg(members)
    coordinator = Coordinator(leg, form)
    present = [name for name in members if name not in dropped[0]]
    for name in present:
        masked = members[name].mask(leg, vectors[name], aggregate=AGGREGATE)
        coordinator.receive(name, masked)
    statements = coordinator.statements
    present = [name for name in present if name not in dropped[1]]
    for name in present:
        coordinator.signatures[name] = members[name].sign_survivors(
            leg, statements, own=statements[name], aggregate=AGGREGATE
        )
    for name in present:
        if name not in dropped[2]:
            coordinator.revealed[name] = members[name].reveal(
                leg, statements, coordinator.signatures, coordinator.shares_for(name)
            )
    return coordinator.finish()
