"""Local training with the unit `patient`: gradients are noised sums of clipped ones."""

import torch
from torch import Tensor

from learning import optimizers
from learning.data import Examples
from learning.privacy import NoiseSource, PatientGradients, Patients, private_step
from learning.trainer import Network, optimizer_spec, seed_network
from protocol.randomness import TrainingStreams

Tensors = dict[str, Tensor]


class PatientTraining:
    """Trains models one after another on one hospital's patients."""

    def __init__(self, network: Network, examples: Examples, streams: TrainingStreams) -> None:
        self._network = network
        self._gradients = PatientGradients(network)
        self._patients = Patients.of(network, examples)
        self._streams = streams
        self._spec = optimizer_spec(network.settings)

    def train(
        self, rounds: range, state: optimizers.State, noise: NoiseSource, *, last_is_quiet: bool
    ) -> Tensors:
        """Train the loaded network and the optimiser's state in place; return the noise in it.

        With `last_is_quiet` the last round gets no noise: it leaves in an average only.
        """
        network = self._network
        total: Tensors = {}
        gpus = [network.device] if network.device.type == "cuda" else []
        with torch.random.fork_rng(devices=gpus):
            for round_ in rounds:
                seed_network(network, self._streams.dropout_seed(round_))
                is_quiet = last_is_quiet and round_ == rounds[-1]
                step = private_step(
                    self._gradients,
                    self._spec,
                    round_,
                    self._patients,
                    state,
                    noise=None if is_quiet else noise.stream("round", round_),
                    # Which patients are in it is as secret as the noise.
                    batch=noise.stream("batch", round_),
                )
                for name, value in step.injected.items():
                    total[name] = total[name] + value if name in total else value
        return total
