"""The algorithm: federated daisy-chaining as a decorator over any Flower strategy."""
