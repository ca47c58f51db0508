"""How plain mode carries sealed models: an ArrayRecord with one envelope, and who it is for.

A message to a node has a ConfigRecord `feddc`. Set-up asks for the node's name; a round gives its
number, the recipient of the trained model ("": send it readable, for aggregation), and, where the
arrays hold an envelope, the round in which it was sealed.
"""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord

from protocol.model_bytes import ModelState

RECORD = "feddc"  # the ConfigRecord's key
ENVELOPE = "feddc-envelope"  # the only array of a sealed model
ASK, NAME = "ask", "name"
ROUND, RECIPIENT, SEALED_IN = "round", "recipient", "sealed-in"


def name_request() -> ConfigRecord:
    return ConfigRecord({ASK: NAME})


def is_sealed(arrays: ArrayRecord) -> bool:
    return set(arrays) == {ENVELOPE}


def to_envelope_record(envelope: bytes) -> ArrayRecord:
    return ArrayRecord({ENVELOPE: Array(np.frombuffer(envelope, dtype=np.uint8))})


def envelope_of(arrays: ArrayRecord) -> bytes:
    return arrays[ENVELOPE].numpy().tobytes()


def to_payload(arrays: ArrayRecord) -> bytes:
    """Return a model's arrays as bytes to be sealed; numbered, because bytes keep no order."""
    numbered = {f"{n:06}:{name}": array.numpy() for n, (name, array) in enumerate(arrays.items())}
    return ModelState(numbered).to_bytes()


def from_payload(payload: bytes) -> ArrayRecord:
    """Return the arrays that `to_payload` wrote, in their order."""
    arrays = ModelState.from_bytes(payload).parameters
    return ArrayRecord(
        {name.partition(":")[2]: Array(np.asarray(arrays[name])) for name in sorted(arrays)}
    )
