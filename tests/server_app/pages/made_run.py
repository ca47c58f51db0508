"""A made-up study of any size, written by the real writer: for what pages look like."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

from operation.runs.event_file import FILE_NAME, ROUTES, EventWriter
from server_app.config.run_config import Settings
from server_app.pages.report import write_reports

# Real names are long, and not all are written in Latin letters.
NAMES = (
    "Universitätsklinikum Schleswig-Holstein, Campus Kiel",
    "St Mary",
    "東京大学医学部附属病院",
    "Charité",
    "Barts",
)


def hospital_names(count: int) -> list[str]:
    return [*NAMES, *(f"Hospital {number:02d}" for number in range(count))][:count]


def make_run(
    folder: Path, hospitals: int, *, legs: int = 60, publishing: Sequence[str] = ()
) -> Path:
    """Write the record of a run in which hospitals are late or missing, and its reports."""
    rng = random.Random(hospitals)  # noqa: S311 (a made-up run)
    folder.mkdir(parents=True)
    names = hospital_names(hospitals)
    metrics = EventWriter(folder / FILE_NAME, append=False)
    routes = EventWriter(folder / ROUTES, append=False, mode=0o600)
    metrics.write(
        "start",
        experiment="made",
        simulated=False,
        legs=legs,
        rounds=legs,
        hospitals=names,
        examples={name: rng.randrange(20, 4000) for name in names},
        publishing=list(publishing),
    )
    for leg in range(1, legs + 1):
        ending = "hand-over" if leg % 10 else "aggregation"
        missing = {name: "no answer" for name in names if rng.random() < 0.03}
        parked = [name for name in missing if rng.random() < 0.5]
        if leg == legs:  # states that the last leg left
            missing, parked = dict.fromkeys(names[:2], "not connected"), names[:1]
        losses = {}
        for number, name in enumerate(names):
            loss = 2.3 * math.exp(-leg / 15) + 0.1 + 0.02 * (number % 7) + 0.05 * rng.random()
            losses[name] = loss
            answered = {} if name in missing else {"loss": loss, "accuracy": math.exp(-loss)}
            metrics.write(
                "hospital",
                leg=leg,
                hospital=name,
                problem=missing.get(name, ""),
                weight=1.0,
                seconds=rng.random(),
                bytes_up=29_312,
                bytes_down=29_312,
                **answered,
            )
        order = rng.sample(names, hospitals)
        chains = [[chain, place, None] for chain, place in enumerate(order)]
        routes.write("routes", leg=leg, ending=ending, chains=chains)
        mean = sum(losses.values()) / hospitals
        metrics.write(
            "leg",
            leg=leg,
            ending=ending,
            last_round=leg - 1,
            asked=hospitals,
            answered=hospitals - len(missing),
            missing=missing,
            parked=parked,
            loss=mean,
            accuracy=math.exp(-mean),
            lost_chains=0,
            missed_rounds=leg // 10,
            seconds=1.0,
        )
        metrics.write("privacy", leg=leg, round=leg - 1, epsilon=leg**0.5, delta=1e-5)
        if ending == "aggregation":
            accuracy = 0.95 * math.exp(-0.8 * mean)
            evaluation = {"test_loss": mean, "test_accuracy": accuracy}
            metrics.write("evaluation", leg=leg, round=leg - 1, **evaluation)
    for name in names:
        count = rng.randrange(8, 200)
        accuracy = round(rng.uniform(0.6, 0.98) * count) / count
        metrics.write("held-out", hospital=name, loss=0.5, accuracy=accuracy, examples=count)
    metrics.write("end", status="completed", reason="")
    settings = Settings.from_run_config({"rounds": legs, "aggregation-period": 10}, source="test")
    (folder / "settings.json").write_text(json.dumps(settings.as_config()))
    summary = {
        "mean_held_out_accuracy": 0.81,
        "test_balanced_accuracy": 0.78,
        "sealed": True,
        "readable_models": 0,
        "seconds": 4711.0,
        "versions": {"feddc": "0.2", "flwr": "1.41", "torch": "2.9", "numpy": "2.3"},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    metrics.close()
    routes.close()
    write_reports(folder)
    return folder
