"""Federated daisy-chaining (Kamp, Fischer, Vreeken, ICLR 2023) around any Flower strategy."""

import secrets
from collections.abc import Callable, Collection, Iterable
from logging import INFO, WARNING
from typing import NoReturn

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from operation.flower.logger import log
from protocol.descriptor import Init
from protocol.randomness import SEED_BYTES, derive_seed
from protocol.schedule import Ending
from strategies.identifiers import Position
from strategies.plain.plain_run import PlainRun
from strategies.plain.preconditions import check_plain, connected_nodes
from strategies.plain.rounds import Rounds
from strategies.plain.streaming_grid import StreamingGrid
from strategies.routing.permutation import Permutation
from strategies.session.sealed_study import SealedStudy
from strategies.session.session import Session
from strategies.settings import FedDCSettings, Weighting
from strategies.wrapped.adapter import Contribution, Wrapped
from strategies.wrapped.array_records import not_trainable, to_model, to_record


class FedDC(Strategy):
    """Federated daisy-chaining: hand models on between aggregations.

    .. code-block:: python

        strategy = FedDC(FedAvg(), daisy_period=1, aggregation_period=10)
        result = strategy.start(grid, initial_arrays, num_rounds=100)

    hands every node's model to another random node after each round, and lets FedAvg aggregate
    every tenth. `daisy_period=None` is the wrapped strategy alone; `aggregation_period=None` is
    plain daisy-chaining. `num_rounds` is the paper's T: the number of local updates of every model.

    Without `study` this is *plain mode*, for any ClientApp: one call of its `train` is one round.
    The coordinator can read every model in plain mode; `SealedStudy` is for hospitals whose models
    it must not read. With `study` the sealed protocol runs with this project's hospitals.

    Parameters
    ----------
    strategy : Strategy
        Any Flower message-API strategy, its own `fraction_train` left at 1. One of its server
        rounds is one aggregation. FedProx's anchor is the model that a node receives, as in Flower.
    study : SealedStudy | None (default: None)
        The hospitals, the coordinator's identity and secrets, and how a run is kept going.
    daisy_period : int | None (default: 1)
        Rounds between hand-overs, the paper's d; `None`: never.
    aggregation_period : int | None (default: 5)
        Rounds between aggregations, the paper's b; `None`: only the last round aggregates.
    permutation : str (default: "uniform")
        `uniform`, `derangement` or `coverage`: see `strategies.routing.permutation`.
    fraction : float (default: 1.0)
        Fraction of the nodes drawn in each leg (at least two; all in the last).
    weighting : str | None (default: None)
        Weight of a model in the aggregate: all `equal` (the paper's, and the default with a study),
        by the node's `examples` (Flower's custom, and the default in plain mode), or by the
        examples of all nodes its chain has visited since the last aggregation (`chain-examples`).
    init : str (default: "shared")
        `shared`: all start from `initial_arrays`; `own` (with a study only): each hospital
        initialises its own model, and `initial_arrays` only give names, shapes and types.
    buffers : Collection[str] (default: ())
        Names in `initial_arrays` that are not trained; averaged here, never by `strategy`. In plain
        mode arrays that are not floating-point numbers are buffers without being named.
    seal_hand_overs : bool (default: False)
        Plain mode: the ClientApp has `sealing_mod`, so that handed-over models are sealed between
        the nodes. A sealed model can't go to another node than its recipient: when that one fails,
        the chain is lost until the next aggregation.
    seed : int | None (default: None)
        Fixes the routes in plain mode; random unless given.
    random_schedule : bool (default: False)
        Each communication is an aggregation with probability d/b instead of every b rounds, as in
        the paper's section on privacy.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        study: SealedStudy | None = None,
        daisy_period: int | None = 1,
        aggregation_period: int | None = 5,
        permutation: Permutation = "uniform",
        fraction: float = 1.0,
        weighting: Weighting | None = None,
        init: Init = "shared",
        buffers: Collection[str] = (),
        seal_hand_overs: bool = False,
        seed: int | None = None,
        random_schedule: bool = False,
    ) -> None:
        self.strategy = strategy
        self.study = study
        self.buffers = frozenset(buffers)
        self.settings = FedDCSettings(
            daisy_period,
            aggregation_period,
            permutation,
            fraction,
            weighting or ("equal" if study else "examples"),
            init,
            random_schedule,
        )
        if study is None:
            check_plain(strategy, self.settings)
        elif seed is not None or seal_hand_overs:
            raise ValueError(
                "seed and seal_hand_overs are for plain mode: a study has its route_seed and sealed"
            )
        self._seal_hand_overs = seal_hand_overs
        self._seed = seed
        self._num_rounds: int | None = None
        self._plain: PlainRun | None = None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run an experiment: Algorithm 1, at the server.

        In plain mode the arguments are Flower's, and results are keyed by round. `evaluate_fn` is
        called with the first model and after every aggregation.

        With a study, `train_config` holds the trainer's settings and the task's `shape` and
        `classes`; `timeout` is a leg's, in seconds. `evaluate_fn` is called for each aggregate with
        the number of its leg, by which the result's entries are keyed. Hospitals evaluate
        aggregates on their own held-out data as they receive them, so `evaluate_config` is not
        used.
        """
        if self.study is None:
            return self._start_plain(
                grid,
                initial_arrays,
                num_rounds,
                timeout,
                train_config,
                evaluate_config,
                evaluate_fn,
            )
        legs = self.settings.schedule(num_rounds, route_seed=self.study.route_seed).legs
        first_model = to_model(initial_arrays, self.buffers)
        wrapped = Wrapped(self.strategy, first_model, own_init=self.settings.init == "own")
        config = ConfigRecord(dict(train_config or {}))
        self.summary()

        # Set-up: connect the hospitals, and have everyone agree to all settings at once.
        session = Session(self.settings, self.study, wrapped, legs, config, timeout)
        session.start_or_resume(grid)

        result = Result()
        for leg in legs[session.legs_done :]:
            # A new roster, if there is one, counts from here.
            session.open_generation(leg)
            # The plan: who trains which model, and where it goes then. On disk before it is sent.
            plan = session.plan(leg)
            # Locally, at every hospital drawn: train, and send the model.
            answers = session.collect(plan)

            models: dict[Position, Contribution] = {}
            if leg.ending is Ending.HAND_OVER:
                # Daisy chaining: model i waits for hospital π(i), which the plan has drawn.
                session.hand_over(plan, answers)
            else:
                # Aggregation: every hospital drawn continues from the aggregate.
                models = session.contributions(plan, answers)
                aggregate, metrics = wrapped.aggregate(list(models.values()))
                session.store_aggregate(plan, answers, aggregate)
                result.train_metrics_clientapp[leg.number] = metrics
                if evaluate_fn and (found := evaluate_fn(leg.number, to_record(aggregate))):
                    result.evaluate_metrics_serverapp[leg.number] = found
            session.end_leg(plan, answers, models)

        session.close()
        result.arrays = to_record(wrapped.model)
        return result

    def summary(self) -> None:
        """Log when models travel and what is wrapped."""
        settings = self.settings
        log(INFO, "Federated daisy-chaining:")
        d, b = settings.daisy_period, settings.aggregation_period
        log(INFO, "\t├── hand-over every %s rounds (%s)", d, settings.permutation)
        log(INFO, "\t├── aggregation every %s rounds (%s)", b, settings.weighting)
        log(INFO, "\t├── init %s, fraction %g", settings.init, settings.fraction)
        log(INFO, "\t└── around %s:", type(self.strategy).__name__)
        self.strategy.summary()

    # --- plain mode: Flower's own loop calls these hooks, or another strategy's that wraps this one

    def _start_plain(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int,
        timeout: float,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    ) -> Result:
        def evaluate_aggregate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            if evaluate_fn is None or (server_round and not self._has_aggregated(server_round)):
                return None
            return evaluate_fn(server_round, arrays)

        self._num_rounds, self._plain = num_rounds, None
        try:
            return super().start(
                StreamingGrid(grid, sum(len(array.data) for array in initial_arrays.values())),
                initial_arrays,
                num_rounds,
                timeout,
                train_config,
                evaluate_config,
                evaluate_aggregate if evaluate_fn else None,
            )
        finally:
            self._num_rounds = self._plain = None  # models that still wait are dropped

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send every node the model that waits for it."""
        if self.study is not None:
            _refuse_hook()
        if self._plain is None or server_round == 1:
            self._plain = self._begin_plain(arrays, grid)
        return self._plain.configure(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the models over, or let the wrapped strategy aggregate them, as scheduled."""
        if self._plain is None:
            _refuse_hook()
        return self._plain.aggregate(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Evaluate as the wrapped strategy does, but only what is new: an aggregate."""
        if self._plain is None:
            _refuse_hook()
        if not self._has_aggregated(server_round):
            return []
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Summarise the evaluation of an aggregate as the wrapped strategy does."""
        if self._plain is None:
            _refuse_hook()
        if not self._has_aggregated(server_round):
            return None
        return self.strategy.aggregate_evaluate(server_round, list(replies))

    def _has_aggregated(self, server_round: int) -> bool:
        return self._plain is not None and self._plain.has_aggregated(server_round)

    def _begin_plain(self, arrays: ArrayRecord, grid: Grid) -> PlainRun:
        if self._num_rounds is None:
            log(
                WARNING,
                "Another strategy wraps FedDC. If it is meant to give differential privacy, its "
                "ε covers aggregates only, not the models that nodes hand over. It does not pass "
                "on the number of rounds: choose a multiple of the aggregation period, or the "
                "last rounds are not aggregated.",
            )
        model = to_model(arrays, self.buffers | not_trainable(arrays))
        if self._seed is None:
            route_seed = secrets.token_bytes(SEED_BYTES)
        else:
            route_seed = derive_seed(self._seed, "route")
        return PlainRun(
            self.settings,
            Wrapped(self.strategy, model, own_init=False),
            tuple(arrays),
            Rounds(self.settings, route_seed, self._num_rounds),
            route_seed,
            connected_nodes(self.strategy, grid),
            sealed=self._seal_hand_overs,
        )


def _refuse_hook() -> NoReturn:
    raise RuntimeError(
        "FedDC with a study runs its own loop and can't be wrapped by another strategy: it would "
        "hand no model over. Put the other strategy inside, FedDC(Other(FedAvg()), …), and call "
        "FedDC's start"
    )
