"""What is trained on what: models, data sets, splits, trainer, metrics."""
