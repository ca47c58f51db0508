"""Train a model on one hospital's own data only: the baseline that a federation must beat.

Runs in the agent's container: `python - SETTINGS`, where SETTINGS is the JSON object of an
experiment's settings. Takes as many rounds as the federation, and prints the accuracy on the
hospital's held-out examples.
"""

import json
import secrets
import sys
from pathlib import Path
from typing import Any

from client_app.configuration import Configuration
from learning.local_data import load_own
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec, Trainer
from protocol.randomness import SEED_BYTES, TrainingStreams, shared_init_seed


def main() -> None:
    """Load the hospital's data as its agent does, train, evaluate, print."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    keys = TrainingSettings.key_names()
    training = TrainingSettings.parse(
        {key: value for key, value in settings.items() if key in keys}, source="settings"
    )
    hospital = Configuration.read(Path("/hospital/hospital.toml"))
    partition = load_own(
        hospital.local,
        hospital.hospital.name,
        classes=tuple(hospital.data.classes),
        standardise=hospital.data.standardise,
    )
    task = TaskSpec(partition.train.features.shape[1:], len(hospital.data.classes))
    seed = secrets.token_bytes(SEED_BYTES)
    network = Network(training, task, seed=shared_init_seed(seed))
    trainer = Trainer(network, partition.train, TrainingStreams(seed, 0))
    trainer.train(0, settings["rounds"], trainer.fresh_optimizer(), anchor=None)
    metrics = network.evaluate(*network.tensors(partition.held_out))
    sys.stdout.write(f"{metrics.accuracy}\n")


if __name__ == "__main__":
    main()
