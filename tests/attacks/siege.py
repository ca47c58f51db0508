"""An evil coordinator against a real agent: it has its key, and delivers what and when it likes.

Every attack comes after an honest request that was accepted and changes one thing in the next. It
is refused with its own code, leaves its line in the audit log, and spends nothing: the honest
request is accepted afterwards, as if there had been no attack.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from client_app.state.audit_report import read_audit
from protocol.audit_head import AuditHead
from protocol.message_bytes import encode
from protocol.messages import Close, Closed, Refusal, RefusalCode, Request
from protocol.sealing.keys import Identity
from tests.attacks.study import VICTIM, Agent, Experiment, Study, expect, refused

MAXIMUM = 1 << 20
STRANGER = Identity.generate()
Code = RefusalCode


@dataclass
class Siege:
    """The study under attack, and its experiment as the last attack left it."""

    study: Study
    agent: Agent
    experiment: Experiment | None = None

    def running(self) -> Experiment:
        """Return an experiment in which the victim has already opened an envelope."""
        if self.experiment is None:
            self.experiment = self.study.experiment()
            self.experiment.leg()
            self.experiment.leg()
        return self.experiment

    def refuses(self, request: Request | bytes, code: RefusalCode) -> None:
        """Attack; see the code, nothing else in the reply, and one line in the audit log."""
        data = request if isinstance(request, bytes) else self.study.sign(request)
        lines, _ = read_audit(self.agent.folder)

        reply = self.study.ask(VICTIM, data)

        assert refused(reply) == code
        assert self.study.passed[-1].reply[:-64] == encode(Refusal(code=code, audit=reply.audit))
        after, verdict = read_audit(self.agent.folder)
        assert verdict.broken is None
        assert after[:-1] == lines
        line = json.loads(after[-1])
        assert line["request"]["digest"] == hashlib.sha256(data).hexdigest()
        assert line["reply"] == {"kind": "refusal", "refusal": code}
        assert reply.audit == AuditHead.signed(
            self.study.identities[VICTIM], len(after), hashlib.sha256(after[-1]).digest()
        )


def flipped(position: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        at = position % len(data)
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return flip


def close(study: Study, experiment: Experiment) -> None:
    """End an experiment at the victim."""
    end = Close(experiment=experiment.id, payload=experiment.first_model.to_bytes())
    expect(Closed, study.ask(VICTIM, end))
