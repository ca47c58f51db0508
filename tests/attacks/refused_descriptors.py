"""Descriptors in which one thing is wrong, and the code each is refused with.

`DESCRIPTORS` is the one table of refused descriptors. test_hospital_refusals.py checks in process
that a refusal changes nothing; test_evil_coordinator_set_up.py runs the table against a real agent.
"""

from collections.abc import Callable
from typing import Any

from protocol.descriptor import Descriptor
from protocol.messages import RefusalCode
from protocol.study.roster import Member, Roster
from tests.attacks.siege import STRANGER, Code
from tests.attacks.study import TRAINING, Study

# Returns the payload of a set-up request, made from the honest descriptor.
Change = Callable[[Study, Descriptor], bytes]
_DEEP = '{"hidden": ' + "[" * 100_000 + "}"


def changed(**fields: Any) -> Change:
    return lambda _, honest: honest.model_copy(update=fields).to_bytes()


def training(**settings: Any) -> Change:
    wanted = {name.replace("_", "-"): value for name, value in settings.items()}
    return changed(training=TRAINING | wanted)


def another_roster(study: Study, honest: Descriptor) -> bytes:
    """Name a roster with one hospital more: the coordinator's second identity."""
    members = [*study.roster.members, Member("Elder", STRANGER.public)]
    roster = Roster.make("attacked", 2, study.coordinator.public, members)
    return honest.model_copy(update={"roster": roster.digest}).to_bytes()


DESCRIPTORS: dict[str, tuple[RefusalCode, Change]] = {
    "no descriptor": (Code.MALFORMED, lambda _, __: b""),
    "an unreadable descriptor": (Code.MALFORMED, lambda _, __: b"{}"),
    "a descriptor of another experiment": (Code.MALFORMED, changed(experiment="e0")),
    "a descriptor with white space": (
        Code.MALFORMED,
        lambda _, honest: honest.to_bytes() + b" ",
    ),
    "half a megabyte of spaces": (Code.MALFORMED, training(model_options="{}" + " " * 500_000)),
    "another roster": (Code.ANOTHER_ROSTER, another_roster),
    "no roster": (Code.ANOTHER_ROSTER, changed(roster=bytes(32))),
    "a codebook that is not pinned": (Code.ANOTHER_CODEBOOK, changed(codebook=bytes(32))),
    "models that travel readable": (Code.AGAINST_POLICY, changed(sealed=False)),
    "too many rounds": (Code.AGAINST_POLICY, changed(rounds=100_001)),
    "examples of another shape": (Code.DESCRIPTOR_REFUSED, changed(shape=(5,))),
    "examples in two dimensions": (Code.DESCRIPTOR_REFUSED, changed(shape=(2, 2))),
    "no shape": (Code.DESCRIPTOR_REFUSED, changed(shape=())),
    "one class": (Code.DESCRIPTOR_REFUSED, changed(classes=1)),
    "no classes": (Code.DESCRIPTOR_REFUSED, changed(classes=0)),
    "a class too many": (Code.DESCRIPTOR_REFUSED, changed(classes=3)),
    "a model not on the list": (
        Code.AGAINST_POLICY,
        training(model="linear", model_options="{}"),
    ),
    "a model that is not installed": (Code.AGAINST_POLICY, training(model="gpt")),
    "a model by its path": (Code.AGAINST_POLICY, training(model="../../evil.py")),
    "a model that does not fit": (
        Code.DESCRIPTOR_REFUSED,
        training(model="resnet18", model_options="{}"),
    ),
    "unknown options": (
        Code.DESCRIPTOR_REFUSED,
        training(model_options='{"code": "import os"}'),
    ),
    "impossible options": (Code.DESCRIPTOR_REFUSED, training(model_options='{"hidden": [-1]}')),
    "a layer of a million": (
        Code.DESCRIPTOR_REFUSED,
        training(model_options='{"hidden": [1000000]}'),
    ),
    "options that are not JSON": (Code.DESCRIPTOR_REFUSED, training(model_options="{")),
    "deeply nested options": (Code.DESCRIPTOR_REFUSED, training(model_options=_DEEP)),
    "an unknown setting": (Code.DESCRIPTOR_REFUSED, training(upload_data=True)),
    "an unknown loss": (Code.DESCRIPTOR_REFUSED, training(loss="memorise")),
    "a loss that does not fit": (Code.DESCRIPTOR_REFUSED, training(loss="hinge")),
    "an unknown optimizer": (Code.DESCRIPTOR_REFUSED, training(optimizer="lbfgs")),
    "a negative learning rate": (Code.DESCRIPTOR_REFUSED, training(learning_rate=-0.1)),
    "a learning rate of text": (Code.DESCRIPTOR_REFUSED, training(learning_rate="0.1")),
    "a learning rate of true": (Code.DESCRIPTOR_REFUSED, training(learning_rate=True)),
    "a learning rate above the limit": (Code.AGAINST_POLICY, training(learning_rate=10.5)),
    "batches of one example": (Code.AGAINST_POLICY, training(batch_size=1)),
    "a negative batch": (Code.DESCRIPTOR_REFUSED, training(batch_size=-1)),
    "a fractional batch": (Code.DESCRIPTOR_REFUSED, training(batch_size=1.5)),
    "a momentum of one": (Code.DESCRIPTOR_REFUSED, training(momentum=1.0)),
    "half precision": (Code.DESCRIPTOR_REFUSED, training(precision="float16")),
}
