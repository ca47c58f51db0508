"""Models, data sets, splits, the local trainer and metrics. All of PyTorch is used here."""
