"""A member's three steps in a secure sum. What it must remember between them is the caller's."""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from protocol.canonical import prefixed
from protocol.sealing.bundle import BundleError, from_bundle, to_bundle
from protocol.sealing.keys import Identity, SealingKey

from .masks import add_masks, pair_masks
from .secure_leg import SecureLeg, SecureSumError
from .seed_shares import Draw, open_shares, seal_shares, split_seeds
from .seeds import leg_pair_seed, tag_seed
from .shamir import SEED_BYTES
from .statements import (
    STATEMENT_BYTES,
    Statement,
    check_statements,
    check_survivor_signatures,
    make_statement,
    sign_survivors,
)
from .tag import add_tag
from .vector import SumForm, Vector


@dataclass(frozen=True)
class MaskedVector:
    """What a member sends in trip 1. `shares` are sealed, by recipient."""

    vector: Vector = field(repr=False)
    statement: Statement
    shares: Mapping[str, bytes] = field(repr=False)

    def to_bytes(self) -> bytes:
        """Return the statement, the length of the shares, their bundle, then the vector."""
        shares = to_bundle(self.shares)
        return b"".join((self.statement.to_bytes(), prefixed(shares), *self.vector.parts()))

    @staticmethod
    def from_bytes(data: bytes, form: SumForm[Any]) -> "MaskedVector":
        """Parse a masked vector, which is not copied, and check it against its statement."""
        start = STATEMENT_BYTES + 4
        end = start + int.from_bytes(data[STATEMENT_BYTES:start], "big")
        if len(data) != end + form.length:
            raise SecureSumError(f"{len(data)} bytes are no masked vector of this model")
        try:
            shares = from_bundle(data[start:end])
        except BundleError as error:
            raise SecureSumError(str(error)) from error
        statement = Statement.from_bytes(data[:STATEMENT_BYTES])
        vector = memoryview(data)[end:]
        if hashlib.sha256(vector).digest() != statement.vector:
            raise SecureSumError("the vector is not the one in its statement")
        return MaskedVector(form.from_bytes(vector), statement, shares)


@dataclass(frozen=True)
class Member:
    """One member of a generation: its keys, and what it knows of the others, by name."""

    name: str
    identity: Identity
    sealing_key: SealingKey
    member_key: bytes = field(repr=False)
    pair_keys: Mapping[str, bytes] = field(repr=False)
    sealing_keys: Mapping[str, bytes] = field(repr=False)
    identities: Mapping[str, bytes] = field(repr=False)

    def mask(
        self,
        leg: SecureLeg,
        vector: Vector,
        *,
        aggregate: bytes,
        draw_seed: Callable[[int], bytes] = secrets.token_bytes,
        draw: Draw = secrets.randbelow,
    ) -> MaskedVector:
        """Trip 1: tag and mask a vector, in place; sign it and share the seeds of its masks.

        `aggregate` is the digest of the last aggregate that this member has received.
        """
        if self.name not in leg.cohort:
            raise SecureSumError(f"{self.name} is not in the cohort")
        add_tag(vector, tag_seed(self.member_key, leg))
        others = [name for name in leg.cohort if name != self.name]
        pair_seeds = {name: leg_pair_seed(self.pair_keys[name], leg) for name in others}
        self_seed = draw_seed(SEED_BYTES)
        plus, minus = pair_masks(self.name, pair_seeds)
        add_masks(vector, [self_seed, *plus], minus)
        digest = hashlib.sha256()
        for part in vector.parts():
            digest.update(part)
        shares = split_seeds(leg, pair_seeds | {self.name: self_seed}, draw)
        return MaskedVector(
            vector,
            make_statement(
                leg,
                self.identity,
                name=self.name,
                aggregate=aggregate,
                vector=digest.digest(),
            ),
            seal_shares(
                leg,
                self.identity,
                shares,
                name=self.name,
                sealing_keys=self.sealing_keys,
                member_key=self.member_key,
            ),
        )

    def sign_survivors(
        self,
        leg: SecureLeg,
        statements: Mapping[str, Statement],
        *,
        own: Statement,
        aggregate: bytes,
    ) -> bytes:
        """Trip 2: check the survivors' statements and sign them. Call once per leg."""
        if statements.get(self.name) != own:
            raise SecureSumError("the survivors do not include the vector that was sent from here")
        check_statements(leg, statements, aggregate=aggregate, identities=self.identities)
        return sign_survivors(leg, self.identity, statements)

    def reveal(
        self,
        leg: SecureLeg,
        statements: Mapping[str, Statement],
        signatures: Mapping[str, bytes],
        shares: Mapping[str, bytes],
    ) -> bytes:
        """Trip 3: reveal what removes the masks of the sum over the survivors, and nothing else.

        `statements` are those this member has signed in trip 2; `shares` those sealed for it by the
        survivors. For each survivor, in order: the share of its self seed, then of its pair seeds
        with those who have dropped out.
        """
        check_survivor_signatures(leg, statements, signatures, identities=self.identities)
        if set(shares) != set(statements):
            raise SecureSumError("there must be shares of every survivor")
        dropped = leg.dropped(statements)
        revealed = []
        for sender in sorted(statements):
            opened = open_shares(
                leg,
                shares[sender],
                sender=sender,
                recipient=self.name,
                sender_identity=self.identities[sender],
                key=self.sealing_key,
                member_key=self.member_key,
            )
            revealed += [opened[name] for name in (sender, *dropped)]
        return b"".join(revealed)
