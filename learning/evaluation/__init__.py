"""How good a model is on held-out examples, with intervals that hold for a handful of patients."""

from learning.evaluation.held_out_evaluation import HeldOutEvaluation, evaluate_predictions
from learning.evaluation.intervals import Estimate

__all__ = ["Estimate", "HeldOutEvaluation", "evaluate_predictions"]
