"""The engine's benchmark prints the documented fields."""

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_engine_is_measured_beside_a_plain_loop() -> None:
    command = "benchmarks.engine --tasks linear --pairs 1 --turns 1 --no-ray --json"
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], capture_output=True, text=True, check=True
    )
    row = json.loads(done.stdout)["linear"]
    assert row["backend"] == "batched"
    assert row["client_rounds_per_s"] > row["loop_client_rounds_per_s"] > 0
    ratio = row["client_rounds_per_s"] / row["loop_client_rounds_per_s"]
    assert abs(row["vs_loop"] / ratio - 1) < 0.01
