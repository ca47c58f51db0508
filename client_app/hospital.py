"""The hospital's side of the protocol: takes a request's bytes, gives a reply's bytes.

The same code answers in simulation, in process, and behind the agent's socket. It trusts nothing
that comes in: whatever is not as agreed is refused with a code, and nothing has changed.
"""

import logging
from collections.abc import MutableMapping
from functools import lru_cache
from typing import NoReturn

import numpy as np

from learning.data import Share
from learning.metrics import Figures
from learning.models import ModelError
from learning.settings import SettingsError, TrainingSettings
from learning.trainer import Layout, Network, Task, Trainer
from protocol.descriptor import Descriptor, DescriptorError
from protocol.messages import (
    Announcement,
    Carries,
    Close,
    Closed,
    Hello,
    Introduction,
    MessageError,
    Refusal,
    RefusalCode,
    Reply,
    Request,
    SetUp,
    Trained,
    TrainLeg,
    decode_request,
    encode,
)
from protocol.model_bytes import Arrays, ModelBytesError, ModelState
from protocol.randomness import TrainingStreams

logger = logging.getLogger(__name__)

# What a hospital remembers of an experiment, as bytes, so that any store can keep it.
State = MutableMapping[str, bytes]
_DESCRIPTOR, _AGGREGATE, _KEPT = "descriptor", "aggregate", "optimizer/"
_LONGEST_DETAIL = 300


