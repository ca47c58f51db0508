"""A hospital whose agent can be killed and started again on what is on its disk."""

import math
from pathlib import Path
from typing import Any

from scipy.optimize import brentq
from scipy.stats import norm

from client_app.hospital.hospital import Hospital
from client_app.hospital.privacy.spending import total_epsilon
from client_app.state.privacy.ledger import PrivacyLedger, Totals
from client_app.state.privacy.ledger_file import open_ledger_file
from client_app.state.sqlite_store import SqliteStore
from protocol.message_bytes import decode_signed_reply
from protocol.messages import Refusal
from tests.client_app.small_hospital import (
    EVERY_LEG_AGGREGATES,
    IDENTITIES,
    NAME,
    OPEN_POLICY,
    PARTITIONS,
    ROSTER,
    TRAINING,
    Policy,
    descriptor,
    leg,
    model,
    set_up,
)

NOISE: dict[str, Any] = {
    "privacy-unit": "patient",
    "noise-multiplier": 8.0,
    "nominal-patients": 8,
    "batch-size": 0,
}


class Site:
    """A hospital whose agent can be killed: all that survives is on the disk."""

    def __init__(self, folder: Path, **policy: Any) -> None:
        self.folder, self._policy = folder, policy
        self.store: SqliteStore
        self.hospital: Hospital
        self.start()

    def start(self) -> None:
        self.store = SqliteStore(self.folder / "memory.sqlite")
        self.file = open_ledger_file(self.folder / "ledger")
        self.hospital = Hospital(
            NAME,
            PARTITIONS[NAME],
            self.store,
            identity=IDENTITIES[NAME],
            roster=ROSTER,
            policy=Policy.parse(OPEN_POLICY | self._policy, source="test"),
            privacy_file=self.file,
        )

    def agree(self, experiment: str = "e1", **training: Any) -> None:
        agreed = descriptor(
            experiment=experiment, training=TRAINING | NOISE | training, **EVERY_LEG_AGGREGATES
        )
        assert not isinstance(self.ask(set_up(agreed)), Refusal)

    def ask(self, request: bytes) -> Any:
        return decode_signed_reply(self.hospital.answer(request))

    def train(self, number: int = 1, experiment: str = "e1") -> Any:
        return self.ask(asked(number, experiment))

    def restart(self) -> None:
        self.store.close()
        self.start()

    def totals(self) -> Totals:
        return PrivacyLedger(self.store, self.file).totals()

    def epsilon(self) -> float:
        return total_epsilon(self.totals().everything(), 1e-5)


def asked(number: int = 1, experiment: str = "e1") -> bytes:
    return leg(model(), leg=number, recipient=None, experiment=experiment)


def exact_epsilon(mu: float, delta: float = 1e-5) -> float:
    def excess(eps: float) -> float:
        return float(
            norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu) - delta
        )

    return float(brentq(excess, 1e-6, 200, xtol=1e-10))
