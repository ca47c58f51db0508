"""What hostile code would do first: look for what it came for, everywhere.

Run inside a container as `python - NEEDLE...`, each in hex; prints as JSON where each was found.
`FEDDC_SKIP` names a folder not to look into, where there is much that everybody can download.
"""

# ruff: noqa: PTH116, PTH118, PTH123 (runs where nothing is installed, as small as can be)

import json
import os
import stat
import sys

LARGEST = 64 * 1024 * 1024
SKIPPED = ("/sys", os.environ.get("FEDDC_SKIP", "/sys"))


def main() -> None:
    needles = {text: bytes.fromhex(text) for text in sys.argv[1:]}
    found: dict[str, list[str]] = {text: [] for text in needles}
    looked, closed = 0, 0
    for path in files("/"):
        try:
            with open(path, "rb") as file:
                data = file.read(LARGEST)
        except OSError:
            closed += 1
            continue
        looked += 1
        for text, needle in needles.items():
            if needle in data:
                found[text].append(path)
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split()[4] for line in file]
    json.dump({"found": found, "looked": looked, "closed": closed, "mounts": mounts}, sys.stdout)


def files(top: str):
    own = f"/proc/{os.getpid()}"  # its own command line has the needles
    for folder, inner, names in os.walk(top):
        inner[:] = [name for name in inner if not is_skipped(os.path.join(folder, name), own)]
        for name in names:
            path = os.path.join(folder, name)
            try:
                is_file = stat.S_ISREG(os.stat(path).st_mode)
            except OSError:
                continue
            if is_file and path not in SKIPPED and not path.endswith(("/kmsg", "/kcore")):
                yield path


def is_skipped(path: str, own: str) -> bool:
    other_processes_threads = path.startswith("/proc/") and "/task" in path
    return (
        path in SKIPPED
        or path in (own, "/proc/self", "/proc/thread-self")
        or (other_processes_threads)
    )


main()
