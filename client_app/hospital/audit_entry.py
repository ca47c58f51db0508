"""What the audit log says about a reply: how much was sent to whom, and who can read it."""

import hashlib
import math
from typing import Any

from protocol.message_bytes import encode
from protocol.messages import Masked, Reply, Request, Reveal, SharesRevealed, Trained, TrainLeg

from .agreement.agreements import Agreements
from .privacy.spending import Spending


def audit_entry(
    request: Request, reply: Reply, agreements: Agreements, spending: Spending
) -> dict[str, Any]:
    """Return the entry for a reply that is not a refusal."""
    sent: dict[str, Any] = {
        "kind": reply.kind,
        "bytes": len(reply.payload),
        # Of the reply as it is signed, but without the head of this log.
        "digest": hashlib.sha256(encode(reply)).hexdigest(),
    }
    if isinstance(reply, Trained):
        recipient = request.recipient if isinstance(request, TrainLeg) else None
        sent |= {"recipient": recipient or "coordinator", "readable": not reply.sealed}
    elif isinstance(reply, Masked):
        sent |= {"recipient": "coordinator", "readable": False}
    elif isinstance(reply, SharesRevealed):
        # The coordinator can read the sum with the others', from now on.
        sent |= {"recipient": "coordinator", "readable": f"sum of {reply.summands}"}
        if isinstance(request, Reveal):
            is_closing = request.leg > len(agreements.of(request).legs)
            sent["content"] = "figures" if is_closing else "model"
    if isinstance(request, TrainLeg):
        sent |= _epsilon(request, agreements, spending)
    return sent


def _epsilon(
    request: TrainLeg, agreements: Agreements, spending: Spending
) -> dict[str, float | None]:
    """Return ε of all releases with noise so far, this one included.

    JSON has no infinity: where there is next to no noise, it is null.
    """
    if agreements.of(request).training.settings.privacy_unit == "none":
        return {}
    spent = spending.epsilon(request.experiment)
    return {"epsilon": round(spent, 6) if math.isfinite(spent) else None}
