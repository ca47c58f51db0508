"""What an honest coordinator may ask for, read from the bytes."""

import json
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from tests.attacks.scene import AGREED, ROUNDS, WITH_KEYS, scene
from tests.attacks.study import CLASSES, FEATURES, NAMES


def may_be_accepted(data: bytes) -> bool:
    """Judge a request that is signed, knowing what the victim remembers."""
    end = 8 + int.from_bytes(data[4:8], "big")
    text, payload = data[8:end], data[end:-64]
    fields = json.loads(text)
    if json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() != text:
        return False
    if fields["kind"] == "hello":
        return set(fields) == {"kind"}
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
        and form["shape"] == [FEATURES]
        and form["classes"] >= CLASSES
        and 1 <= form["rounds"] <= 100_000
        and training.get("model", "mlp") in ("mlp", "linear")
        and 0 < training.get("learning-rate", 0.1) <= 10
        and (batch == 0 or batch >= 2)
    )


def is_a_leg(fields: dict[str, Any], payload: bytes) -> bool:
    experiment, first, rounds = (fields[k] for k in ("experiment", "first_round", "local_rounds"))
    keyed = experiment == WITH_KEYS
    fits = (
        experiment in AGREED
        and fields["leg"] > (2 if keyed else 0)
        and first >= 0 < rounds <= ROUNDS - first
        and (fields["recipient"] is None or (keyed and fields["recipient"] in NAMES))
    )
    match fields["carries"]:
        case "envelope":
            return fits and keyed and fields["sealed_in"] == 2 and payload == scene().leg.payload
        case "aggregate":
            return fits and is_a_model(payload)
    return False


def is_a_model(payload: bytes) -> bool:
    try:
        tensors = load(payload)
    except SafetensorError:
        return False
    wanted = {name: array.shape for name, array in load(scene().model).items()}
    return {name: array.shape for name, array in tensors.items()} == wanted and all(
        array.dtype == np.float32 and np.isfinite(array).all() for array in tensors.values()
    )
