"""Aggregations of a run as they were seen on the wire."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from learning.local_data import load_dataset
from learning.trainer import TaskSpec
from protocol.messages import Carries, Close, Trained
from protocol.model_bytes import ModelState
from protocol.randomness import derive_seed, shared_init_seed
from server_app.config.run_config import Settings
from server_app.run.evaluator import Evaluator
from tests.conftest import Run

Vector = np.ndarray
Step = Callable[[Vector, "Aggregation"], Vector]


@dataclass
class Aggregation:
    """One aggregation as it was seen on the wire, every model as one vector in roster order."""

    leg: int
    count: int
    positions: list[int]
    states: list[ModelState]
    losses: list[float]
    before: ModelState
    after: ModelState

    @property
    def models(self) -> Vector:
        return np.stack([vector(state) for state in self.states])


def vector(state: ModelState) -> Vector:
    return np.concatenate([state.parameters[name].ravel() for name in sorted(state.parameters)])


def aggregations(run: Run) -> list[Aggregation]:
    legs = run.grid.legs()
    replies = {(p, r.leg): r for p, r in run.grid.replies if isinstance(r, Trained)}
    carried = {r.leg: r.payload for _, r in legs if r.carries is Carries.AGGREGATE}
    closing = next(r.payload for _, r in run.grid.requests if isinstance(r, Close))
    ended = sorted({r.leg for _, r in legs if r.recipient is None})
    is_shared = run.settings.algorithm.init == "shared"
    before = first_model(run.settings).to_bytes() if is_shared else b""
    found = []
    for count, leg in enumerate(ended, start=1):
        asked = sorted(p for p, r in legs if r.leg == leg)
        sent = [replies[position, leg] for position in asked]
        after = carried.get(leg + 1, closing) if leg < ended[-1] else closing
        found.append(
            Aggregation(
                leg=leg,
                count=count,
                positions=asked,
                states=[ModelState.from_bytes(reply.payload) for reply in sent],
                losses=[reply.loss for reply in sent],
                before=ModelState.from_bytes(before) if before else ModelState({}),
                after=ModelState.from_bytes(after),
            )
        )
        before = after
    return found


def first_model(settings: Settings) -> ModelState:
    """Return the model that hospitals and coordinator build from the training seed."""
    seed = settings.algorithm.seed
    dataset = load_dataset(settings.local, seed)
    task = TaskSpec(dataset.shape, len(dataset.classes))
    init = shared_init_seed(derive_seed(seed, "training"))
    return Evaluator(settings.training, task, None, seed=init).first_model


def assert_follows(found: Sequence[Aggregation], step: Step) -> None:
    for a in found:
        expected = step(vector(a.before), a)
        np.testing.assert_allclose(vector(a.after), expected, rtol=1e-7, atol=1e-8)
