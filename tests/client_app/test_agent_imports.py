"""The modules that the trusted agent's process loads."""

import re

from tests.client_app.conftest import Enrolled, Start

_IMPORTED = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\S+)$", re.MULTILINE)


def test_the_agent_loads_nothing_of_the_lab_or_the_coordinator(
    enrolled: Enrolled, start: Start
) -> None:
    command = ["-X", "importtime", "-m", "operation.cli", "hospital", "serve"]

    with start([*command, "--folder", str(enrolled.folder.path)], enrolled.socket) as agent:
        imported = set(_IMPORTED.findall(agent.log))

    packages = {module.partition(".")[0] for module in imported}
    assert {"client_app.hospital.hospital", "learning.trainer", "torch"} <= imported
    assert packages & {"lab", "server_app", "strategies", "flwr", "ray"} == set()
