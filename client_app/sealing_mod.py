"""A mod that seals handed-over models in a user's own ClientApp."""

import hashlib
from collections.abc import Callable
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from protocol.sealing import envelope
from protocol.sealing.envelope import EnvelopeError
from protocol.sealing.sealed_arrays import (
    ASK,
    NAME,
    RECIPIENT,
    RECORD,
    ROUND,
    SEALED_IN,
    envelope_of,
    from_payload,
    is_sealed,
    to_envelope_record,
    to_payload,
)

from .site_keys import Site

_KEY_FILE, _ROSTER_FILE = "feddc-key", "feddc-roster"  # in the SuperNode's node config
_OPENED = "feddc-opened"  # in the run's state: digests of the envelopes opened


def sealing_mod(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """Open the model that a message carries, and seal the trained one for its recipient.

    .. code-block:: python

        app = ClientApp(mods=[sealing_mod])     # and FedDC(…, seal_hand_overs=True) at the server

    The SuperNode's node config names two files of this site: `feddc-key`, made by
    `feddc sealing key`, and `feddc-roster`, which the sites agreed on. The server is asked for no
    key. An envelope that was altered, made for another site, run, round or roster, or opened before
    in this run is refused.

    This protects handed-over models in transit and at rest at the server. It does not protect them
    from a coordinator that ships other ClientApp code: that code would have this site's key file.
    For that there is the hospital agent (`SealedStudy`). Models sent for aggregation are readable.
    """
    request = message.content.config_records.get(RECORD)
    if request is None:
        return call_next(message, context)
    site = _site(str(context.node_config[_KEY_FILE]), str(context.node_config[_ROSTER_FILE]))
    if request.get(ASK) == NAME:
        return Message(RecordDict({RECORD: ConfigRecord({NAME: site.name})}), reply_to=message)

    server_round, recipient = int(request[ROUND]), str(request[RECIPIENT])  # type: ignore[arg-type]
    if recipient and recipient not in site.members:
        raise EnvelopeError(f"{recipient!r} is not on this site's roster")
    ((array_key, arrays),) = message.content.array_records.items()
    experiment = str(context.run_id)
    # The app sees the message it would get without sealing; the one that came stays as it was.
    opened = copy(message)
    opened.content = RecordDict({k: r for k, r in message.content.items() if k != RECORD})
    if is_sealed(arrays):
        sealed_in = int(request[SEALED_IN])  # type: ignore[arg-type]
        opened.content[array_key] = _opened(arrays, site, experiment, sealed_in, context)
    reply = call_next(opened, context)
    if reply.has_error() or not recipient:
        return reply
    ((reply_key, trained),) = reply.content.array_records.items()
    sealed = envelope.seal(
        to_payload(trained),
        context=envelope.Context(experiment, site.generation, server_round, recipient),
        recipient_key=site.members[recipient],
        member_key=site.member_key,
    )
    reply.content[reply_key] = to_envelope_record(sealed)
    return reply


def _opened(
    arrays: ArrayRecord, site: Site, experiment: str, sealed_in: int, context: Context
) -> ArrayRecord:
    data = envelope_of(arrays)
    digest = hashlib.sha256(data).digest()
    seen = context.state.config_records.get(_OPENED, ConfigRecord({"digests": []}))
    known = cast(list[bytes], seen["digests"])
    if digest in known:
        raise EnvelopeError("this envelope was opened before")
    payload = envelope.open(
        data,
        context=envelope.Context(experiment, site.generation, sealed_in, site.name),
        key=site.key,
        member_key=site.member_key,
    )
    context.state[_OPENED] = ConfigRecord({"digests": [*known, digest]})
    return from_payload(payload)


@lru_cache(maxsize=4)
def _site(key_file: str, roster_file: str) -> Site:
    return Site.load(Path(key_file), Path(roster_file))
