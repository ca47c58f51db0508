"""The noise that a hospital has put into models since its last average, to be subtracted there.

It is kept until a later request shows that this hospital was in a secure average; a hospital that
missed one subtracts the longer sum at the next.
"""

import numpy as np

from client_app.state.experiment_store import ExperimentStore
from protocol.model_bytes import Arrays, ModelState
from protocol.secure_sum.total import Total

_NOISE, _ROUNDS = "carried-noise", "carried-rounds"


class CarriedNoise:
    """The sum of the noise, and the rounds that it was added in."""

    def __init__(self, store: ExperimentStore) -> None:
        self._store = store

    @property
    def noise(self) -> Arrays:
        stored = self._store.get(_NOISE)
        return {} if stored is None else ModelState.from_bytes(stored).parameters

    @property
    def rounds(self) -> tuple[int, ...]:
        return tuple(
            int(number) for number in np.frombuffer(self._store.get(_ROUNDS) or b"", ">u8")
        )

    def add(self, injected: Arrays, rounds: tuple[int, ...]) -> None:
        """Add the noise of some rounds."""
        earlier = self.noise
        total: Arrays = {
            name: np.add(array, earlier[name]) if name in earlier else array
            for name, array in injected.items()
        }
        self._store.put(_NOISE, ModelState(total).to_bytes())
        self._store.put(_ROUNDS, np.array((*self.rounds, *rounds), ">u8").tobytes())

    def clear_if_summed(self, payload: bytes, hospital: str) -> None:
        """Forget the noise if the sum that a request carries contains this hospital's vector."""
        if hospital in Total.from_bytes(payload).survivors:
            self._store.delete(_NOISE, _ROUNDS)
