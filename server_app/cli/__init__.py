"""The `feddc coordinator` commands."""
