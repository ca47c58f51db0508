"""The record of a run: metrics.jsonl, written by the ServerApp and read by everything else."""
