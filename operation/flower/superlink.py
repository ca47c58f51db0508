"""The coordinator's SuperLink: private_superlink.py with limits on its memory.

The SuperLink keeps models in its database. Its memory grows for other reasons: requests that wait
for a rare garbage collection, the page caches of a dozen database connections, and freed blocks
that the C library keeps. The first two are limited here, the last by the environment that
server_app/services/supervisor.py sets. Flower's own code is unchanged.

    python -m operation.flower.superlink OPTIONS-OF-FLOWER-SUPERLINK...
"""

import gc
import sqlite3

import flwr.superlink.main  # noqa: F401 (all that it imports, before the freeze)

from . import private_superlink

_DATABASE_CACHE_BYTES = 8 * 1024 * 1024  # of all connections together; Flower allows each 64 MB
# Python's own are (700, 10, 10), and a full collection waits until a quarter of everything is new:
# with all that was imported set aside, that is soon.
_COLLECT_AFTER = (500, 5, 2)


def main() -> None:
    """Serve programs that have the secret."""
    with sqlite3.connect(":memory:") as connection:  # it holds for the whole process
        connection.execute(f"PRAGMA soft_heap_limit = {_DATABASE_CACHE_BYTES}")
    connection.close()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    private_superlink.serve()


if __name__ == "__main__":
    main()
