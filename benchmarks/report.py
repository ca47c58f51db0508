"""The report of a very long run: its size, and how long Chromium takes to draw it.

`python -m benchmarks.report --json`
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from benchmarks.support.chromium import CHROMIUM, FLAGS
from operation.runs.event_file import FILE_NAME, ROUTES
from server_app.pages.report import write_reports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--legs", type=int, default=10_000)
    parser.add_argument("--hospitals", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.legs, options.hospitals)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:22} {value}")


def measure(legs: int, hospitals: int) -> dict[str, float | None]:
    """Write the record of a run, its reports, and open the larger one."""
    with tempfile.TemporaryDirectory(prefix="feddc-report-") as name:
        folder = Path(name)
        _write_run(folder, legs, hospitals)
        started = time.monotonic()
        _, page = write_reports(folder)
        seconds = time.monotonic() - started
        return {
            "legs": legs,
            "hospitals": hospitals,
            "metrics_mb": round((folder / FILE_NAME).stat().st_size / 1e6, 1),
            "report_mb": round(page.stat().st_size / 1e6, 3),
            "write_seconds": round(seconds, 1),
            "open_seconds": _open_seconds(page),
        }


def _write_run(folder: Path, legs: int, hospitals: int) -> None:
    """Write the events of a run in which one answer in a thousand is missing."""
    rng = random.Random(0)  # noqa: S311 (a made-up run)
    names = [f"Hospital {number:02d}" for number in range(hospitals)]
    start = {"event": "start", "version": 1, "time": 0.0, "experiment": "long", "legs": legs}
    start |= {"rounds": legs, "hospitals": names, "examples": dict.fromkeys(names, 20)}
    with (folder / FILE_NAME).open("w") as metrics, (folder / ROUTES).open("w") as routes:
        metrics.write(json.dumps(start) + "\n")
        for leg in range(1, legs + 1):
            ending = "hand-over" if leg % 10 else "aggregation"
            missing = {name: "no answer" for name in names if rng.random() < 0.001}
            for name in names:
                event = {"event": "hospital", "version": 1, "time": float(leg), "leg": leg}
                event |= {"hospital": name, "problem": missing.get(name, ""), "weight": 1.0}
                event |= {"seconds": rng.random(), "bytes_up": 29312, "bytes_down": 29312}
                if name not in missing:
                    event |= {"loss": rng.random(), "accuracy": rng.random()}
                    event |= {"held_out_loss": None, "held_out_accuracy": None}
                metrics.write(json.dumps(event) + "\n")
            event = {"event": "leg", "version": 1, "time": float(leg), "leg": leg}
            event |= {"ending": ending, "last_round": leg - 1, "missing": missing}
            event |= {"parked": list(missing), "loss": rng.random(), "accuracy": rng.random()}
            metrics.write(json.dumps(event) + "\n")
            order = rng.sample(range(hospitals), hospitals)
            chains = [[chain, names[place], None] for chain, place in enumerate(order)]
            event = {"event": "routes", "version": 1, "leg": leg, "chains": chains}
            routes.write(json.dumps(event) + "\n")


def _open_seconds(page: Path) -> float | None:
    """Return how long Chromium takes until the chain map is drawn; None without Chromium."""
    if CHROMIUM is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        tab = browser.new_page()
        started = time.monotonic()
        tab.goto(page.as_uri())
        tab.wait_for_selector("svg[role=img] rect")
        seconds = time.monotonic() - started
        browser.close()
    return round(seconds, 2)


if __name__ == "__main__":
    main()