class Refused(Exception):
    """A request will not be served; the code goes out, the detail stays in the local log."""

    def __init__(self, code: RefusalCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


class Hospital:
    """One member of the study: its name, its share of examples, and what it remembers."""

    def __init__(self, name: str, share: Share, state: State, *, device: str = "cpu") -> None:
        self.name = name
        self._share = share
        self._state = state
        self._device = device
        self._trainers: dict[bytes, tuple[Descriptor, Trainer]] = {}

    def answer(self, data: bytes) -> bytes:
        """Answer a request; never raises for anything a request could contain."""
        try:
            reply = self._serve(decode_request(data))
        except MessageError as error:
            reply = self._refuse(RefusalCode.MALFORMED, str(error))
        except Refused as refusal:
            reply = self._refuse(refusal.code, str(refusal))
        except Exception:
            # The traceback may show patient values: it stays here.
            logger.exception("%s: could not serve a request", self.name)
            reply = Refusal(code=RefusalCode.INTERNAL_ERROR)
        return encode(reply)

    def remembering(self, state: State) -> "Hospital":
        """Return this hospital over another store, sharing what is costly to build."""
        twin = Hospital(self.name, self._share, state, device=self._device)
        twin._trainers = self._trainers
        return twin

    def _refuse(self, code: RefusalCode, detail: str) -> Refusal:
        # Part of it was written by the sender: it must not pass for lines of this log.
        line = "".join(sign if sign.isprintable() else "?" for sign in detail[:_LONGEST_DETAIL])
        logger.warning("%s: refused, %s", self.name, line)
        return Refusal(code=code)

    def _serve(self, request: Request) -> Reply:
        match request:
            case Hello():
                return Introduction(hospital=self.name)
            case SetUp():
                return self._set_up(request)
            case TrainLeg():
                return self._train(request)
            case Close():
                return self._close(request)

    def _set_up(self, request: SetUp) -> Announcement:
        try:
            descriptor = Descriptor.from_bytes(request.payload)
        except DescriptorError as error:
            raise Refused(RefusalCode.MALFORMED, str(error)) from error
        if descriptor.experiment != request.experiment:
            _malformed("the descriptor is of another experiment")
        self._trainer(request.payload)
        if self._state.get(_DESCRIPTOR) != request.payload:  # the same again changes nothing
            self._state.clear()
            self._state[_DESCRIPTOR] = request.payload
        return Announcement(examples=len(self._share.train))

    def _train(self, request: TrainLeg) -> Trained:
        descriptor, trainer = self._agreed(request.experiment)
        if not 0 < request.local_rounds <= descriptor.rounds - request.first_round:
            raise Refused(RefusalCode.ROUNDS_REFUSED, "rounds outside the descriptor's")
        model = self._model(request, descriptor, trainer)
        held_out = None
        if request.carries is Carries.AGGREGATE:
            held_out = self._held_out(trainer.network, model)
        trainer.network.load(model.parameters, model.buffers)
        optimizer, progress = trainer.train(
            request.first_round,
            request.local_rounds,
            self._optimizer(request, trainer, model),
            self._anchor(descriptor, model if request.carries is Carries.AGGREGATE else None),
        )
        parameters, buffers = trainer.network.arrays()
        if request.recipient is None:
            # What is aggregated has no use for optimiser state; it may stay here.
            answer = ModelState(parameters, buffers)
        else:
            answer = ModelState(parameters, buffers, optimizer)
        if request.carries is Carries.AGGREGATE and trainer.network.settings.proximal_mu:
            self._state[_AGGREGATE] = request.payload
        if request.recipient is None and trainer.network.settings.optimizer_state == "kept":
            self._keep(request.leg, optimizer)
        return Trained(
            leg=request.leg,
            sealed=False,
            loss=progress.loss,
            accuracy=progress.accuracy,
            held_out_loss=held_out.loss if held_out else None,
            held_out_accuracy=held_out.accuracy if held_out else None,
            payload=answer.to_bytes(),
        )

    def _close(self, request: Close) -> Closed:
        _, trainer = self._agreed(request.experiment)
        model = self._checked(request.payload, trainer, with_optimizer=False)
        held_out = self._held_out(trainer.network, model)
        self._state.clear()
        return Closed(
            held_out_loss=held_out.loss if held_out else None,
            held_out_accuracy=held_out.accuracy if held_out else None,
        )

    def _agreed(self, experiment: str) -> tuple[Descriptor, Trainer]:
        agreed = self._state.get(_DESCRIPTOR)
        if agreed is not None:
            descriptor, trainer = self._trainer(agreed)
            if descriptor.experiment == experiment:
                return descriptor, trainer
        raise Refused(RefusalCode.UNKNOWN_EXPERIMENT, f"no agreement on experiment {experiment}")

    def _trainer(self, data: bytes) -> tuple[Descriptor, Trainer]:
        """Build, or find built, the trainer a descriptor asks for."""
        if data not in self._trainers:
            descriptor = Descriptor.from_bytes(data)
            if self.name not in descriptor.roster:
                raise Refused(RefusalCode.NOT_A_MEMBER, "this hospital is not on the roster")
            position = descriptor.roster.index(self.name)
            streams = TrainingStreams(descriptor.training_seed, position)
            if descriptor.shape != self._share.train.features.shape[1:]:
                raise Refused(
                    RefusalCode.DESCRIPTOR_REFUSED,
                    f"examples here have shape {self._share.train.features.shape[1:]}, "
                    f"the experiment wants {descriptor.shape}",
                )
            try:
                network = _workbench(
                    TrainingSettings.parse(descriptor.training, source="descriptor"),
                    Task(descriptor.shape, descriptor.classes),
                    self._device,
                )
            except (SettingsError, ModelError) as error:
                raise Refused(RefusalCode.DESCRIPTOR_REFUSED, str(error)) from error
            self._trainers.clear()  # one experiment at a time: models can be large
            self._trainers[data] = (descriptor, Trainer(network, self._share.train, streams))
        return self._trainers[data]

    def _model(self, request: TrainLeg, descriptor: Descriptor, trainer: Trainer) -> ModelState:
        if request.carries is not Carries.NOTHING:
            travels = request.carries is Carries.ENVELOPE
            return self._checked(request.payload, trainer, with_optimizer=travels)
        if descriptor.init != "own":
            _malformed("a request without a model, but the first model is shared")
        streams = TrainingStreams(descriptor.training_seed, descriptor.roster.index(self.name))
        network = Network(
            trainer.network.settings,
            Task(descriptor.shape, descriptor.classes),
            seed=streams.init_seed(),
        )
        return ModelState(*network.arrays())

    def _checked(self, payload: bytes, trainer: Trainer, *, with_optimizer: bool) -> ModelState:
        """Read a model and compare it with the one the registry builds."""
        try:
            model = ModelState.from_bytes(payload)
        except ModelBytesError as error:
            raise Refused(RefusalCode.MODEL_MISMATCH, str(error)) from error
        _compare(trainer.network.parameter_layout, model.parameters)
        _compare(trainer.network.buffer_layout, model.buffers)
        _compare(trainer.optimizer_layout if with_optimizer else {}, model.optimizer)
        return model

    def _optimizer(self, request: TrainLeg, trainer: Trainer, model: ModelState) -> Arrays:
        """Return the optimiser's state: it travels with a handed-over model, never else."""
        if request.carries is Carries.ENVELOPE:
            return model.optimizer
        kept = self._kept_before(request.leg)
        if request.carries is Carries.AGGREGATE and kept is not None:
            return ModelState.from_bytes(self._state[kept]).optimizer
        return trainer.fresh_optimizer()

    def _keep(self, leg: int, optimizer: Arrays) -> None:
        """Keep the state of the model sent in `leg`, and the one it may have come from.

        Asked for the leg again, the hospital begins with the same state and gives the same answer.
        """
        before = self._kept_before(leg)
        for key in [key for key in self._state if key.startswith(_KEPT) and key != before]:
            del self._state[key]
        self._state[f"{_KEPT}{leg}"] = ModelState({}, {}, optimizer).to_bytes()

    def _kept_before(self, leg: int) -> str | None:
        legs = [int(key.removeprefix(_KEPT)) for key in self._state if key.startswith(_KEPT)]
        last = max((kept for kept in legs if kept < leg), default=None)
        return None if last is None else f"{_KEPT}{last}"

    def _anchor(self, descriptor: Descriptor, aggregate: ModelState | None) -> Arrays | None:
        """Return what FedProx pulls towards: the aggregate last received here, if any."""
        if not descriptor.training.get("proximal-mu"):
            return None
        if aggregate is not None:
            return aggregate.parameters
        last = self._state.get(_AGGREGATE)
        return ModelState.from_bytes(last).parameters if last is not None else None

    def _held_out(self, network: Network, model: ModelState) -> Figures | None:
        if not len(self._share.held_out):
            return None
        network.load(model.parameters, model.buffers)
        return network.evaluate(*network.tensors(self._share.held_out))


@lru_cache(maxsize=2)
def _workbench(settings: TrainingSettings, task: Task, device: str) -> Network:
    """Build the network that models are loaded into; one serves all hospitals of a process."""
    return Network(settings, task, seed=0, device=device)


def _compare(layout: Layout, given: Arrays) -> None:
    if set(layout) != set(given):
        raise Refused(RefusalCode.MODEL_MISMATCH, "other tensors than the model's")
    for name, (shape, dtype) in layout.items():
        if given[name].shape != shape or given[name].dtype != dtype:
            raise Refused(RefusalCode.MODEL_MISMATCH, f"{name} has another shape or type")
        if not np.isfinite(given[name]).all():
            raise Refused(RefusalCode.NOT_FINITE, f"{name} has values that are not finite")


def _malformed(detail: str) -> NoReturn:
    raise Refused(RefusalCode.MALFORMED, detail)
