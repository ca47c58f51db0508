"""Sealing and opening a ResNet18 (45 MB) against bare HPKE: throughput and size.

Both repeat the same work in turn, in one process, in alternating order. Processor time is measured,
which other programs on the machine do not affect.

    python -m benchmarks.envelope [--repetitions 15] [--json]
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from safetensors.torch import save
from torchvision.models import resnet18

from protocol.sealing import envelope
from protocol.sealing.envelope import Context
from protocol.sealing.keys import SealingKey, sealing_public_key


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = measure(save(resnet18(weights=None).state_dict()), arguments.repetitions)
    if arguments.json:
        print(json.dumps(result))
        return
    print(
        f"payload: {result['payload_mb']:.1f} MB; envelope: {100 * result['size_overhead']:+.4f} %"
    )
    for what in ("seal", "open"):
        ours, bare = result[f"{what}_mb_per_s"], result[f"hpke_{what}_mb_per_s"]
        ratio = result[f"{what}_vs_hpke"]
        print(f"{what}: {ours:.0f} MB/s, bare HPKE {bare:.0f} MB/s: {ratio:.2f}×")


def measure(payload: bytes, repetitions: int) -> dict[str, float]:
    suite = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    context = Context("benchmark", os.urandom(envelope.GENERATION_BYTES), 1, "recipient")
    key, member_key = SealingKey.generate(), os.urandom(envelope.MEMBER_KEY_BYTES)
    announced, public = key.public, sealing_public_key(key.public)

    def seal() -> bytes:
        return envelope.seal(
            payload, context=context, recipient_key=announced, member_key=member_key
        )

    sealed, bare = seal(), suite.encrypt(payload, public, info=b"")
    steps: dict[str, Callable[[], bytes]] = {
        "seal": seal,
        "hpke_seal": lambda: suite.encrypt(payload, public, info=b""),
        "open": lambda: envelope.open(sealed, context=context, key=key, member_key=member_key),
        "hpke_open": lambda: suite.decrypt(bare, key.private, info=b""),
    }
    seconds = _seconds(steps, repetitions)
    megabytes = len(payload) / 1e6
    return {
        "seal_vs_hpke": seconds["hpke_seal"] / seconds["seal"],
        "open_vs_hpke": seconds["hpke_open"] / seconds["open"],
        "size_overhead": (len(sealed) - len(payload)) / len(payload),
        **{f"{name}_mb_per_s": megabytes / median for name, median in seconds.items()},
        "payload_mb": megabytes,
        "repetitions": repetitions,
    }


def _seconds(steps: dict[str, Callable[[], bytes]], repetitions: int) -> dict[str, float]:
    """Return the median processor time of each step; the first repetition is a warm-up."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for repetition in range(repetitions + 1):
        for name, step in list(steps.items())[:: -1 if repetition % 2 else 1]:
            started = time.process_time()
            step()
            if repetition > 0:
                taken[name].append(time.process_time() - started)
    return {name: statistics.median(times) for name, times in taken.items()}


if __name__ == "__main__":
    main()
