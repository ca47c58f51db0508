"""The keys of an experiment's generation, once its members have made them."""

from dataclasses import dataclass, field

from client_app.state.experiment_store import ExperimentStore
from protocol.messages import RefusalCode
from protocol.sealing.keys import SealingKey

from .refusal import Refused


@dataclass(frozen=True)
class GenerationKeys:
    """This hospital's sealing key, the generation's digest, and the key that all members share."""

    sealing_key: SealingKey
    generation: bytes
    member_key: bytes = field(repr=False)


def keys_of(store: ExperimentStore) -> GenerationKeys:
    """Return the keys; refuse any request that needs them before they are complete."""
    key, generation = store.sealing_key, store.get("generation-digest")
    member_key = store.get("member-key")
    if key is None or generation is None or member_key is None:
        raise Refused(RefusalCode.NOT_SET_UP, "the experiment's keys are not complete yet")
    return GenerationKeys(key, generation, member_key)
