"""Experiments of a study: start, follow, resume, stop."""
