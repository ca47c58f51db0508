"""One training of a sweep: a method with one learning rate and one seed."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from functools import cached_property

from lab.engine import Backend
from lab.experiments.definition import Central, Values
from protocol import __version__
from protocol.randomness import STREAMS_VERSION
from server_app.config.run_config import Settings


@dataclass(frozen=True)
class Trial:
    """Everything a worker needs for one training."""

    variant: str
    method: str
    seed: int
    learning_rate: float
    values: Values = field(hash=False)
    central: Central | None
    backend: Backend
    test_sample: int | None
    evaluations: int

    @cached_property
    def settings(self) -> Settings:
        own = {"learning-rate": self.learning_rate, "seed": self.seed}
        return Settings.from_run_config(self.values | own, source=f"{self.method}'s settings")

    @cached_property
    def key(self) -> str:
        """A readable file name, unique to the settings and the versions."""
        versions = {"version": __version__, "streams": STREAMS_VERSION}
        what = asdict(self) | {"settings": self.settings.as_config()} | versions
        what["central"] = self.central.model_dump() if self.central else None
        text = json.dumps(what, sort_keys=True)
        name = f"{self.variant} {self.method} {self.learning_rate:g} {self.seed}"
        words = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
        return f"{words}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    @property
    def client_rounds(self) -> int:
        """The amount of computation, in steps of one model."""
        if self.central:
            return self.central.steps
        return self.settings.algorithm.rounds * self.settings.algorithm.hospitals

    def __str__(self) -> str:
        place = f"{self.variant}, " if self.variant else ""
        return f"{place}{self.method}, rate {self.learning_rate:g}, seed {self.seed}"
