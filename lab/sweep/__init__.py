"""Many trainings, one comparison: what has to be trained, on all cores, kept and gone on with."""

from lab.sweep.folder import RunFolder
from lab.sweep.plan import Plan, Request
from lab.sweep.record import Record
from lab.sweep.sweep import Stopped, sweep

__all__ = ["Plan", "Record", "Request", "RunFolder", "Stopped", "sweep"]
