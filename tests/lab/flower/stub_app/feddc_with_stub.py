"""The `feddc` command, running the stub in place of the real app."""

import signal

import lab.flower.simulate
from operation.cli import main

# Started in the background of a script, a process ignores SIGINT; the tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
lab.flower.simulate.SERVER_APP, lab.flower.simulate.CLIENT_APP = (
    "stub_server:app",
    "stub_client:app",
)
main()
