"""What a leg costs, whether the hospital's budget covers it, and its line in the ledger."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from client_app.hospital.agreement.agreed_experiment import AgreedExperiment
from client_app.hospital.agreement.policy import Policy
from client_app.state.privacy.ledger import PrivacyLedger
from client_app.state.privacy.ledger_file import Spent
from learning.privacy import NoiseSource, Release, average_sensitivity, epsilon
from learning.privacy.plan import PlannedLeg, is_cancelled, leg_releases
from protocol.messages import TrainLeg
from protocol.schedule import Ending, Leg

from .carried_noise import CarriedNoise


@dataclass(frozen=True)
class Spending:
    """The budget at the time of one request; `request` is its digest."""

    ledger: PrivacyLedger
    policy: Policy
    request: bytes
    new_noise: Callable[[], NoiseSource]  # a new source for every leg

    def charge(self, request: TrainLeg, experiment: AgreedExperiment) -> bool:
        """Charge a leg before it trains; return False, and charge nothing, past the budget."""
        settings = experiment.training.settings
        is_aggregation = request.recipient is None
        leg = PlannedLeg(request.local_rounds, is_aggregation)
        scale = 1.0
        reserved: tuple[Release, ...] = ()
        if is_cancelled(settings):
            rounds = range(request.first_round, request.first_round + request.local_rounds)
            if is_aggregation:
                scale = average_scale(experiment, request.leg, rounds)
            else:
                reserved = _next_average(experiment, request)
        releases = leg_releases(settings, leg, average_scale=scale)
        name = experiment.descriptor.experiment
        if not self._covers((*releases, *reserved), name):
            return False
        spent = tuple((one.multiplier, one.sampling_rate, one.count) for one in releases)
        self.ledger.charge(self.request, name, request.leg, spent)
        return True

    def epsilon(self, experiment: str) -> float:
        """Return ε of all releases with noise, over all experiments; `experiment` is under way."""
        return total_epsilon(self.ledger.totals().everything(experiment), self.policy.delta)

    def _covers(self, releases: Iterable[Release], experiment: str) -> bool:
        if not self.policy.max_epsilon:
            return True
        more = tuple((one.multiplier, one.sampling_rate, one.count) for one in releases)
        spent = self.ledger.totals()
        if spent.request == self.request.hex():
            return True  # charged already, before an interruption
        everything = (*spent.everything(experiment), *more)
        return total_epsilon(everything, self.policy.delta) <= self.policy.max_epsilon


def average_scale(experiment: AgreedExperiment, leg: int, rounds: Iterable[int]) -> float:
    """Return the noise of an average, for this hospital, as a part of its usual noise.

    All members size their noise by the rounds since the schedule's last aggregation. One that
    missed it subtracts the noise of more rounds, of which a patient may have been in each.
    """
    settings = experiment.training.settings
    own = (*CarriedNoise(experiment.store).rounds, *rounds)
    usual = average_sensitivity(settings, rounds_since_aggregation(experiment.legs, leg))
    return usual / max(usual, average_sensitivity(settings, own))


def rounds_since_aggregation(legs: tuple[Leg, ...], number: int) -> range:
    """Return the rounds from the schedule's last aggregation to the end of a leg."""
    earlier = (leg for leg in legs[: number - 1] if leg.ending is Ending.AGGREGATION)
    first = max((leg.last_round + 1 for leg in earlier), default=0)
    return range(first, legs[number - 1].last_round + 1)


def _next_average(experiment: AgreedExperiment, request: TrainLeg) -> tuple[Release, ...]:
    """Return what the next aggregation leg will release: without it, noise could not be cancelled.

    As if this hospital trained in every round until then.
    """
    coming = (leg for leg in experiment.legs[request.leg :] if leg.ending is Ending.AGGREGATION)
    leg = next(coming)  # the last leg aggregates
    rounds = range(request.first_round, leg.last_round + 1)
    scale = average_scale(experiment, leg.number, rounds)
    planned = PlannedLeg(leg.local_rounds, is_aggregation=True)
    return leg_releases(experiment.training.settings, planned, average_scale=scale)


def total_epsilon(spent: Iterable[Spent], delta: float) -> float:
    """Return ε of all releases with noise; those without have none and are counted apart."""
    return epsilon((Release(*entry) for entry in spent if entry[0]), delta)
