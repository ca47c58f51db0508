"""Sweeps: run all trainings of a comparison on all cores, save them, resume them."""

from lab.sweep.folder import RunFolder
from lab.sweep.plan import Request, SweepPlan
from lab.sweep.record import Record
from lab.sweep.sweep import Stopped, sweep

__all__ = ["Record", "Request", "RunFolder", "Stopped", "SweepPlan", "sweep"]
