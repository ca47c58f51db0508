"""What the benchmarks measure against, and the studies they run."""
