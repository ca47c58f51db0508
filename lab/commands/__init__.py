"""The commands of `feddc lab`, and `feddc simulate`."""
