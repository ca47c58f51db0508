"""Training with noise: what a leg may cost, and what leaves instead of the trained model."""
