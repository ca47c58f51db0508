"""Federated daisy-chaining on a stack of models: Algorithm 1, with every hospital at hand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from lab.engine.backends.speed import Rate, Speedometer
from protocol.schedule import Ending
from server_app.config.run_config import Settings

from .checkpoint import Checkpoints
from .outcome import Outcome
from .run_state import Bench
from .training import Way


def run(
    settings: Settings,
    *,
    way: Way = "auto",
    workers: int | None = None,
    evaluate_every: int = 1,
    evaluate_clients: bool = True,
    evaluate_held_out: bool = False,
    test_sample: int | None = None,
    on_progress: Callable[[Rate], None] | None = None,
    checkpoint: Path | None = None,
    stop: Callable[[], bool] | None = None,
) -> Outcome:
    """Run an experiment and return what came of it.

    `way` trains all models in one call (`batched`) or one by one on all cores (`loop`); `auto`
    tries both. An aggregate is evaluated on the test set when `evaluate_every` rounds have passed
    since the last that was, and at the end; all but the last, and each hospital's own model, on
    `test_sample` random examples of it if that is given. With `evaluate_held_out` the last ones are
    also judged on what the hospitals held out, for choices that must not see the test set.

    With a `checkpoint` file the run's state is kept there, and a run that finds one of its own goes
    on from it. When `stop` says so, the run ends after the leg it is in.
    """
    with _threads(settings.local.threads):
        bench = Bench(
            settings,
            way,
            workers,
            evaluate_clients=evaluate_clients,
            evaluate_held_out=evaluate_held_out,
            test_sample=test_sample,
        )
        saved = Checkpoints(checkpoint, settings)
        done = saved.load(bench)
        pace = Speedometer(settings.algorithm.rounds, bench.rounds_done(done), on_progress)
        for leg in bench.legs[done:]:
            with pace.training():
                # Locally, at every hospital drawn: train the model that is there.
                work = bench.routes.work(leg)
                figures = bench.training.train(work, bench.anchors)
                bench.stack.narrow(work.slots, bench.wire)
                if leg.ending is Ending.HAND_OVER:
                    # Daisy chaining: the models stay where they are, the indices move.
                    bench.routes.hand_over(leg, work)
            bench.history.trained(leg, len(work), figures)
            if leg.ending is Ending.AGGREGATION:
                if leg is bench.legs[-1]:
                    bench.evaluate_clients(work)
                with pace.training():
                    # Aggregation: all who were drawn go on from the aggregate.
                    aggregate = bench.aggregation.aggregate(
                        bench.stack, work, bench.weights(work), figures
                    )
                    bench.go_on_from(aggregate, work)
                bench.evaluate(leg, aggregate, every=evaluate_every)
            pace.add(leg.last_round + 1, work.client_rounds, bench.history)
            stopping = stop is not None and leg is not bench.legs[-1] and stop()
            saved.keep(bench, leg.number, now=stopping or leg is bench.legs[-1])
            if stopping:
                return bench.outcome(pace, complete=False)
        return bench.outcome(pace, complete=True)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with so many threads: more wait for each other on a machine that has others to do."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
