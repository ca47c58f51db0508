"""One run of the ServerApp: strategy, evaluation, results."""
