"""Make the pictures of the dashboard and the report from a real run: `make pictures`.

Needs the system's Chromium. Nothing is loaded from the network.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from lab.flower.in_process import simulate_in_process
from server_app.config.run_config import Settings

PICTURES = Path(__file__).parent / "pictures"
FLAGS = ["--no-sandbox", "--disable-gpu"]
RUN = {
    "dataset": "digits",
    "hospitals": 6,
    "examples": 20,
    "rounds": 60,
    "aggregation-period": 10,
    "learning-rate": 0.5,
    "seed": 1,
}


def main() -> None:
    """Run an experiment, open its pages, and write the pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "runs" / "digits"
        simulate_in_process(Settings.from_run_config(RUN, source="pictures"), run)
        feddc = [sys.executable, "-c", "from operation.cli import main; main()"]
        with subprocess.Popen(  # noqa: S603 (our own command)
            [*feddc, "lab", "dashboard", "runs", "--port", "0"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(PICTURES.parents[1])},
            stdout=subprocess.PIPE,
            text=True,
        ) as server:
            assert server.stdout is not None  # noqa: S101 (it is a pipe)
            try:
                address = server.stdout.readline().split()[1]
                take(
                    {
                        "dashboard": address,
                        "report": (run / "report.html").as_uri(),
                        "report-coordinator": (run / "report-coordinator.html").as_uri(),
                    }
                )
            finally:
                server.terminate()


def take(pages: dict[str, str]) -> None:
    """Write a picture of the top of each page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme="light")
        for name, address in pages.items():
            page.goto(address)
            page.wait_for_selector("canvas, svg")
            page.wait_for_timeout(500)  # until the curves are drawn
            if name == "report-coordinator":
                page.get_by_text("Chains since").last.scroll_into_view_if_needed()
            page.screenshot(path=str(PICTURES / f"{name}.png"))
        browser.close()


if __name__ == "__main__":
    main()
