"""A study's folder, members, certificates."""
