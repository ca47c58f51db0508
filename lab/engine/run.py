"""Federated daisy-chaining on a stack of models: Algorithm 1 in one process."""

from collections.abc import Callable
from pathlib import Path

from lab.engine.backends.speed import Speed, Speedometer
from protocol.schedule import Ending
from server_app.config.run_config import Settings

from .checkpoint import Checkpoints
from .outcome import Outcome
from .run_state import RunState
from .threads import torch_threads
from .training_interface import Backend


def run(
    settings: Settings,
    *,
    backend: Backend = "auto",
    workers: int | None = None,
    evaluate_every: int = 1,
    evaluate_clients: bool = True,
    evaluate_held_out: bool = False,
    test_sample: int | None = None,
    on_progress: Callable[[Speed], None] | None = None,
    checkpoint: Path | None = None,
    stop: Callable[[], bool] | None = None,
) -> Outcome:
    """Run an experiment and return its outcome.

    The backend `batched` trains all models in one call, `loop` one by one on all cores; `auto`
    tries both and takes the faster one.

    An aggregate is evaluated on the test set `evaluate_every` rounds after the previous evaluation,
    and at the end. With `test_sample`, all evaluations but the last use that many random examples.
    With `evaluate_held_out`, the last models are also evaluated on the hospitals' held-out data,
    for choices that must not see the test set.

    With a `checkpoint` file the state of the run is saved there, and a run that finds its own
    checkpoint continues from it. When `stop` returns true, the run ends after the current leg.
    """
    with torch_threads(settings.local.threads):
        state = RunState(
            settings,
            backend,
            workers,
            evaluate_clients=evaluate_clients,
            evaluate_held_out=evaluate_held_out,
            test_sample=test_sample,
        )
        saved = Checkpoints(checkpoint, settings)
        done = saved.load(state)
        pace = Speedometer(settings.algorithm.rounds, state.rounds_done(done), on_progress)
        for leg in state.legs[done:]:
            with pace.training():
                # Locally, at every drawn hospital: train the model that is there.
                work = state.routes.work(leg)
                state.count_steps(work)
                metrics = state.training.train(work, state.anchors)
                state.stack.narrow(work.slots, state.wire)
                if leg.ending is Ending.HAND_OVER:
                    # Daisy-chaining: the models stay in their slots, the indices move.
                    state.routes.hand_over(leg, work)
            state.history.trained(leg, len(work), metrics)
            if leg.ending is Ending.AGGREGATION:
                if leg is state.legs[-1]:
                    state.evaluate_clients(work)
                with pace.training():
                    # Aggregation: all drawn hospitals continue from the aggregate.
                    aggregate = state.aggregation.aggregate(
                        state.stack, work, state.weights(work), metrics
                    )
                    state.continue_from(aggregate, work)
                state.evaluate(leg, aggregate, every=evaluate_every)
            pace.add(leg.last_round + 1, work.client_rounds, state.history)
            stopping = stop is not None and leg is not state.legs[-1] and stop()
            saved.keep(state, leg.number, now=stopping or leg is state.legs[-1])
            if stopping:
                return state.outcome(pace, complete=False)
        return state.outcome(pace, complete=True)
