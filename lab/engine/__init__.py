"""The lab's engine: FedDC with all models stacked in one process, for thousands of rounds.

It uses the same schedule, routes, aggregators, random streams and update rules as the Flower path.
A test compares the two parameter by parameter.
"""

from lab.engine.aggregation import Diverged
from lab.engine.backends.speed import Speed
from lab.engine.interrupt import leg_by_leg
from lab.engine.outcome import AggregateEvaluation, History, Outcome
from lab.engine.run import run
from lab.engine.training_interface import Backend

__all__ = [
    "AggregateEvaluation",
    "Backend",
    "Diverged",
    "History",
    "Outcome",
    "Speed",
    "leg_by_leg",
    "run",
]
