"""The coordinator: the ServerApp, its settings, results and commands."""
