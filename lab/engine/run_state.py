"""The state of a run: models, routes, anchors, aggregator and history."""

import numpy as np
from numpy.typing import NDArray

from lab.engine.backends.backend import TrainingInputs, cores, prepare
from lab.engine.backends.memory import keep_freed_memory
from lab.engine.backends.speed import Speedometer
from lab.engine.private.budget import with_computed_noise
from lab.engine.private.prepare_private import prepare_private
from learning.local_data import load_dataset, load_partitions
from learning.trainer import Network, TaskSpec
from protocol.model_bytes import ModelState
from protocol.randomness import TrainingStreams, derive_seed, shared_init_seed
from protocol.schedule import Leg
from server_app.config.aggregators import build_aggregator
from server_app.config.run_config import Settings, preflight

from .aggregation import Aggregation
from .device import chosen_device
from .evaluation import AggregateEvaluator
from .outcome import AggregateEvaluation, History, Outcome
from .routes import Routes, Work
from .training_interface import Anchors, Backend


class RunState:
    """Everything in a run that changes, built from the settings."""

    def __init__(
        self,
        settings: Settings,
        backend: Backend,
        workers: int | None,
        *,
        evaluate_clients: bool,
        evaluate_held_out: bool,
        test_sample: int | None,
    ) -> None:
        settings = with_computed_noise(settings)
        preflight(settings)
        algorithm = settings.algorithm
        # The same two secrets as on Flower's engine: the same routes, batches and first models.
        route_seed = derive_seed(algorithm.seed, "route")
        training_seed = derive_seed(algorithm.seed, "training")
        dataset = load_dataset(settings.local, algorithm.seed)
        partitions = load_partitions(settings.local, algorithm.hospitals, algorithm.seed)
        task = TaskSpec(dataset.shape, len(dataset.classes))
        self._evaluator = AggregateEvaluator(
            settings.training,
            dataset,
            partitions,
            init_seed=shared_init_seed(training_seed),
            seed=algorithm.seed,
            sample=test_sample,
            held_out=evaluate_held_out,
        )
        first_model = self._evaluator.first_model
        self.settings, self.wire = settings, settings.training.wire_dtype
        self.examples = np.array([len(partition.train) for partition in partitions])
        self.aggregation = Aggregation(
            build_aggregator(settings, route_seed=route_seed),
            first_model,
            own_init=algorithm.init == "own",
            config=settings.training.as_config(),
            hospitals=algorithm.hospitals,
            quorum=algorithm.quorum,
        )
        device = chosen_device(settings.local)
        inputs = TrainingInputs(
            training=self.aggregation.training,
            task=task,
            examples=[partition.train for partition in partitions],
            first_model=first_model,
            training_seed=training_seed,
            device=device,
            workers=1 if device.type == "cuda" else min(workers or cores(), algorithm.hospitals),
        )
        if len(task.shape) == 3:
            keep_freed_memory()
        if settings.training.privacy_unit == "none":
            prepared = prepare(backend, inputs)
        else:
            prepared = prepare_private(backend, inputs, settings)
        self.backend, self.stack = prepared.backend, prepared.stack
        self.training = prepared.training
        self.legs = _legs(settings, route_seed)
        self.routes = Routes(
            hospitals=algorithm.hospitals,
            last_leg=self.legs[-1].number,
            permutation=algorithm.permutation,
            fraction=algorithm.fraction,
            route_seed=route_seed,
            counts_visits=algorithm.weighting == "chain-examples",
        )
        self.anchors = Anchors.none(algorithm.hospitals)
        self.history = History()
        self._evaluates_clients = evaluate_clients
        self._pulls = inputs.training.proximal_mu > 0
        self._first_models(inputs)

    def _first_models(self, inputs: TrainingInputs) -> None:
        everyone = np.arange(self.settings.algorithm.hospitals)
        if self.settings.algorithm.init == "shared":
            self.stack.fill(everyone, inputs.first_model, self.wire)
            self._received(everyone, inputs.first_model)
            return
        for hospital in everyone:
            seed = TrainingStreams(inputs.training_seed, int(hospital)).init_seed()
            own = Network(inputs.training, inputs.task, seed=seed)
            self.stack.fill(everyone[hospital : hospital + 1], ModelState(*own.arrays()))

    def count_steps(self, work: Work) -> None:
        """Count Adam's steps as a hospital does, whatever the models have missed."""
        if self.settings.training.optimizer_state == "reset":
            self.stack.set_steps(work.slots, work.since_aggregate)

    def weights(self, work: Work) -> NDArray[np.float64]:
        """Return each model's weight in the aggregate."""
        match self.settings.algorithm.weighting:
            case "equal":
                return np.ones(len(work))
            case "examples":
                return self.examples[work.hospitals].astype(np.float64)
            case "chain-examples":
                weights: NDArray[np.float64] = self.routes.visited(work) @ self.examples.astype(
                    float
                )
                return weights

    def continue_from(self, aggregate: ModelState, work: Work) -> None:
        """Give the aggregate to all hospitals of the leg."""
        self.stack.fill(work.slots, aggregate, self.wire)
        if self.settings.training.optimizer_state == "reset":
            self.stack.forget_optimizer(work.slots)
        # With `kept` there is nothing to move: the state stays in the slot of the sent model.
        self._received(work.hospitals, aggregate)
        self.routes.aggregated(work)

    def _received(self, hospitals: NDArray[np.int64], model: ModelState) -> None:
        if self._pulls:
            device = next(iter(self.stack.parameters.values())).device
            self.anchors.received(hospitals, model.parameters, self.wire, device)

    def evaluate(self, leg: Leg, aggregate: ModelState, *, every: int) -> None:
        """Evaluate an aggregate on the test set, if an evaluation is due."""
        round_ = leg.last_round + 1
        last = self.history.evaluations[-1].round if self.history.evaluations else 0
        is_last = leg is self.legs[-1]
        if round_ - last < every and not is_last:
            return
        metrics = self._evaluator.evaluate(aggregate, last=is_last)
        held_out = self._evaluator.held_out(aggregate)
        if is_last:
            self.history.held_out = held_out
        if metrics is not None:
            self.history.evaluations.append(
                AggregateEvaluation(
                    round_, self.history.aggregations, self.history.messages, metrics, held_out
                )
            )

    def evaluate_clients(self, work: Work) -> None:
        """Evaluate every hospital's own model, before the last aggregation."""
        if not self._evaluates_clients:
            return
        for slot in work.slots:
            model = self.stack.model(int(slot))
            for metrics, where in (
                (self._evaluator.evaluate(model, last=False), self.history.clients),
                (self._evaluator.held_out(model), self.history.clients_held_out),
            ):
                if metrics is not None:
                    where.append(metrics)

    def rounds_done(self, legs: int) -> int:
        return self.legs[legs - 1].last_round + 1 if legs else 0

    def outcome(self, pace: Speedometer, *, complete: bool) -> Outcome:
        return Outcome(
            model=self.aggregation.wrapped.model,
            history=self.history,
            complete=complete,
            backend=self.backend,
            seconds=pace.seconds,
            client_rounds_per_s=pace.client_rounds_per_s,
        )


def _legs(settings: Settings, route_seed: bytes) -> tuple[Leg, ...]:
    return settings.algorithm.to_schedule(route_seed).legs
