"""A run's settings, checked once before anything starts."""
