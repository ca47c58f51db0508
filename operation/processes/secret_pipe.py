"""Give a secret to a program that reads it from a file: on no disk, and on no command line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class SecretPipe:
    """A pipe that holds a secret: pass `descriptor` to the program, and `path` as the file."""

    descriptor: int

    @property
    def path(self) -> str:
        return f"/dev/fd/{self.descriptor}"


@contextmanager
def secret_pipe(secret: bytes) -> Iterator[SecretPipe]:
    """Yield a pipe for the program that is started in the block, with `pass_fds`.

    The secret can be read once. Other users of the machine can neither open the descriptor nor
    find the secret in the list of processes.
    """
    reading, writing = os.pipe()
    try:
        with os.fdopen(writing, "wb") as file:
            file.write(secret)
        yield SecretPipe(reading)
    finally:
        os.close(reading)
