"""What the ServerApp does in one run: strategy, evaluation, results."""
