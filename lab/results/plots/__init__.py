"""The plots of results."""
