"""Differential privacy: clipping, noise, accounting, and their settings."""
