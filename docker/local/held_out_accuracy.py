"""Print the accuracy on one hospital's held-out examples: of a model, or of one trained here alone.

Runs in the agent's container: `python - SETTINGS [MODEL]`, where SETTINGS is the JSON object of an
experiment's settings and MODEL a safetensors file in Base64. Without MODEL it trains one on this
hospital's data only, for as many rounds: the baseline that a federation must beat.
"""

import base64
import json
import secrets
import sys
from pathlib import Path
from typing import Any

from safetensors.numpy import load

from client_app.configuration import Configuration
from client_app.hospital_data import load_partition
from client_app.hospital_folder import HospitalFolder
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec, Trainer
from protocol.randomness import SEED_BYTES, TrainingStreams, shared_init_seed


def main() -> None:
    """Load the hospital's data as its agent does, load or train the model, evaluate, print."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    keys = TrainingSettings.key_names()
    training = TrainingSettings.parse(
        {key: value for key, value in settings.items() if key in keys}, source="settings"
    )
    hospital = Configuration.read(Path("/hospital/hospital.toml"))
    partition = load_partition(HospitalFolder(Path("/hospital")), hospital, codebook=None)
    task = TaskSpec(partition.train.features.shape[1:], len(hospital.data.classes))
    seed = secrets.token_bytes(SEED_BYTES)
    network = Network(training, task, seed=shared_init_seed(seed))
    if sys.argv[2:]:
        arrays = load(base64.b64decode(sys.argv[2]))
        network.load(arrays, {name: arrays[name] for name in network.buffers})
    else:
        trainer = Trainer(network, partition.train, TrainingStreams(seed, 0))
        trainer.train(0, settings["rounds"], trainer.fresh_optimizer(), anchor=None)
    metrics = network.evaluate(*network.tensors(partition.held_out))
    sys.stdout.write(f"{metrics.accuracy}\n")


if __name__ == "__main__":
    main()
