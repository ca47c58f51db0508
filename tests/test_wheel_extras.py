"""The wheel in empty environments: without extras, and with each of them alone.

Installs PyTorch, so it takes minutes and needs a package index.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.learning.data.medical.made_images import dicom_image, save
from tests.test_extras import EXTRAS, wheel  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.slow, pytest.mark.long]

RUN = """
from pathlib import Path
from lab.flower.in_process import simulate_in_process
from server_app.config.run_config import Settings
values = {"dataset": "digits", "hospitals": 4, "examples": 6, "rounds": 4, "aggregation-period": 2}
simulate_in_process(Settings.from_run_config(values, source="test"), Path("run"))
"""
USES = {
    "notebook": "import feddc; assert len(feddc.open_run('run').frame())",
    "export": """
from learning.export.onnx_file import to_onnx
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec
training = TrainingSettings.parse({}, source="test")
assert to_onnx(Network(training, TaskSpec((4,), 2), seed=0), {})
""",
    "tables": """
from pathlib import Path
from learning.data.tables.files import read_table
assert list(read_table(Path("patients.parquet")).columns) == ["age"]
""",
    "medical": """
from pathlib import Path
from learning.data.medical.dicom import decode
import sys
assert decode(Path("image.dcm").read_bytes(), "image.dcm").values.size == 16
for module in ("nibabel", "highdicom", "gdcm", "jpeg_ls") if "pydicom" in sys.modules else ():
    __import__(module)
""",
    "monai": """
from learning.models.monai_networks import load
assert load("monai:resnet18").create((1, 32, 32), 2)
""",
    "docs": "import sphinx, myst_parser, furo",
}
FEDDC = ["python", "-c", "from operation.cli import main; main()"]
COMMANDS = {"tensorboard": [*FEDDC, "lab", "export", "run", "--to", "tensorboard"]}


@pytest.fixture(scope="module")
def folder(wheel: Path) -> Iterator[Path]:  # noqa: F811
    """The wheel's folder, with data to read and an environment in which it is installed."""
    made = wheel.parent
    parquet.write_table(pyarrow.table({"age": [61, 47]}), made / "patients.parquet")
    save(dicom_image(np.arange(16, dtype=np.uint8).reshape(4, 4)), made / "image.dcm")
    install(made, "plain")
    assert run(made, "plain", "python", "-c", RUN).returncode == 0
    yield made
    shutil.rmtree(made)


def pip(*arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def install(folder: Path, environment: str, extra: str = "") -> None:
    """Make an environment with the wheel and an extra; packages that others have are linked."""
    place = folder / environment
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    if extra:
        (packages,) = (folder / "plain").glob("lib/python3*/site-packages")
        (own,) = place.glob("lib/python3*/site-packages")
        shutil.copytree(packages, own, copy_function=os.link, dirs_exist_ok=True)
    (built,) = folder.glob("feddc-*.whl")
    python = place / "bin" / "python"
    pip("--python", python, "install", f"{built}[{extra}]" if extra else built)


def run(folder: Path, environment: str, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a program of an environment."""
    program, *arguments = command
    return subprocess.run(
        [str(folder / environment / "bin" / program), *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_extra_has_a_use_here() -> None:
    assert {*EXTRAS} - {"dev"} == {*USES, *COMMANDS}  # the tests run in an environment with dev


def test_without_extras_the_commands_work(folder: Path) -> None:
    done = run(folder, "plain", "feddc", "lab", "list", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


@pytest.mark.parametrize("extra", [*USES, *COMMANDS])
def test_each_extra_brings_what_its_features_need(folder: Path, extra: str) -> None:
    use = COMMANDS.get(extra) or ["python", "-c", USES[extra]]
    without = run(folder, "plain", *use)
    assert without.returncode != 0, f"{extra} is not needed"
    if extra != "docs":
        assert f"[{extra}]" in without.stderr, "the error does not name the extra"

    install(folder, extra, extra)

    done = run(folder, extra, *use)
    assert done.returncode == 0, done.stderr
