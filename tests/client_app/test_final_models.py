"""A hospital keeps the final model of a closed experiment, with what explains it."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from client_app.final_models.evaluation import compare, evaluate_model
from client_app.final_models.model_folder import FinalModels, ModelFolder
from client_app.final_models.saved_network import SavedNetwork
from client_app.final_models.training_alone import train_alone
from client_app.hospital.hospital import Hospital
from client_app.hospital_folder import FolderError
from client_app.state.store import MappingStore
from learning.data import Examples, Partition
from learning.metrics import evaluate
from protocol.codebook import Codebook
from protocol.messages import Closed, Refusal
from protocol.model_bytes import ModelState
from tests.client_app.small_hospital import (
    EVERY_LEG_AGGREGATES,
    PARTITIONS,
    SHAPE,
    TRAINING,
    Code,
    close,
    descriptor,
    leg,
    member,
    model,
    plain,
    set_up,
)

EXPERIMENT = "e1"
TOML = """
classes = ["benign", "malignant", "unclear"]
[images]
view = "slice"
size = [6, 6]
"""
CODEBOOK = Codebook.from_toml(TOML)
TWO_LEGS: dict[str, Any] = EVERY_LEG_AGGREGATES | {"rounds": 4}


def closing(
    folder: Path, memory: dict[str, bytes] | None = None, codebook: Codebook | None = None
) -> tuple[Hospital, bytes, dict[str, bytes]]:
    """Return a hospital after the last leg, the request to close, and its state."""
    memory = {} if memory is None else memory
    here = _keeping(folder, memory, codebook)
    digest = None if codebook is None else codebook.digest
    assert here.answer(set_up(descriptor(**TWO_LEGS, codebook=digest)))
    for number in (1, 2):
        reply = here.answer(leg(model(), leg=number, recipient=None))
        assert not isinstance(plain(reply), Refusal)
    return here, close(model(7)), memory


def _keeping(folder: Path, memory: dict[str, bytes], codebook: Codebook | None = None) -> Hospital:
    digest = None if codebook is None else codebook.digest
    models = FinalModels(folder / "models", codebook)
    return member(memory=memory, codebook=digest, final_models=models)


def kept(folder: Path) -> ModelFolder:
    return FinalModels(folder / "models").find(EXPERIMENT)


def test_the_final_model_is_on_the_disk_before_the_keys_are_destroyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, request, memory = closing(tmp_path)
    seen: list[bool] = []
    destroy = MappingStore.destroy

    def watched(self: MappingStore, experiment: str) -> None:
        seen.append((tmp_path / "models" / EXPERIMENT / "model.safetensors").is_file())
        destroy(self, experiment)

    monkeypatch.setattr(MappingStore, "destroy", watched)
    assert isinstance(plain(here.answer(request)), Closed)
    assert seen == [True]
    assert not [name for name in memory if name.startswith(f"{EXPERIMENT}/")]
    # PyTorch reads it by the network's own names.
    tensors = load_file(tmp_path / "models" / EXPERIMENT / "model.safetensors")
    expected = model(7)
    assert {name: tensor.numpy().tolist() for name, tensor in tensors.items()} == {
        name: array.tolist() for name, array in (expected.parameters | expected.buffers).items()
    }
    assert kept(tmp_path).descriptor() == descriptor(**TWO_LEGS)


def test_files_are_for_the_agents_user_only(tmp_path: Path) -> None:
    here, request, _ = closing(tmp_path, codebook=CODEBOOK)
    here.answer(request)
    folder = tmp_path / "models" / EXPERIMENT
    assert sorted(path.name for path in folder.iterdir()) == [
        "codebook.json",
        "descriptor.json",
        "first-model.safetensors",
        "model.safetensors",
    ]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_crash_after_the_files_were_written_repeats_it(tmp_path: Path) -> None:
    here, request, memory = closing(tmp_path)
    before = dict(memory)
    first = plain(here.answer(request))
    content = (tmp_path / "models" / EXPERIMENT / "model.safetensors").read_bytes()
    # The files are there, the transaction is not: as after a power cut between the two.
    again = _keeping(tmp_path, before)
    assert plain(again.answer(request)) == first
    assert (tmp_path / "models" / EXPERIMENT / "model.safetensors").read_bytes() == content


def test_a_full_disk_is_named_nothing_is_lost_and_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here, request, memory = closing(tmp_path)
    before = {name: value for name, value in memory.items() if name.startswith(EXPERIMENT)}

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert plain(here.answer(request)) == Refusal(code=Code.DISK_FULL)
    assert (
        f"no space left for {tmp_path / 'models' / EXPERIMENT / 'descriptor.json'}" in caplog.text
    )
    assert "B are needed; free some space there" in caplog.text
    after = {name: value for name, value in memory.items() if name.startswith(EXPERIMENT)}
    assert after == before

    assert isinstance(plain(here.answer(request)), Closed)
    assert kept(tmp_path).model_bytes()


def test_the_saved_evaluation_is_of_the_final_model_on_the_held_out_examples(
    tmp_path: Path,
) -> None:
    here, request, _ = closing(tmp_path, codebook=CODEBOOK)
    here.answer(request)
    partition = PARTITIONS["north"]
    assert not kept(tmp_path).is_evaluated
    text = evaluate_model(kept(tmp_path), partition, device="cpu", alone=True)

    found = kept(tmp_path).evaluation
    assert found is not None
    assert kept(tmp_path).is_evaluated
    network = SavedNetwork(kept(tmp_path)).network
    held_out = network.tensors(partition.held_out)
    truth = evaluate(network.module, *held_out, "cross-entropy")
    assert found["study"]["accuracy"]["value"] == pytest.approx(truth.accuracy)
    assert found["study"]["classes"] == ["benign", "malignant", "unclear"]
    assert found["alone"]["examples"] == len(partition.held_out)
    assert text == (kept(tmp_path).path / "evaluation.txt").read_text()
    assert "true \\ predicted" in text
    assert "no AUC of benign" in text


def test_the_model_alone_has_the_experiments_first_model_settings_and_rounds(
    tmp_path: Path,
) -> None:
    here, request, _ = closing(tmp_path)
    here.answer(request)
    saved = SavedNetwork(kept(tmp_path))
    full_batch = descriptor(**TWO_LEGS, training=TRAINING | {"batch-size": 0})
    first = saved.first_model()
    assert first is not None
    assert first.digest() == model().digest()
    network = train_alone(full_batch, PARTITIONS["north"].train, first, device="cpu")

    # Independently: a hospital that trains the same rounds and never gets another model.
    alone = member()
    assert alone.answer(
        set_up(
            descriptor(
                rounds=4,
                daisy_period=None,
                aggregation_period=None,
                training=TRAINING | {"batch-size": 0},
            )
        )
    )
    reply = plain(alone.answer(leg(model(), leg=1, local_rounds=4, recipient=None)))
    expected = ModelState.from_bytes(reply.payload)
    assert network is not None
    for name, array in network.arrays()[0].items():
        np.testing.assert_allclose(array, expected.parameters[name], rtol=1e-12)


def test_training_alone_that_diverges_is_said(tmp_path: Path) -> None:
    here, request, _ = closing(tmp_path)
    here.answer(request)
    overflowing = Examples(
        np.full((8, *SHAPE), np.inf, dtype=np.float32), PARTITIONS["north"].train.labels
    )
    partition = Partition("north", overflowing, PARTITIONS["north"].held_out)
    text = evaluate_model(kept(tmp_path), partition, device="cpu", alone=True)
    assert "a model trained on your data alone: diverged: its numbers are not finite" in text
    assert kept(tmp_path).is_evaluated


def test_one_class_held_out_gets_counts_and_what_is_not_computed(tmp_path: Path) -> None:
    here, request, _ = closing(tmp_path, codebook=CODEBOOK)
    here.answer(request)
    held_out = PARTITIONS["north"].held_out
    one = Examples(held_out.features, np.zeros(len(held_out), dtype=np.int64))
    partition = Partition("north", PARTITIONS["north"].train, one)
    text = evaluate_model(kept(tmp_path), partition, device="cpu", alone=False)
    assert "of 5 held-out examples none is malignant or unclear" in text
    assert "5 held-out examples are benign and 0 are not; 5 of each are needed" in text


def test_nothing_held_out_is_said(tmp_path: Path) -> None:
    here, request, _ = closing(tmp_path)
    here.answer(request)
    none = PARTITIONS["north"].held_out.take([])
    partition = Partition("north", PARTITIONS["north"].train, none)
    text = evaluate_model(kept(tmp_path), partition, device="cpu", alone=True)
    assert "no example is held out; raise test-fraction" in text
    assert kept(tmp_path).is_evaluated


def test_an_evaluation_that_was_interrupted_is_not_finished(tmp_path: Path) -> None:
    here, request, _ = closing(tmp_path)
    here.answer(request)
    folder = kept(tmp_path)
    evaluate_model(folder, PARTITIONS["north"], device="cpu", alone=True)
    done = json.loads((folder.path / "evaluation.json").read_text())
    begun = done | {"alone": None, "alone_missing": "not trained yet"}
    (folder.path / "evaluation.json").write_text(json.dumps(begun))
    assert not folder.is_evaluated
    evaluate_model(folder, PARTITIONS["north"], device="cpu", alone=True)
    assert folder.evaluation == done  # the same again


@pytest.mark.parametrize("name", ["descriptor.json", "codebook.json", "model.safetensors"])
def test_a_folder_that_was_changed_is_refused(name: str, tmp_path: Path) -> None:
    here, request, _ = closing(tmp_path, codebook=CODEBOOK)
    here.answer(request)
    other = descriptor(**TWO_LEGS | {"rounds": 6}, codebook=CODEBOOK.digest)
    changed = Codebook.from_toml(TOML.replace("unclear", "unknown"))
    content = {
        "descriptor.json": other.to_bytes(),
        "codebook.json": changed.content,
        "model.safetensors": b"junk" * 10,
    }[name]
    (kept(tmp_path).path / name).write_bytes(content)
    with pytest.raises(FolderError, match="restore") as raised:
        SavedNetwork(kept(tmp_path))
    if name == "codebook.json":
        assert CODEBOOK.digest.hex() in str(raised.value)
        assert changed.digest.hex() in str(raised.value)


def test_two_models_are_compared_on_the_same_examples() -> None:
    labels = np.array([0, 0, 1, 1, 1, 0, 1, 0, 1])
    held_out = Examples(np.zeros((9, 1), dtype=np.float32), labels)
    right, wrong = np.eye(2)[labels], np.eye(2)[1 - labels]
    found = compare(right, np.concatenate([right[:1], wrong[1:]]), held_out)
    assert (found.only_study, found.only_alone) == (8, 0)
    assert found.p_value == pytest.approx(2 / 2**8)  # eight times heads or eight times tails
    assert compare(right, right, held_out).p_value == 1
