"""The `feddc` command, running the stub in place of the real app."""

import lab.simulate
from lab.cli import main

lab.simulate.SERVER_APP, lab.simulate.CLIENT_APP = "stub_server:app", "stub_client:app"
main()
