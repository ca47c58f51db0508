"""Make the docs' pictures from real runs: `make pictures`.

Those of the tutorials are taken while the pages' own commands run. Needs the system's Chromium, and
nginx for the coordinator's tutorial. Nothing is loaded from the network.
"""

import io
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from benchmarks.support.processes import FEDDC, Processes, free_port, wait_for
from lab.flower.in_process import simulate_in_process
from server_app.config.run_config import Settings
from tests.tutorials import readers
from tests.tutorials.session import Session, steps

PICTURES = Path(__file__).parent / "pictures"
FLAGS = ["--no-sandbox", "--disable-gpu"]
RUN = {
    "dataset": "digits",
    "hospitals": 6,
    "examples": 20,
    "rounds": 100,
    "aggregation-period": 10,
    "learning-rate": 0.4,
    "seed": 1,
}


def main() -> None:
    """Make the pictures of the parts that are named on the command line, or of all."""
    parts: dict[str, Callable[[Page], None]] = {
        "run": picture_run,
        "coordinator": picture_coordinator,
        "researcher": picture_researcher,
    }
    PICTURES.mkdir(exist_ok=True)
    with _browser() as page:
        for name in sys.argv[1:] or parts:
            parts[name](page)


def picture_run(page: Page) -> None:
    """Run an experiment and take its dashboard and reports."""
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),  # the pages name the folder as it is given
        Processes(Path(folder)) as processes,
    ):
        run = Path("runs") / "digits"
        simulate_in_process(Settings.from_run_config(RUN, source="pictures"), run)
        log = Path(folder) / "dashboard.log"
        command = [*FEDDC, "lab", "dashboard", run.parent, "--port", free_port()]
        processes.start("dashboard", command)
        wait_for(lambda: "token" in log.read_text(encoding="utf-8"), "the dashboard", 60)
        take(page, "dashboard", _address(log))
        take(page, "report", (run / "report.html").resolve().as_uri())
        private = (run / "report-coordinator.html").resolve().as_uri()
        take(page, "report-coordinator", private, at="Chains since")


def picture_coordinator(page: Page) -> None:
    """Follow the coordinator's tutorial and take what its reader sees in a browser."""
    with readers.coordinator() as reader:
        for step in steps(readers.COORDINATOR):
            reader.do(step)
            if step.text == "cat dashboard.log":
                page.set_viewport_size({"width": 1100, "height": 760})
                address = _address(reader.folder / "dashboard.log")
                take(page, "study-waiting", address, until="waiting for approval")
            if step.text == "feddc coordinator follow":
                page.set_viewport_size({"width": 1100, "height": 900})
                take(page, "study-dashboard", address, until="completed")
                (report,) = reader.folder.glob("study/experiments/*/report.html")
                take(page, "study-report", report.as_uri())


def picture_researcher(page: Page) -> None:
    """Follow the researcher's tutorial; take its dashboard, and the figures that it saves."""
    with readers.researcher() as reader:
        for step in steps(readers.RESEARCHER):
            reader.do(step)
            if step.text == "cat dashboard.log":
                _compare(page, reader)
        for name, made in {
            "notebook-accuracy": "accuracy.png",
            "notebook-chains": "chains.png",
            "lab-communication": "runs/comparison/communication.png",
        }.items():
            write(name, (reader.folder / made).read_bytes())


def _compare(page: Page, reader: Session) -> None:
    """Choose two runs on the dashboard, as the page says, and take them."""
    page.set_viewport_size({"width": 1100, "height": 700})
    page.goto(_address(reader.folder / "dashboard.log"))
    page.click("nav label:has-text('feddc') button")
    page.check("nav label:has-text('fedavg') input")
    page.wait_for_timeout(500)  # until the curves are drawn
    write("lab-dashboard", page.screenshot())


def take(page: Page, name: str, address: str, *, until: str = "", at: str = "") -> None:
    """Write a picture of a page: of its top, or from a heading on; `until` it has a text."""
    page.goto(address)
    page.wait_for_selector(f"text={until}" if until else "canvas, svg", timeout=60_000)
    page.wait_for_timeout(500)  # until the curves are drawn
    if at:
        page.get_by_text(at).last.scroll_into_view_if_needed()
    write(name, page.screenshot())


def write(name: str, image: bytes) -> None:
    """Write a picture with 256 colours, which is enough for text and curves."""
    colours = Image.open(io.BytesIO(image)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    colours.save(PICTURES / f"{name}.png", optimize=True)


def _address(log: Path) -> str:
    found = re.search(r"http://\S+token=\S+", log.read_text(encoding="utf-8"))
    assert found is not None, log  # noqa: S101 (the dashboard printed it)
    return found[0]


@contextmanager
def _browser() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        size = {"width": 1100, "height": 900}
        yield browser.new_page(viewport=size, color_scheme="light")  # type: ignore[arg-type]
        browser.close()


if __name__ == "__main__":
    main()
