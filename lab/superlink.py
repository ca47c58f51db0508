"""Flower's SuperLink as a process that does not outlive the one that started it.

`flower-superlink` knows no parent: were the command killed, it would serve for ever. The processes
that the SuperLink itself starts already watch theirs.
"""

import sys

from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.superlink.cli import flower_superlink


def main() -> None:
    """Serve until told to stop, or until the process named by the first argument is gone."""
    start_parent_process_monitor(int(sys.argv.pop(1)))
    flower_superlink()


if __name__ == "__main__":
    main()
