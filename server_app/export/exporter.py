"""Write a finished experiment's model for others. Imports torch: for commands only."""

import hashlib
import json
import time
from pathlib import Path

from learning.evaluation import HeldOutEvaluation
from learning.export.onnx_file import to_onnx
from learning.trainer import Network
from operation import files
from protocol.model_bytes import ModelState
from protocol.model_file import to_model_file
from server_app.config.card_settings import CardSettings
from server_app.config.noise_target import epsilon_of
from server_app.config.study_task import load_task
from server_app.experiment import first_model
from server_app.experiment.experiment_folder import ExperimentFolder
from server_app.study.study_folder import Study, StudyError

from .model_card import CardFacts, model_card

CARD = "README.md"  # what model hubs show
MODEL, ONNX, CONFIG = "model.safetensors", "model.onnx", "config.json"


def export(study: Study, experiment: ExperimentFolder, target: Path, *, onnx: bool) -> list[Path]:
    """Write model, ONNX file and model card; return the files.

    Everything is computed and compared before the first file is written.
    """
    if not experiment.is_complete:
        raise StudyError(
            f"the experiment {experiment.id} is not complete: continue it with "
            f"`feddc coordinator resume {experiment.id}`"
        )
    hospitals = len(experiment.roster().members)
    settings, task_settings = experiment.settings(hospitals)
    codebook = experiment.codebook()
    # The seed of a rehearsal is deleted by now: these may be other test data than its own. They are
    # good enough to compare the ONNX file on; the figures were computed before.
    task, test = load_task(task_settings, seed=0, codebook=codebook)
    network = Network(settings.training, task, seed=0)
    final = first_model.read(experiment.folder / first_model.FINAL, ModelState(*network.arrays()))
    network.load(final.parameters, final.buffers)
    classes = experiment.class_names(task.classes)
    config = {
        "study": study.name,
        "experiment": experiment.id,
        "model": settings.training.model,
        "model-options": settings.training.model_options,
        "shape": json.dumps(task.shape),
        "classes": json.dumps(classes, ensure_ascii=False),
    }
    contents = {
        MODEL: to_model_file(final, config),
        CONFIG: (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode(),
    }
    metadata = dict(config)
    if codebook is not None:
        contents["codebook.json"] = codebook.content
        metadata["codebook"] = codebook.content.decode()
    if onnx:
        examples = test.features if test is not None else None
        contents[ONNX] = to_onnx(network, metadata, examples)
    facts = CardFacts(
        study.name,
        experiment.id,
        time.strftime("%Y-%m-%d"),
        hospitals,
        settings,
        task.shape,
        classes,
        final.trainable_numbers,
        {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
        codebook.features if codebook else (),
        codebook.digest.hex() if codebook else "",
        _figures(experiment),
        _pooled(experiment),
        epsilon_of(settings),
    )
    contents[CARD] = model_card(facts, _card_settings(study)).encode()
    target.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        files.replace(target / name, content)
    return [target / name for name in contents]


def _figures(experiment: ExperimentFolder) -> HeldOutEvaluation | None:
    """Return the final model's figures on the coordinator's test data, if it had any."""
    path = experiment.figures_file
    try:
        return HeldOutEvaluation.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise StudyError(f"{path} cannot be read: {error}") from error


def _pooled(experiment: ExperimentFolder) -> dict[str, float] | None:
    """Return the totals over hospitals that the experiment ended with, if there are any."""
    try:
        summary = json.loads((experiment.folder / "summary.json").read_text(encoding="utf-8"))
        total = summary.get("held_out")
        keys = ("hospitals", "examples", "accuracy", "balanced_accuracy")
        return {key: float(total[key]) for key in keys} if total else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyError(f"{experiment.folder / 'summary.json'} cannot be read: {error}") from error


def _card_settings(study: Study) -> CardSettings:
    """Return the texts as settings.toml has them now, not when the experiment began."""
    known = set(CardSettings.key_names())
    values = {key: value for key, value in study.settings().items() if key in known}
    return CardSettings.parse(values, source=str(study.settings_file))
