"""Train models one after another, distributed over the cores: for larger networks."""

import copy
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import torch

from lab.engine.data import HospitalData
from lab.engine.routes import Work
from lab.engine.stack import Stack
from lab.engine.training_interface import Anchors, LegMetrics
from learning.trainer import Network, local_step, optimizer_spec, seed_network
from protocol.randomness import TrainingStreams


class Looped:
    """Trains models in their slots, as many at a time as there are networks.

    Threads are sufficient: torch releases Python's lock during operations. A network with dropout
    uses torch's global generator, so it gets a single worker.
    """

    def __init__(
        self,
        networks: list[Network],
        stack: Stack,
        data: HospitalData,
        training_seed: bytes,
    ) -> None:
        self._random = is_random(networks[0], data)
        self._networks = networks[:1] if self._random else networks
        self._stack, self._data, self._seed = stack, data, training_seed
        self._spec = optimizer_spec(networks[0].settings)
        self._pool: ThreadPoolExecutor | None = None
        self.state: dict[str, torch.Tensor] = {}
        if len(self._networks) > 1:
            self._pool = ThreadPoolExecutor(
                len(self._networks), "feddc-trainer", lambda: torch.set_num_threads(1)
            )

    def train(self, work: Work, anchors: Anchors) -> LegMetrics:
        losses = torch.empty(len(work), dtype=torch.float64)
        accuracies = torch.empty(len(work), dtype=torch.float64)
        todo = deque(range(len(work)))

        def train_some(network: Network) -> None:
            while True:
                try:
                    number = todo.popleft()
                except IndexError:
                    return
                losses[number], accuracies[number] = self._train(network, work, number, anchors)

        if self._pool is None:
            gpus = [network.device for network in self._networks if network.device.type == "cuda"]
            with torch.random.fork_rng(devices=gpus):
                train_some(self._networks[0])
        else:
            try:
                list(self._pool.map(train_some, self._networks))
            finally:
                todo.clear()  # after a failure, the other threads stop
        return LegMetrics(losses, accuracies)

    def _train(
        self, network: Network, work: Work, number: int, anchors: Anchors
    ) -> tuple[float, float]:
        hospital, slot = int(work.hospitals[number]), int(work.slots[number])
        self._bind(network, slot)
        state = {name: tensor[slot] for name, tensor in self._stack.optimizer.items()}
        pull = anchors.of(hospital) if network.settings.proximal_mu else None
        streams = TrainingStreams(self._seed, hospital)
        total = torch.zeros(2, dtype=torch.float64)
        first = int(work.first_rounds[number])
        for round_ in range(first, work.last_round + 1):
            if self._random:
                seed_network(network, streams.dropout_seed(round_))
            batch = self._data.one(hospital, round_)
            metrics = local_step(network, self._spec, round_, batch, state, pull)
            total += torch.stack([figure.to("cpu", torch.float64) for figure in metrics])
        loss, accuracy = (total / (work.last_round + 1 - first)).tolist()
        return loss, accuracy

    def _bind(self, network: Network, slot: int) -> None:
        """Point the network's tensors at the slot, so that training changes the stack in place."""
        for own, tensors in (
            (network.parameters, self._stack.parameters),
            (network.buffers, self._stack.buffers),
        ):
            for name, tensor in own.items():
                tensor.data = tensors[name][slot]


def is_random(network: Network, data: HospitalData) -> bool:
    """Return whether the network draws random numbers in training mode."""
    module = copy.deepcopy(network.module).train()  # its running statistics must not change
    gpus = [network.device] if network.device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus), torch.no_grad():
        before = _generators(network.device)
        module(data.features[0, :8])
        return not torch.equal(before, _generators(network.device))


def _generators(device: torch.device) -> torch.Tensor:
    state = torch.default_generator.get_state()
    return torch.cat([state, torch.cuda.get_rng_state(device)]) if device.type == "cuda" else state
