"""What a leg has brought: the models to aggregate, with their weights, and the report."""

import math
from collections.abc import Mapping

from protocol.messages import Trained
from strategies.identifiers import Position, cohort_node
from strategies.routing.planner import Assignment, Plan, Planner
from strategies.settings import Weighting
from strategies.wrapped.adapter import Contribution

from .answers import LegAnswers
from .generation import Generation
from .observer import LegReport
from .sealed_study import SealedStudy
from .storage.spool import StoredModel


def received_models(
    plan: Plan,
    answers: LegAnswers,
    generation: Generation,
    study: SealedStudy,
    weighting: Weighting,
) -> dict[Position, Contribution]:
    """Return the models that were sent for aggregation, in roster order, with their weights."""
    found: dict[Position, Contribution] = {}
    for assignment in plan.assignments:
        hospital = assignment.hospital
        reply = answers.trained.get(hospital)
        if not isinstance(reply, Trained):
            continue
        name = answers.models[hospital].name
        model = StoredModel(study.journal.spool, name, generation.wire)
        study.observer.received(plan.leg, generation.members.names[hospital], model)
        found[hospital] = Contribution(
            node=cohort_node(hospital),
            model=model,
            weight=_weight(assignment, generation, weighting),
            loss=math.nan if reply.loss is None else reply.loss,
            accuracy=math.nan if reply.accuracy is None else reply.accuracy,
        )
    return found


def leg_report(
    plan: Plan,
    answers: LegAnswers,
    models: Mapping[Position, Contribution],
    generation: Generation,
    planner: Planner,
    *,
    seconds: float,
    figures: Mapping[str, float],
) -> LegReport:
    """Describe how a leg went; `models` are those that were aggregated."""
    names = generation.members.names
    return LegReport(
        leg=plan.leg,
        asked=tuple(names[hospital] for hospital in plan.drawn),
        answers=answers.by_name,
        missing={names[hospital]: why for hospital, why in answers.missing.items()},
        parked=tuple(names[hospital] for hospital in planner.parked),
        seconds=seconds,
        lost_chains=planner.lost_chains,
        missed_rounds=planner.missed_rounds,
        weights=_weights(answers, models, generation),
        figures=figures,
        routes=tuple(
            (
                assignment.queued.chain.number,
                names[assignment.hospital],
                None if assignment.recipient is None else names[assignment.recipient],
            )
            for assignment in plan.assignments
            if assignment.hospital in answers.trained
        ),
    )


def _weight(assignment: Assignment, generation: Generation, weighting: Weighting) -> float:
    if weighting == "equal":
        return 1.0
    visited = {assignment.hospital}
    if weighting == "chain-examples":
        visited |= set(assignment.queued.chain.visits)
    names, examples = generation.members.names, generation.examples
    return float(sum(examples[names[hospital]] or 0 for hospital in visited))


def _weights(
    answers: LegAnswers, models: Mapping[Position, Contribution], generation: Generation
) -> dict[str, float]:
    """Return each hospital's weight in the aggregate, unless it stays secret."""
    names = generation.members.names
    if not generation.is_secure or not models:
        return {names[hospital]: model.weight for hospital, model in models.items()}
    is_secret = generation.descriptor.weighted
    return {} if is_secret else {names[hospital]: 1.0 for hospital in answers.trained}
