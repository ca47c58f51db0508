"""The names, labels and settings of the methods that every experiment may compare.

Imports nothing: the shell's completion can't wait for PyTorch.
"""

from collections.abc import Iterable

# In the order of the paper's table.
STANDARD: dict[str, tuple[str, dict[str, bool | int | float | str]]] = {
    "feddc": ("FedDC({d}, {b})", {}),
    "daisy-chaining": ("daisy-chaining alone", {"aggregation-period": 0}),
    # A reset at every aggregation would drop the optimiser state in every round.
    "fedavg-1": (
        "FedAvg(1)",
        {"daisy-period": 0, "aggregation-period": 1, "optimizer-state": "kept"},
    ),
    "fedavg-b": ("FedAvg({b})", {"daisy-period": 0}),
    "fedprox": ("FedProx({b})", {"daisy-period": 0, "aggregator": "fedprox"}),
    "fedadagrad": ("FedAdagrad({b})", {"daisy-period": 0, "aggregator": "fedadagrad"}),
    "fedyogi": ("FedYogi({b})", {"daisy-period": 0, "aggregator": "fedyogi"}),
    "fedadam": ("FedAdam({b})", {"daisy-period": 0, "aggregator": "fedadam"}),
    "central": ("all data together", {}),
}


def method_names(
    of_preset: Iterable[str], of_experiment: Iterable[str], added: Iterable[str]
) -> tuple[str, ...]:
    """Return the methods that an experiment compares: those it names, or the standard ones.

    `added` are the experiment's own methods, beside the standard ones.
    """
    return tuple(of_preset) or tuple(of_experiment) or (*STANDARD, *added)
