"""Simulated hospitals: the same hospital code in process, with its state in Flower's Context."""

from collections.abc import Iterator, MutableMapping
from functools import lru_cache

import torch
from flwr.app import ConfigRecord, Context

from client_app.hospital.agreement.policy import Policy
from client_app.hospital.hospital import Hospital
from client_app.state.store import MappingStore
from learning.local_data import load_partitions
from learning.privacy import NoiseSource
from learning.settings import LocalSettings
from protocol.randomness import derive_seed
from protocol.study.simulated_study import SimulatedStudy, simulated_study

_RECORD = "feddc-hospital"
# A simulated hospital has no patients to protect: it reports all metrics, unrounded.
_POLICY = Policy.parse(
    {
        "approval": "automatic",
        "minimum-cohort": 2,
        "minimum-local-examples": 1,
        "minimum-batch": 1,
        "maximum-rounds": 2**31,
        "maximum-learning-rate": 1e9,
        "metric-decimals": 12,
        "minimum-held-out": 1,
        "maximum-fraction-per-recipient": 1.0,
        "any-model": True,
        "maximum-parameters": 2**53,
        "metrics": ["examples", "loss", "accuracy", "held-out"],
        "plain-aggregation": True,
        "aggregate": "same",
        "private-streams": False,
        "sealed": False,
        "hand-on-diverged": False,
    },
    source="simulation",
)


def answer(data: bytes, context: Context) -> bytes:
    """Answer a request as the hospital that this node simulates."""
    config = {key: context.run_config[key] for key in LocalSettings.key_names()}
    local = LocalSettings.parse(config, source="run config")
    if torch.get_num_threads() != local.threads:
        torch.set_num_threads(local.threads)
    hospital = _hospital(
        local,
        int(context.run_config["seed"]),
        int(context.node_config["partition-id"]),
        int(context.node_config["num-partitions"]),
    )
    return hospital.with_store(MappingStore(ContextState(context))).answer(data)


@lru_cache(maxsize=2048)
def _hospital(local: LocalSettings, seed: int, position: int, hospitals: int) -> Hospital:
    # Cache only what the arguments determine: any process may serve any hospital.
    partition = load_partitions(local, hospitals, seed)[position]
    study = _study(local, hospitals, seed)
    return Hospital(
        partition.name,
        partition,
        MappingStore({}),
        identity=study.identities[partition.name],
        roster=study.roster,
        policy=_POLICY,
        device=local.device,
        # As all of a simulation's secrets, the noise follows from its seed.
        noise=lambda: NoiseSource(derive_seed(seed, "noise")).source("hospital", position),
    )


@lru_cache(maxsize=2)
def _study(local: LocalSettings, hospitals: int, seed: int) -> SimulatedStudy:
    return simulated_study(
        seed, [partition.name for partition in load_partitions(local, hospitals, seed)]
    )


class ContextState(MutableMapping[str, bytes]):
    """A hospital's state, kept by Flower between messages, because Ray's actors share no memory."""

    def __init__(self, context: Context) -> None:
        if _RECORD not in context.state:
            context.state[_RECORD] = ConfigRecord()
        self._record = context.state.config_records[_RECORD]

    def __getitem__(self, key: str) -> bytes:
        value = self._record[key]
        if not isinstance(value, bytes):
            raise TypeError(f"{key} holds {type(value).__name__}, expected bytes")
        return value

    def __setitem__(self, key: str, value: bytes) -> None:
        self._record[key] = value

    def __delitem__(self, key: str) -> None:
        del self._record[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)
