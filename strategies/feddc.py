"""Federated daisy-chaining (Kamp, Fischer, Vreeken, ICLR 2023) around any Flower strategy."""

from collections.abc import Callable, Collection, Iterable
from logging import INFO
from typing import NoReturn

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from operation.flower.logger import log
from protocol.descriptor import Init
from protocol.schedule import Ending
from strategies.identifiers import Position
from strategies.routing.permutation import Permutation
from strategies.session.sealed_study import SealedStudy
from strategies.session.session import Session
from strategies.settings import AlgorithmSettings, ScheduleOptions, Weighting
from strategies.wrapped.adapter import Contribution, Wrapped
from strategies.wrapped.records import to_model, to_record


class FedDC(Strategy):
    """Federated daisy-chaining: hand models on between aggregations.

    `FedDC(FedAvg(), study=study, daisy_period=1, aggregation_period=10)` hands every hospital's
    model to another random hospital after each round and lets FedAvg aggregate every tenth.
    `daisy_period=None` is the wrapped strategy alone; `aggregation_period=None` is plain
    daisy-chaining. In `start`, `num_rounds` is the paper's T: the number of local updates of every
    model.

    Parameters
    ----------
    strategy
        Any Flower message-API strategy, its own `fraction_train` left at 1. One of its server
        rounds is one aggregation.
    study
        The hospitals, the coordinator's identity and secrets, and how a run is kept going.
    daisy_period, aggregation_period
        Rounds between hand-overs (d) and between aggregations (b); `None` never.
    permutation
        `uniform`, `derangement` or `coverage`: see `strategies.routing.permutation`.
    fraction
        Fraction of the hospitals drawn in each leg (at least two; everyone in the last).
    weighting
        Weight of a model in the aggregate: all `equal`, by the hospital's `examples`, or by the
        examples of all hospitals its chain has visited since the last aggregation
        (`chain-examples`), which the coordinator works out from its own routes.
    init
        `shared`: all start from `initial_arrays`; `own`: each hospital initialises its own model,
        and `initial_arrays` only give names, shapes and types.
    buffers
        Names in `initial_arrays` that are not trained; averaged here, never by `strategy`.
    schedule_options
        Variants of the schedule: `ramp`, `tail`, `random`.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        study: SealedStudy,
        daisy_period: int | None = 1,
        aggregation_period: int | None = 5,
        permutation: Permutation = "uniform",
        fraction: float = 1.0,
        weighting: Weighting = "equal",
        init: Init = "shared",
        buffers: Collection[str] = (),
        schedule_options: ScheduleOptions | None = None,
    ) -> None:
        self.strategy = strategy
        self.study = study
        self.buffers = frozenset(buffers)
        self.settings = AlgorithmSettings(
            daisy_period,
            aggregation_period,
            permutation,
            fraction,
            weighting,
            init,
            schedule_options or ScheduleOptions(),
        )

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

        `train_config` holds the trainer's settings and the task's `shape` and `classes`; `timeout`
        is a leg's, in seconds. `evaluate_fn` is called for each aggregate with the number of its
        leg, by which the result's entries are keyed. Hospitals evaluate aggregates on their own
        held-out data as they receive them, so `evaluate_config` is not used.
        """
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
                session.store_aggregate(plan, models, aggregate)
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

    # Flower calls these hooks from its own `start`, or another strategy does that wraps this one.
    # Neither would hand anything over, so they refuse.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        _refuse_hook()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        _refuse_hook()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        _refuse_hook()

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        _refuse_hook()


def _refuse_hook() -> NoReturn:
    raise RuntimeError(
        "FedDC runs its own loop and can't be wrapped by another strategy: it would hand no model "
        "over. Put the other strategy inside, FedDC(Other(FedAvg()), …), and call FedDC's start"
    )
