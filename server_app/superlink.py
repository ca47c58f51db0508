"""Flower's SuperLink, kept from filling the memory with the models that pass through it.

The models themselves are in its database. What grows is beside them: requests that wait for a rare
garbage collection, the page caches of a dozen database connections, and blocks that the C library
keeps for later. All three are settings of the process, set here; Flower's code runs as it is.

    python -m server_app.superlink OPTIONS-OF-FLOWER-SUPERLINK...
"""

import gc
import sqlite3

from flwr.superlink import main as superlink_main  # imported before the freeze below
from flwr.superlink.cli import flower_superlink

# For the SuperLink and the ServerApp that it starts: large blocks go back to the system at once.
ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": str(256 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(1024 * 1024),
}

_DATABASE_CACHE_BYTES = 32 * 1024 * 1024  # of all connections together; Flower allows each 64 MB
# Python's own are (700, 10, 10), and a full collection waits until a quarter of everything is new:
# with all that was imported set aside, that is soon.
_COLLECT_AFTER = (500, 5, 2)


def main() -> None:
    """Serve as `flower-superlink` does."""
    with sqlite3.connect(":memory:") as connection:  # it holds for the whole process
        connection.execute(f"PRAGMA soft_heap_limit = {_DATABASE_CACHE_BYTES}")
    connection.close()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    flower_superlink()


if __name__ == "__main__":
    main()
