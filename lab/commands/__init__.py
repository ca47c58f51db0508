"""The commands of `feddc lab`, and `feddc simulate`, one module each."""
