"""The experiments that this hospital has agreed to, each with the training it describes."""

import secrets

from client_app.hospital.local_training import LocalTraining, parse_settings
from client_app.hospital.refusal import Refused
from client_app.state.store import STREAM_SECRET, Store
from learning.data import Partition
from protocol.descriptor import Descriptor
from protocol.messages import ExperimentRequest, RefusalCode
from protocol.randomness import SEED_BYTES, TrainingStreams, private_seed
from protocol.study.roster import Roster

from .admission import store_of
from .agreed_experiment import AgreedExperiment, Agreement


class Agreements:
    """Finds agreements in the store, and keeps the last one: its training is costly to build.

    With `private_streams`, batches and dropout are drawn from a secret that stays here.
    """

    def __init__(
        self, name: str, partition: Partition, store: Store, *, private_streams: bool, device: str
    ) -> None:
        self._name, self._partition, self._store = name, partition, store
        self._private_streams, self._device = private_streams, device
        self._built: dict[bytes, Agreement] = {}  # by descriptor

    def with_store(self, store: Store) -> "Agreements":
        """Return those of another store, sharing what is costly to build."""
        copy = Agreements(
            self._name,
            self._partition,
            store,
            private_streams=self._private_streams,
            device=self._device,
        )
        copy._built = self._built
        return copy

    def of(self, request: ExperimentRequest) -> AgreedExperiment:
        """Return the experiment of a request, with the roster of its generation."""
        store = store_of(request, self._store)
        agreed, roster = store.descriptor, store.roster
        if agreed is None or roster is None:
            raise Refused(RefusalCode.UNKNOWN_EXPERIMENT, f"no agreement on {store.experiment}")
        return AgreedExperiment(self._name, store, roster, self.build(agreed, roster))

    def build(self, agreed: bytes, roster: Roster) -> Agreement:
        """Return what follows from a descriptor."""
        if agreed not in self._built:
            descriptor = Descriptor.from_bytes(agreed)
            streams = TrainingStreams(self._stream_seed(descriptor), roster.names.index(self._name))
            training = LocalTraining(
                descriptor, parse_settings(descriptor), self._partition, streams, self._device
            )
            self._built.clear()  # one experiment at a time: data on a device can be large
            self._built[agreed] = Agreement(
                descriptor, descriptor.schedule().legs, training, len(self._partition.train)
            )
        return self._built[agreed]

    def forget(self, agreed: bytes) -> None:
        """Forget what was refused: the secret of its streams may be new, and is not stored."""
        del self._built[agreed]

    def _stream_seed(self, descriptor: Descriptor) -> bytes:
        """Return the seed of batches, dropout and own first models."""
        if not self._private_streams:
            return descriptor.training_seed
        secret = self._store.get(STREAM_SECRET)
        if secret is None:
            secret = secrets.token_bytes(SEED_BYTES)
            self._store.put(STREAM_SECRET, secret)
        return private_seed(secret, descriptor.experiment)
