"""Benchmarks; each module prints one JSON line with --json."""
