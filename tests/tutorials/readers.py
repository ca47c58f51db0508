"""The readers of two tutorials: who follows the page, in which folder, with which ports."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.support.processes import free_port
from tests.federation.federation import FEDDC, environment
from tests.snippets import ROOT
from tests.tutorials.session import Session, session

COORDINATOR = ROOT / "docs" / "tutorials" / "coordinator.md"
RESEARCHER = ROOT / "docs" / "tutorials" / "researcher.md"
DASHBOARD = {"cat dashboard.log": "token="}


@contextmanager
def coordinator() -> Iterator[Session]:
    """Yield a coordinator with ports that are free here; stop the services at the end."""
    proxy = free_port(3)  # then the SuperLink's and the long-poll server's
    ports = f"--listen 127.0.0.1:{proxy} --internal-port {proxy + 1}"
    with session(
        "/home/you/tumours",
        replaced={":8443": f":{proxy}", "8790": str(free_port())},
        added={"feddc coordinator init": ports},
        awaited=DASHBOARD
        | {
            "feddc coordinator status": "Charite   yes",
            "feddc hospital experiments": "waits for your approval",
            "cat anna/models/": "accuracy",
        },
        points=12,  # which patients are held out is a secret of each hospital, made anew
    ) as reader:
        try:
            yield reader
        finally:
            down = [*FEDDC, "coordinator", "down"]
            subprocess.run(down, cwd=reader.folder, check=False, env=environment())


@contextmanager
def researcher() -> Iterator[Session]:
    """Yield a researcher; another CPU's rounding may change some of the test images."""
    here = {"8790": str(free_port())}
    with session("/home/you/first", replaced=here, awaited=DASHBOARD, points=3) as reader:
        yield reader
