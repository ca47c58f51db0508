"""The bench's engine: FedDC with all models stacked in one process, for thousands of rounds.

It follows the same schedule, routes, aggregators and random streams as the Flower path and trains
by the same rules; a test compares the two parameter by parameter.
"""

from lab.engine.aggregation import Diverged
from lab.engine.backends.speed import Rate
from lab.engine.interrupt import leg_by_leg
from lab.engine.outcome import Evaluation, History, Outcome
from lab.engine.run import run
from lab.engine.training import Way

__all__ = ["Diverged", "Evaluation", "History", "Outcome", "Rate", "Way", "leg_by_leg", "run"]
