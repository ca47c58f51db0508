"""Lines for the agent's log: the start of an experiment, each leg, and its end."""

from protocol.descriptor import Descriptor
from protocol.messages import Close, EvaluateFinal, Request, SetUp, TrainLeg


def log_text(request: Request, *, repeated: bool, seconds: float) -> str:
    """Describe a request that was answered; "" for one that needs no line.

    Every value is one that the hospital has agreed to: the request was served.
    """
    match request:
        case SetUp():
            text = f"experiment {request.experiment} was agreed to"
            settings = Descriptor.from_bytes(request.payload)
            model = settings.training.get("model", "the default model")
            text = f"{text}: {settings.rounds} rounds of {model}"
        case TrainLeg():
            last = request.first_round + request.local_rounds
            text = (
                f"experiment {request.experiment}, leg {request.leg}: "
                f"rounds {request.first_round + 1} to {last}, {_ending(request)}, {seconds:.1f} s"
            )
        case EvaluateFinal():
            text = (
                f"experiment {request.experiment}: final model received, its figures masked for a "
                f"sum of up to {len(request.cohort)}, {seconds:.1f} s"
            )
        case Close():
            text = f"experiment {request.experiment} has ended; its keys are destroyed"
        case _:
            return ""
    return f"{text} (the same answer again)" if repeated else text


def _ending(request: TrainLeg) -> str:
    if request.cohort is not None:
        return f"masked for a sum of up to {len(request.cohort)}"
    if request.recipient is None:
        return "sent for aggregation"
    return f"handed over to {request.recipient}"
