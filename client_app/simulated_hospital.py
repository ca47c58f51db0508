"""Simulated hospitals: the same hospital code, in process, its memory in Flower's Context."""

from collections.abc import Iterator, MutableMapping
from functools import lru_cache

import torch
from flwr.app import ConfigRecord, Context

from client_app.hospital.hospital import Hospital
from client_app.hospital.policy import Policy
from client_app.state.store import MappingStore
from learning.local_data import load_partitions
from learning.settings import LocalSettings
from protocol.study.simulated_study import SimulatedStudy, simulated_study

_RECORD = "feddc-hospital"
# A simulated hospital has nothing to hide: it tells all its figures, unrounded.
_POLICY = Policy.parse(
    {
        "minimum-cohort": 2,
        "minimum-local-items": 1,
        "minimum-batch": 1,
        "maximum-rounds": 2**31,
        "maximum-learning-rate": 1e9,
        "metric-decimals": 12,
        "minimum-held-out": 1,
        "max-share-per-recipient": 1.0,
        "any-model": True,
        "unsealed": True,
    },
    source="simulation",
)


def answer(data: bytes, context: Context) -> bytes:
    """Answer a request as the hospital that this virtual node simulates."""
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
    return hospital.remembering(MappingStore(ContextState(context))).answer(data)


@lru_cache(maxsize=2048)
def _hospital(local: LocalSettings, seed: int, position: int, hospitals: int) -> Hospital:
    # Only what follows from the arguments is cached: any process may serve any hospital.
    share = load_partitions(local, hospitals, seed)[position]
    study = _study(local, hospitals, seed)
    return Hospital(
        share.name,
        share,
        MappingStore({}),
        identity=study.identities[share.name],
        roster=study.roster,
        policy=_POLICY,
        device=local.device,
    )


@lru_cache(maxsize=2)
def _study(local: LocalSettings, hospitals: int, seed: int) -> SimulatedStudy:
    return simulated_study(seed, [share.name for share in load_partitions(local, hospitals, seed)])


class ContextState(MutableMapping[str, bytes]):
    """A hospital's memory, kept by Flower between messages: Ray's actors share none."""

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
