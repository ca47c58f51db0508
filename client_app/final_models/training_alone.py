"""A model trained on this hospital's examples alone: what it would have without the study.

It has the experiment's settings, first model and number of rounds. It is trained after the
experiment has closed, as long as all local training of the experiment took together.
"""

from learning.data import Examples
from learning.trainer import Network, Trainer
from protocol.descriptor import Descriptor
from protocol.model_bytes import ModelState
from protocol.randomness import TrainingStreams, shared_init_seed

from .saved_network import new_network

_POSITION = 0  # of the random streams: nobody else draws from them


def train_alone(
    descriptor: Descriptor, examples: Examples, first: ModelState | None, *, device: str
) -> Network | None:
    """Return the network after all rounds; None if training diverged.

    `first` is the model that the experiment began with, if the coordinator gave one; otherwise it
    is built from the training seed, as the hospitals did.
    """
    streams = TrainingStreams(descriptor.training_seed, _POSITION)
    is_shared = descriptor.init == "shared"
    seed = shared_init_seed(descriptor.training_seed) if is_shared else streams.init_seed()
    network = new_network(descriptor, seed=seed, device=device)
    if first is not None:
        network.load(first.parameters, first.buffers)
    trainer = Trainer(network, examples, streams)
    # Without aggregates: nothing resets the optimiser's state, and FedProx has no anchor.
    trainer.train(0, descriptor.rounds, trainer.fresh_optimizer(), anchor=None)
    return network if ModelState(*network.arrays()).is_finite() else None
