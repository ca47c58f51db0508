"""The researcher's bench and the `feddc` command."""
