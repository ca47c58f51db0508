"""After the last leg: figures of the final model, and its delivery."""

from collections.abc import Callable, Mapping

from protocol.messages import Close, Refusal, RefusalCode
from protocol.schedule import Leg, schedule_seed
from protocol.secure_sum.total import LastAggregate
from strategies.identifiers import HospitalName

from .exchange import Answer
from .generation import Generation
from .members import Members
from .quorum import ExperimentFailed, QuorumPause
from .sealed_study import SealedStudy
from .secure.closing_figures import ClosingFigures
from .signed_request import sign_with_model
from .storage.journal import State
from .storage.spool import Spool

_FINAL_MODEL = "final"


class Closing:
    """The end of an experiment. A resumed run delivers the same model, in the same bytes."""

    def __init__(self, study: SealedStudy, timeout: float) -> None:
        self._study, self._timeout = study, timeout
        self._spool = study.journal.spool
        self._figures: ClosingFigures | None = None
        self._saved: State | None = None  # of a run that is resumed

    def deliver(
        self, final: bytes, generation: Generation, last: Leg, save: Callable[[], None]
    ) -> None:
        """Deliver the final model to every member; the keys are destroyed there.

        `save` persists the experiment's state, this object's included.
        """
        if generation.is_secure:
            self._figures = ClosingFigures(
                generation,
                self._spool,
                model=_FINAL_MODEL,
                final=LastAggregate.of(last.number, final),
                saved=self._saved,
            )
        save()  # so that a resumed run delivers the same model
        self._spool.put(_FINAL_MODEL, final)
        totals = None
        if self._figures is not None:
            # Nobody waits for figures: without a quorum there are none.
            pause = QuorumPause(last, 0.0, self._study.observer, self._study.clock)
            totals = self._figures.collect(save, pause, self._timeout)
        is_random = generation.descriptor.schedule_commitment is not None
        seed = schedule_seed(self._study.route_seed).hex() if is_random else None
        request = Close(experiment=self._study.experiment, schedule_seed=seed)
        answers = close_experiment(generation.members, request, self._spool, self._timeout)
        full = [name for name, answer in answers.items() if _has_no_space(answer)]
        if full:
            raise ExperimentFailed(
                f"the final model does not fit on the disk at {', '.join(full)}: when there is "
                "space, `feddc coordinator resume` delivers it again"
            )
        self._study.observer.closed(answers, totals)

    # --- saved state ------------------------------------------------------------------------------

    @property
    def stored(self) -> set[str]:
        """The names in the spool that a resumed run needs."""
        return set() if self._figures is None else self._figures.stored

    def to_state(self) -> State | None:
        return None if self._figures is None else self._figures.to_state()

    def restore(self, state: State | None) -> None:
        """Continue from what `to_state` returned, when the last leg has ended."""
        self._saved = state


def close_experiment(
    members: Members, request: Close, spool: Spool, timeout: float
) -> Mapping[HospitalName, Answer]:
    """Deliver the final model; a hospital that does not answer has missed only that."""
    requests = {
        name: sign_with_model(request, name, members, spool, _FINAL_MODEL) for name in members.names
    }
    return members.ask_each(requests, timeout=timeout, group=request.kind)


def _has_no_space(answer: Answer) -> bool:
    return isinstance(answer.reply, Refusal) and answer.reply.code is RefusalCode.DISK_FULL
