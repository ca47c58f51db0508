"""Training with differential privacy in the engine: `learning.privacy` on a stack of models."""
