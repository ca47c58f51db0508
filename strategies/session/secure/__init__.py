"""Secure sums at the coordinator: of models in aggregation legs, and of figures at the end."""
