"""The quickstart as a user runs it: `flwr run`, SuperNodes, and the wheel outside the checkout."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk
from safetensors.numpy import load_file

from benchmarks.support.processes import Processes, free_port
from benchmarks.support.stock_flower import StockFlower
from operation.flower.environment import superlink_environment
from operation.processes import process_group
from tests.examples.quickstart import FOLDER, algorithm_one, is_close

pytestmark = pytest.mark.slow

NODES, ROUNDS, B = 3, 5, 3


def assert_is_algorithm_one(model_file: Path) -> None:
    """Flower gives nodes random ids, and routes follow their order: one of six must fit."""
    found = load_file(model_file)
    expected = [
        algorithm_one(partitions, rounds=ROUNDS, d=1, b=B)
        for partitions in itertools.permutations(range(NODES))
    ]
    assert any(is_close(found, model) for model in expected)
    assert not is_close(found, algorithm_one(range(NODES), rounds=ROUNDS, d=None, b=B))


def test_flwr_run_runs_it_and_shows_the_result(tmp_path: Path) -> None:
    model_file = tmp_path / "model.safetensors"
    with process_group.new_home() as home:
        environment = superlink_environment(home, poll_seconds=0.2) | {
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
            "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
            "RAY_TMPDIR": str(home),
            "SPT_NOENV": "1",  # Ray's workers would write their title over FLWR_HOME
        }
        command = [
            *("flwr", "run", str(FOLDER), "--stream"),
            "--federation-config",
            f"num-supernodes={NODES} client-resources-num-cpus=1 init-args-num-cpus=1",
            "--run-config",
            f"num-server-rounds={ROUNDS} aggregation-period={B} model-file='{model_file}'",
        ]
        for _ in range(20):  # Flower gives its SuperLink 15 s to start, too few on a busy machine
            done = subprocess.run(
                command,
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                timeout=900,
            )
            if "Failed to start local SuperLink" not in done.stderr:
                break
    assert re.search(r"Accuracy of the final model: \d+\.\d %", done.stdout), done.stdout
    assert_is_algorithm_one(model_file)


def test_it_runs_on_real_supernodes(tmp_path: Path) -> None:
    app, model_file = tmp_path / "app", tmp_path / "model.safetensors"
    shutil.copytree(FOLDER, app, ignore=shutil.ignore_patterns("__pycache__"))
    project = app / "pyproject.toml"
    changes = {
        "num-server-rounds": str(ROUNDS),
        "aggregation-period": str(B),
        "model-file": f'"{model_file}"',
    }
    text = project.read_text(encoding="utf-8")
    for key, value in changes.items():
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
    project.write_text(text, encoding="utf-8")
    with Processes(tmp_path) as processes:
        flower = StockFlower(tmp_path, processes, nodes=NODES)
        flower.run(build_fab_from_disk(app), seconds=900)
    assert_is_algorithm_one(model_file)


FIVE_LINES = """
from pathlib import Path
import feddc
from flwr.app import ArrayRecord, ConfigRecord
from lab.flower.in_process import InProcessGrid
from pytorchexample.client_app import app
from pytorchexample.task import Net

grid = InProcessGrid(app, 4, {"batch-size": 8, "local-epochs": 1})
initial_arrays, train_config = ArrayRecord(Net().state_dict()), ConfigRecord({"lr": 0.5})

from flwr.serverapp.strategy import FedAvg
from feddc import FedDC
strategy = FedDC(FedAvg(), daisy_period=1, aggregation_period=10)
result = strategy.start(grid, initial_arrays, num_rounds=20, train_config=train_config)

assert sorted(result.evaluate_metrics_clientapp) == [10, 20], result
print(Path(feddc.__file__).parents[1])
"""


def test_the_wheel_installs_into_an_empty_environment_and_runs(tmp_path: Path) -> None:
    wheels, environment = tmp_path / "wheels", tmp_path / "environment"
    root = FOLDER.parents[1]
    pip = [sys.executable, "-m", "pip"]
    built = subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "hatchling" in built.stderr and "No matching distribution" in built.stderr:
        pytest.skip("building a wheel needs hatchling, and pip finds none")
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.glob("feddc-*.whl")

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run(
        [*pip, "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", wheel],
        check=True,
    )
    # The wheel's dependencies are this environment's: PyTorch is not installed a second time.
    (packages,) = environment.glob("lib/python3*/site-packages")
    others = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    (packages / "dependencies.pth").write_text("\n".join(others))

    shutil.copytree(FOLDER / "pytorchexample", tmp_path / "elsewhere" / "pytorchexample")
    done = subprocess.run(
        [str(python), "-c", FIVE_LINES],
        cwd=tmp_path / "elsewhere",
        env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(packages.resolve())
