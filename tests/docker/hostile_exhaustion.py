"""What hostile code would do in spite: use up what it can.

Run inside a container as `python - WHAT`. Prints as JSON how far it got before it was stopped, and
gives everything back.
"""

# ruff: noqa: PTH102, PTH106, PTH108, PTH123, S108 (runs where nothing is installed)

import json
import os
import signal
import sys

MIB = 1024 * 1024


def main() -> None:
    what = {"processes": processes, "memory": memory, "disk": disk, "files": files}
    json.dump(what[sys.argv[1]](), sys.stdout)


def processes():
    """Fork until it is refused."""
    children = []
    try:
        while len(children) < 5000:
            if (pid := os.fork()) == 0:
                signal.pause()
            children.append(pid)
    except OSError:
        pass
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(children)


def memory():
    """Take memory in a child until it is killed; return how many MiB it had, and its signal."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        taken = []
        for _ in range(16 * 1024):
            taken.append(os.urandom(1024) * 1024)
            os.write(writer, b".")
        os._exit(0)
    os.close(writer)
    had = 0
    while data := os.read(reader, 65536):
        had += len(data)
    return {"MiB": had, "signal": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}


def disk():
    """Fill every place that can be written to; return how many MiB each took."""
    took = {}
    for folder in ("/tmp", "/dev/shm", "/exit", "/hospital/socket", "/hospital/transport", "/"):
        path = f"{folder}/filler-{os.getpid()}"
        size = 0
        try:
            with open(path, "wb", buffering=0) as file:
                while size < 4096 * MIB:
                    size += file.write(bytes(MIB))
        except OSError:
            pass
        try:
            os.unlink(path)
        except OSError:
            continue
        took[folder] = size // MIB
    return took


def files():
    """Make empty files until it is refused; return how many there were."""
    folder = f"/tmp/files-{os.getpid()}"
    os.mkdir(folder)
    made = 0
    try:
        while made < 200_000:
            os.close(os.open(f"{folder}/{made}", os.O_CREAT | os.O_WRONLY))
            made += 1
    except OSError:
        pass
    for number in range(made):
        os.unlink(f"{folder}/{number}")
    os.rmdir(folder)
    return made


main()
