"""Write the Python packages of every image with the hashes of their files: `make lock`.

Reads docker/requirements/NAME.in and constraints.txt, asks pip's index, and writes NAME.txt. The
hashes are those of all files of a version, for every platform. With TORCH=cpu it writes
NAME-cpu.txt instead, for images with torch, from PyTorch's own index of builds without CUDA.
Versions that constraints.txt does not name stay as they are in NAME.txt; remove that file to get
newer ones.
"""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "requirements"
NAMES = ("training", "readers", "courier", "coordinator", "build", "sbom")
WITH_TORCH = ("training",)
PYTHON = "3.11"  # the images'
# For torch.compile, which nothing here uses: a gigabyte that no image has.
LEFT_OUT = "triton"


def main() -> None:
    cpu = os.environ.get("TORCH", "cuda") == "cpu"
    for name in WITH_TORCH if cpu else NAMES:
        target = f"{name}-cpu.txt" if cpu else f"{name}.txt"
        done = subprocess.run(command(name, target, cpu=cpu), cwd=FOLDER)  # noqa: S603
        if done.returncode:
            sys.exit(f"{target} is unchanged: uv could not resolve {name}.in, see above")


def command(name: str, target: str, *, cpu: bool) -> list[str]:
    """Return the command that writes one file; no address of an index gets into it."""
    uv = Path(sys.executable).with_name("uv")
    options = ["--universal", f"--python-version={PYTHON}", "--only-binary=:all:"]
    written = ["--generate-hashes", "--no-annotate", "--custom-compile-command=make lock"]
    left_out = [f"--no-emit-package={LEFT_OUT}"]
    backend = ["--torch-backend=cpu"] if cpu else []
    files = ["--constraint=constraints.txt", f"--output-file={target}", f"{name}.in"]
    return [str(uv), "pip", "compile", "--quiet", *options, *written, *left_out, *backend, *files]


if __name__ == "__main__":
    main()
