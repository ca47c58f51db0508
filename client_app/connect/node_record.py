"""The node id of a running SuperNode, stored so that a killed one can be deactivated."""

import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from protocol.address import Address

_ID_LINE = "SuperNode ID: "
_DEACTIVATE_SECONDS = 20.0


@dataclass(frozen=True)
class NodeRecord:
    """Stores the node id that the SuperNode prints, and deactivates the node after a crash.

    The SuperLink considers a killed SuperNode connected for a minute, and meanwhile rejects its
    successor.
    """

    file: Path
    address: Address
    authority: Path
    key: Path
    environment: dict[str, str]

    def read_line(self, line: str) -> None:
        """Store the node id if this line of the SuperNode's output contains it."""
        if line.startswith(_ID_LINE):
            with suppress(OSError):  # then a successor has to wait for a minute
                self.file.write_text(line.removeprefix(_ID_LINE).strip())

    def deactivate_node(self) -> None:
        """Tell the SuperLink that the node is gone, if its SuperNode did not end by itself."""
        try:
            node = self.file.read_text()
        except OSError:
            return
        arguments = [str(self.address), str(self.authority), str(self.key), node]
        with suppress(subprocess.TimeoutExpired):  # no network: the SuperLink notices by itself
            subprocess.run(  # noqa: S603 (our own interpreter and module)
                [sys.executable, "-P", "-m", "operation.flower.deactivate_node", *arguments],
                env=self.environment,
                capture_output=True,
                timeout=_DEACTIVATE_SECONDS,
                check=False,
            )
        self.clear()

    def clear(self) -> None:
        """Remove the node id: the SuperNode has ended by itself."""
        with suppress(OSError):
            self.file.unlink(missing_ok=True)
