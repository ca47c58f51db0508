"""The model card: a Hugging Face head, and the headings of the CHAI Applied Model Card.

The headings are those of the Coalition for Health AI's schema, version 0.1. What the system knows
is filled in; what only the study can say is marked as missing until settings.toml says it. Nothing
of one hospital is in it: no names, figures, counts, routes or seeds.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from learning.evaluation import HeldOutEvaluation
from learning.evaluation.evaluation_text import evaluation_text
from learning.evaluation.intervals import proportion
from operation.runs.pooling import is_pooled
from server_app.config.card_settings import CardSettings
from server_app.config.run_config import Settings

MISSING = "**Missing:**"


@dataclass(frozen=True)
class CardFacts:
    """What the system knows about a model."""

    study: str
    experiment: str
    date: str
    hospitals: int
    settings: Settings
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    parameters: int
    files: Mapping[str, str] = field(default_factory=dict)  # with their SHA-256
    features: tuple[str, ...] = ()
    codebook: str = ""
    evaluation: HeldOutEvaluation | None = None
    held_out: Mapping[str, float] | None = None
    """Totals over all hospitals that add theirs: hospitals, examples, accuracy, …"""
    epsilon: float | None = None
    """Of a hospital that takes part in every leg; None without a privacy unit."""


def model_card(facts: CardFacts, given: CardSettings) -> str:
    """Return the card as Markdown."""
    texts = {key.replace("-", "_"): str(text) for key, text in given.as_config().items()}

    def said(key: str) -> str:
        text = " ".join(texts[f"card_{key}"].split())
        setting = f"card-{key.replace('_', '-')}"
        return (
            text or f"**Missing:** only the study can say this; set `{setting}` in settings.toml."
        )

    sections: list[tuple[str, list[tuple[str, str]]]] = [
        (
            "Basic information",
            [
                ("Model name", f"{facts.study}, {facts.experiment}"),
                ("Developer", said("developer")),
                ("Developer contact", said("contact")),
            ],
        ),
        (
            "Release information",
            [
                ("Release stage", said("stage")),
                ("Release date", facts.date),
                ("Release version", facts.experiment),
                ("Global availability", said("availability")),
                ("Regulatory approval", said("regulatory_approval")),
            ],
        ),
        (
            "Model summary",
            [
                ("Summary", said("summary")),
                ("Keywords", "federated learning, daisy-chaining, " + _pipeline(facts)),
            ],
        ),
        (
            "Uses and directions",
            [
                ("Intended use and workflow", said("intended_use")),
                ("Primary intended users", said("intended_users")),
                ("How to use", _how_to_use(facts)),
                ("Targeted patient population", said("population")),
                ("Cautioned out-of-scope settings and use cases", said("out_of_scope")),
            ],
        ),
        (
            "Warnings",
            [
                ("Known risks and limitations", said("limitations")),
                ("Known biases or ethical considerations", said("biases")),
                ("Clinical risk level", said("risk_level")),
            ],
        ),
        (
            "Trust ingredients: AI system facts",
            [
                (
                    "Outcomes and outputs",
                    f"The probability of each class, in this order: {', '.join(facts.classes)}.",
                ),
                ("Model type", _model_type(facts)),
                ("Foundation models", "None."),
                ("Input data source", said("input_source")),
                ("Output and input data types", _data_types(facts)),
                ("Development data characterization", said("development_data")),
                ("Bias mitigation approaches", said("bias_mitigation")),
                ("Ongoing maintenance", said("maintenance")),
                ("Security and compliance", _security(facts)),
                ("Transparency, intelligibility and accountability", _files(facts)),
            ],
        ),
        (
            "Trust ingredients: transparency information",
            [
                ("Funding source", said("funding")),
                ("Stakeholders consulted", said("stakeholders")),
            ],
        ),
        (
            "Key metrics",
            [
                ("Usefulness, usability and efficacy", _usefulness(facts, texts)),
                ("Fairness and equity", said("fairness")),
                ("Safety and reliability", said("safety")),
            ],
        ),
        (
            "Resources",
            [
                ("Peer-reviewed publications", said("publications")),
                ("Patient consent or disclosure", said("consent")),
            ],
        ),
    ]
    parts = [_head(facts, texts), f"# {facts.study}: {facts.experiment}"]
    for title, entries in sections:
        parts.append(f"## {title}")
        parts += [f"### {heading}\n\n{text}" for heading, text in entries]
    return "\n\n".join(parts) + "\n"


def _head(facts: CardFacts, texts: Mapping[str, str]) -> str:
    """Return the YAML head; JSON strings and lists are YAML."""
    lines = ["---"]
    if licence := texts["card_licence"].strip():
        lines.append(f"license: {json.dumps(licence.lower())}")
    lines += [
        "library_name: onnx",
        f"pipeline_tag: {_pipeline(facts)}",
        'tags: ["federated-learning", "feddc", "medical"]',
    ]
    found = facts.evaluation
    if found is not None and found.accuracy is not None:
        lines += [
            'metrics: ["accuracy"]',
            "model-index:",
            f"- name: {json.dumps(f'{facts.study}, {facts.experiment}', ensure_ascii=False)}",
            "  results:",
            f"  - task: {{type: {_pipeline(facts)}}}",
            '    dataset: {type: "private", name: "the coordinator\'s test data"}',
            f"    metrics: [{{type: accuracy, value: {found.accuracy.value:.4f}}}]",
        ]
    return "\n".join([*lines, "---"])


def _pipeline(facts: CardFacts) -> str:
    return "tabular-classification" if len(facts.shape) == 1 else "image-classification"


def _how_to_use(facts: CardFacts) -> str:
    shape = ", ".join(map(str, facts.shape))
    return (
        "```python\n"
        "import onnxruntime\n\n"
        'session = onnxruntime.InferenceSession("model.onnx")\n'
        f"# float32, shape (examples, {shape}), made by the codebook's mapping\n"
        '(probabilities,) = session.run(["probabilities"], {"features": features})\n'
        "```\n\n"
        "A hospital of the study predicts from its own files with `feddc hospital predict`."
    )


def _model_type(facts: CardFacts) -> str:
    training, method = facts.settings.training, facts.settings.algorithm
    return (
        f"`{training.model}` with the options `{training.model_options}`: {facts.parameters:,} "
        f"parameters. Trained by federated daisy-chaining at {facts.hospitals} hospitals: "
        f"{method.rounds:,} rounds, `daisy-period` {method.daisy_period}, `aggregation-period` "
        f"{method.aggregation_period}, aggregator `{method.aggregator}`, optimiser "
        f"`{training.optimizer}`, learning rate {training.learning_rate:g}, batch size "
        f"{training.batch_size or 'all examples'}."
    )


def _data_types(facts: CardFacts) -> str:
    shape = "×".join(map(str, facts.shape))
    text = f"Input: {shape} numbers (float32). Output: {len(facts.classes)} probabilities."
    if facts.features:
        text += " Features, in order: " + ", ".join(f"`{name}`" for name in facts.features) + "."
    if facts.codebook:
        text += f" Codebook: SHA-256 `{facts.codebook}`."
    return text


def _security(facts: CardFacts) -> str:
    plain = facts.settings.algorithm.averaging == "plain"
    aggregation = (
        "the coordinator could read each model that was aggregated"
        if plain
        else "the coordinator learnt only sums of models"
    )
    return (
        "Patients' data never left their hospital. Models were handed over sealed for their "
        f"recipient; in aggregations {aggregation}. {_noise(facts)}"
    )


def _noise(facts: CardFacts) -> str:
    # From the noise: an experiment's settings have no target any more, but what it stands for.
    if facts.epsilon is not None and math.isfinite(facts.epsilon):
        unit, delta = facts.settings.training.privacy_unit, facts.settings.algorithm.target_delta
        whose = "each patient" if unit == "patient" else "all data"
        return (
            f"Noise was added for differential privacy: ε = {facts.epsilon:.3g} (δ = {delta:g}) "
            f"for {whose} of a hospital that took part in every leg."
        )
    return "No noise was added for differential privacy: records may be reconstructed from a model."


def _files(facts: CardFacts) -> str:
    lines = [f"- `{name}`: SHA-256 `{digest}`" for name, digest in facts.files.items()]
    return "\n".join(["Files of this release:", "", *lines])


def _usefulness(facts: CardFacts, texts: Mapping[str, str]) -> str:
    parts = [" ".join(texts["card_usefulness"].split())]
    if facts.evaluation is not None:
        figures = evaluation_text("the coordinator's test data", facts.evaluation)
        parts.append("```\n" + figures.replace("held-out examples", "examples") + "\n```")
    if (total := facts.held_out) is not None and is_pooled(total["hospitals"]):
        examples = int(total["examples"])
        accuracy = proportion(round(total["accuracy"] * examples), examples)
        parts.append(
            f"On {examples:,} held-out examples of {int(total['hospitals'])} hospitals together: "
            f"accuracy {accuracy.value:.3f} (95 % interval {accuracy.low:.3f} to "
            f"{accuracy.high:.3f}), balanced accuracy {total['balanced_accuracy']:.3f}."
        )
    return "\n\n".join(part for part in parts if part) or (
        f"{MISSING} the coordinator has no test data; set `card-usefulness` in settings.toml to "
        "what the hospitals have agreed to publish."
    )
