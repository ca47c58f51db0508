"""Flower's PyTorch quickstart with federated daisy-chaining."""
