"""How the programs of both sides are run: their logs, their supervision, their terminal."""
