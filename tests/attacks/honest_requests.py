"""What an honest coordinator may ask for, read from the bytes."""

import json
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from tests.attacks.scene import AGREED, AVERAGING, HANDING_OVER, ROUNDS, scene
from tests.attacks.study import CLASSES, FEATURES, NAMES, VICTIM


def may_be_accepted(data: bytes) -> bool:
    """Judge a request that is signed, knowing what the victim remembers."""
    end = 8 + int.from_bytes(data[4:8], "big")
    text, payload = data[8:end], data[end:-64]
    fields = json.loads(text)
    if json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() != text:
        return False
    if (fields["study"], fields["hospital"]) != ("attacked", VICTIM):
        return fields["kind"] == "hello" and fields["hospital"] == "*"
    if fields["kind"] == "hello":
        return set(fields) == {"kind", "study", "hospital"}
    if data in scene().asked or data in scene().signed.values():
        return True
    experiment = fields["experiment"]
    agreed = experiment in AGREED
    match fields["kind"]:
        case "set-up":
            # What is agreed to already was asked for in other bytes.
            return not agreed and is_within_policy(json.loads(payload), experiment)
        case "exchange-key-shares" | "open-key-shares":
            return False  # every byte of them is signed by the members
        case "train-leg":
            return is_a_leg(fields, payload)
        case "close":
            return agreed and is_a_model(payload)
    return False


def is_within_policy(form: dict[str, Any], experiment: str) -> bool:
    training = form["training"]
    batch = training.get("batch-size", 0)
    return (
        form["experiment"] == experiment
        and form["roster"] == scene().study.roster.digest.hex()
        and form["sealed"] is True
        and form["aggregate"] == "verified"
        and form["shape"] == [FEATURES]
        and form["classes"] >= CLASSES
        and 1 <= form["rounds"] <= 100_000
        and training.get("model", "mlp") in ("mlp", "linear")
        and 0 < training.get("learning-rate", 0.1) <= 10
        and (batch == 0 or batch >= 2)
    )


def is_a_leg(fields: dict[str, Any], payload: bytes) -> bool:
    experiment, first, rounds = (fields[k] for k in ("experiment", "first_round", "local_rounds"))
    leg, carries, recipient = fields["leg"], fields["carries"], fields["recipient"]
    if (first, rounds) != (leg - 1, 1) or leg > ROUNDS:
        return False
    if fields["cohort"] is not None:
        return False  # neither experiment averages securely
    if experiment == AVERAGING:
        return leg > 1 and carries == "aggregate" and recipient is None and is_a_model(payload)
    # The other one hands over in every leg before the last.
    fits = experiment == HANDING_OVER and 2 < leg < ROUNDS and recipient in NAMES
    is_the_envelope = fields["sealed_in"] == 2 and payload == scene().leg.payload
    return fits and carries == "envelope" and is_the_envelope


def is_a_model(payload: bytes) -> bool:
    try:
        tensors = load(payload)
    except SafetensorError:
        return False
    wanted = {name: array.shape for name, array in load(scene().model).items()}
    return {name: array.shape for name, array in tensors.items()} == wanted and all(
        array.dtype == np.float32 and np.isfinite(array).all() for array in tensors.values()
    )
