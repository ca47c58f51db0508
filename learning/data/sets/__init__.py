"""The data sets by name: one module reads each."""
