"""Joining a study."""
