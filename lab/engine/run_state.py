"""A run's state: models, routes, anchors, aggregator, history, and what they are made from."""

import numpy as np
from numpy.typing import NDArray

from lab.engine.backends.backend import Ground, cores, trainers
from lab.engine.backends.memory import keep_freed_memory
from lab.engine.backends.speed import Speedometer
from learning.local_data import load_dataset, load_shares
from learning.trainer import Network, TaskSpec
from protocol.model_bytes import ModelState
from protocol.randomness import TrainingStreams, derive_seed, shared_init_seed
from protocol.schedule import Leg
from server_app.config.aggregators import build_aggregator
from server_app.config.run_config import Settings, preflight

from .aggregation import Aggregation
from .device import chosen_device
from .evaluation import Judge
from .outcome import Evaluation, History, Outcome
from .routes import Routes, Work
from .training import Anchors, Way


class Bench:
    """Everything of a run that changes, and what it is made from."""

    def __init__(
        self,
        settings: Settings,
        way: Way,
        workers: int | None,
        *,
        evaluate_clients: bool,
        evaluate_held_out: bool,
        test_sample: int | None,
    ) -> None:
        preflight(settings)
        chosen = settings.algorithm
        # The same two secrets as on Flower's engine: the same routes, batches and first models.
        route_seed = derive_seed(chosen.seed, "route")
        training_seed = derive_seed(chosen.seed, "training")
        dataset = load_dataset(settings.local, chosen.seed)
        shares = load_shares(settings.local, chosen.hospitals, chosen.seed)
        task = TaskSpec(dataset.shape, len(dataset.classes))
        self._judge = Judge(
            settings.training,
            dataset,
            shares,
            init_seed=shared_init_seed(training_seed),
            seed=chosen.seed,
            sample=test_sample,
            held_out=evaluate_held_out,
        )
        first_model = self._judge.first_model
        self.settings, self.wire = settings, settings.training.wire_dtype
        self.examples = np.array([len(share.train) for share in shares])
        self.aggregation = Aggregation(
            build_aggregator(settings, route_seed=route_seed),
            first_model,
            own_init=chosen.init == "own",
            config=settings.training.as_config(),
            hospitals=chosen.hospitals,
            quorum=chosen.quorum,
        )
        device = chosen_device(settings.local)
        ground = Ground(
            training=self.aggregation.training,
            task=task,
            examples=[share.train for share in shares],
            first_model=first_model,
            training_seed=training_seed,
            device=device,
            workers=1 if device.type == "cuda" else min(workers or cores(), chosen.hospitals),
        )
        if len(task.shape) == 3:
            keep_freed_memory()
        prepared = trainers(way, ground)
        self.way, self.stack, self.training = prepared.way, prepared.stack, prepared.training
        self.legs = _legs(settings, route_seed)
        self.routes = Routes(
            hospitals=chosen.hospitals,
            last_leg=self.legs[-1].number,
            permutation=chosen.permutation,
            fraction=chosen.fraction,
            route_seed=route_seed,
            counts_visits=chosen.weighting == "chain-examples",
        )
        self.anchors = Anchors.none(chosen.hospitals)
        self.history = History()
        self._evaluates_clients = evaluate_clients
        self._pulls = ground.training.proximal_mu > 0
        self._first_models(ground)

    def _first_models(self, ground: Ground) -> None:
        everyone = np.arange(self.settings.algorithm.hospitals)
        if self.settings.algorithm.init == "shared":
            self.stack.fill(everyone, ground.first_model, self.wire)
            self._received(everyone, ground.first_model)
            return
        for hospital in everyone:
            seed = TrainingStreams(ground.training_seed, int(hospital)).init_seed()
            own = Network(ground.training, ground.task, seed=seed)
            self.stack.fill(everyone[hospital : hospital + 1], ModelState(*own.arrays()))

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

    def go_on_from(self, aggregate: ModelState, work: Work) -> None:
        """Give the aggregate to all who took part."""
        self.stack.fill(work.slots, aggregate, self.wire)
        if self.settings.training.optimizer_state == "reset":
            self.stack.forget_optimizer(work.slots)
        # Kept, a hospital's state is where it was: in the slot of the model that it sent.
        self._received(work.hospitals, aggregate)
        self.routes.aggregated(work)

    def _received(self, hospitals: NDArray[np.int64], model: ModelState) -> None:
        if self._pulls:
            device = next(iter(self.stack.parameters.values())).device
            self.anchors.received(hospitals, model.parameters, self.wire, device)

    def evaluate(self, leg: Leg, aggregate: ModelState, *, every: int) -> None:
        """Judge an aggregate on the test set, if it is time."""
        round_ = leg.last_round + 1
        last = self.history.evaluations[-1].round if self.history.evaluations else 0
        is_last = leg is self.legs[-1]
        if round_ - last < every and not is_last:
            return
        figures = self._judge.figures(aggregate, last=is_last)
        if is_last:
            self.history.held_out = self._judge.held_out(aggregate)
        if figures is not None:
            self.history.evaluations.append(
                Evaluation(round_, self.history.aggregations, self.history.messages, figures)
            )

    def evaluate_clients(self, work: Work) -> None:
        """Judge every hospital's own model, before the last aggregation."""
        if not self._evaluates_clients:
            return
        for slot in work.slots:
            model = self.stack.model(int(slot))
            for figures, where in (
                (self._judge.figures(model, last=False), self.history.clients),
                (self._judge.held_out(model), self.history.clients_held_out),
            ):
                if figures is not None:
                    where.append(figures)

    def rounds_done(self, legs: int) -> int:
        return self.legs[legs - 1].last_round + 1 if legs else 0

    def outcome(self, pace: Speedometer, *, complete: bool) -> Outcome:
        return Outcome(
            model=self.aggregation.wrapped.model,
            history=self.history,
            complete=complete,
            way=self.way,
            seconds=pace.seconds,
            client_rounds_per_s=pace.client_rounds_per_s,
        )


def _legs(settings: Settings, route_seed: bytes) -> tuple[Leg, ...]:
    return settings.algorithm.to_schedule(route_seed).legs
