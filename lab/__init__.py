"""The researcher's lab: the engine, the experiments, sweeps, results and Flower's simulation."""
