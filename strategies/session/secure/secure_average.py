"""The secure averages of an experiment: one in each aggregation leg, from its plan to its mean."""

import math
from collections.abc import Callable, Mapping

from flwr.serverapp.strategy import (
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    FedYogi,
    Strategy,
)

from protocol.descriptor import Aggregate
from protocol.messages import Vouch, Vouched
from protocol.model_bytes import ModelState
from protocol.model_size import layout_of
from protocol.schedule import Ending
from protocol.secure_sum.total import LastAggregate
from protocol.secure_sum.vector import Mean, VectorForm
from strategies.identifiers import Position, cohort_node
from strategies.routing.planner import Plan
from strategies.session.generation import Generation
from strategies.session.quorum import QuorumPause
from strategies.session.storage.journal import State
from strategies.session.storage.spool import Spool
from strategies.settings import FedDCSettings
from strategies.wrapped.adapter import Contribution
from strategies.wrapped.requirements import layers

from .secure_trips import SecureSum

LEAST_MEMBERS = 3
_MEANS = (FedAvg, FedProx)
_STEPS = (FedAvgM, FedAdam, FedYogi, FedAdagrad)


def check_secure(
    settings: FedDCSettings, strategy: Strategy, members: int, minimum_cohort: int
) -> None:
    """Refuse settings with which models can't be averaged securely; say what to choose."""
    name = type(layers(strategy)[-1]).__name__
    names = ", ".join(kind.__name__ for kind in (*_MEANS, *_STEPS))
    for is_possible, problem in (
        (
            len(layers(strategy)) == 1 and type(strategy) in (*_MEANS, *_STEPS),
            f"works with {names}, which need only the mean, not with {name}",
        ),
        (settings.fraction == 1, f"needs fraction = 1, got {settings.fraction}"),
        (
            settings.weighting != "chain-examples",
            "can't weigh by chain-examples: choose equal or examples",
        ),
        (members >= LEAST_MEMBERS, f"needs at least {LEAST_MEMBERS} members, got {members}"),
        (
            members >= minimum_cohort,
            f"with minimum-cohort = {minimum_cohort} needs as many members, got {members}",
        ),
    ):
        if not is_possible:
            raise ValueError(
                f"secure averaging {problem}; or choose averaging = plain, which hospitals must "
                "allow (plain-aggregation): the coordinator then reads every model it aggregates"
            )


def aggregate_of(strategy: Strategy) -> Aggregate:
    """Return what hospitals can check about the aggregate of this strategy."""
    return "verified" if type(strategy) in _MEANS else "same"


class SecureAverages:
    """The secure sum of each aggregation leg, and what is known of the last one.

    `under_way` is the present leg's sum, if it ends in one. `figures` are the means of the figures
    that its hospitals allow. `vouchers` are signatures over the last sum, if the former generation
    made it.
    """

    def __init__(self, spool: Spool) -> None:
        self.under_way: SecureSum[Mean] | None = None
        self.figures: Mapping[str, float] = {}
        self.vouchers: Mapping[str, str] | None = None
        self._spool = spool
        self._saved: State | None = None  # of a run that is resumed
        self._total = b""  # the last sum, as requests carry it

    def cohort(self, plan: Plan, generation: Generation) -> tuple[str, ...] | None:
        """Return the members of a leg's secure sum: all who are asked for a model."""
        if not generation.is_secure or plan.leg.ending is Ending.HAND_OVER:
            return None
        names = generation.members.names
        return tuple(sorted(names[assignment.hospital] for assignment in plan.assignments))

    def begin(
        self,
        plan: Plan,
        generation: Generation,
        model: ModelState,
        last: Callable[[], LastAggregate],
    ) -> None:
        """Begin a leg: its sum, if it ends in one, or the one that a killed run has begun."""
        self.under_way = None
        cohort = self.cohort(plan, generation)
        if cohort is None:
            return
        form = VectorForm(
            layout_of(model.parameters),
            layout_of(model.buffers),
            members=len(generation.members),
            weighted=generation.descriptor.weighted,
            narrow=generation.wire != "same",
        )
        leg = generation.secure_leg(plan.leg.number, cohort)
        aggregate = last().to_bytes()
        self.under_way = SecureSum(leg, form, generation.members, self._spool, aggregate)
        if self._saved is not None:
            self.under_way.restore(self._saved)
            self._saved = None

    def contribution(
        self,
        survivor: Position,
        save: Callable[[], None],
        pause: Callable[[], QuorumPause],
        timeout: float,
    ) -> Contribution:
        """Finish the sum; return its mean, as if `survivor` had sent it."""
        if self.under_way is None:
            raise ValueError("this leg has no secure sum")
        mean, self._total = self.under_way.finish(save, pause, timeout)
        self.figures = mean.figures
        return Contribution(
            node=cohort_node(survivor),
            model=mean.model,
            weight=float(mean.weight),
            loss=mean.figures.get("loss", math.nan),
            accuracy=mean.figures.get("accuracy", math.nan),
            norm=mean.mean_norm,
        )

    def end(self) -> bytes:
        """End the leg; return the sum as requests carry it."""
        total, self._total = self._total, b""
        self.under_way, self.vouchers = None, None
        return total

    def collect_vouchers(self, generation: Generation, total: bytes, timeout: float) -> None:
        """Have the present members sign the sum that the next generation starts from."""
        if self.vouchers:
            return  # of a run that is resumed
        members = generation.members
        members.present()
        request = Vouch(experiment=generation.descriptor.experiment, payload=total)
        answers = members.ask_all(request, timeout=timeout)
        self.vouchers = {
            name: answer.reply.payload.hex()
            for name, answer in answers.items()
            if isinstance(answer.reply, Vouched)
        }

    # --- saved state ------------------------------------------------------------------------------

    @property
    def stored(self) -> set[str]:
        """The names in the spool that a resumed run needs."""
        return set() if self.under_way is None else self.under_way.stored

    def to_state(self) -> State | None:
        return None if self.under_way is None else self.under_way.to_state()

    def restore(self, state: State | None, vouchers: Mapping[str, str] | None) -> None:
        """Continue from what `to_state` returned, and the vouchers, when the leg begins."""
        self._saved, self.vouchers = state, vouchers
