"""The child process of an evaluation: `feddc`, with the agent's protection from other processes."""

from operation.cli import main

from .hardening import harden_process

if __name__ == "__main__":
    harden_process()  # not inherited: a new program can be read by its user's other processes
    main()
