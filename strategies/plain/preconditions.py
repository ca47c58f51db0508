"""Preconditions of plain mode: a strategy that can be wrapped, and enough connected nodes."""

from logging import INFO, WARNING

from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedXgbBagging, FedXgbCyclic, Strategy

from operation.clock import Clock
from operation.flower.logger import log
from strategies.settings import FedDCSettings
from strategies.wrapped.requirements import layers, least_hospitals

_POLL_SECONDS, _REPORT_SECONDS = 0.5, 10.0


def check_plain(strategy: Strategy, settings: FedDCSettings) -> None:
    """Refuse what plain mode can't do; warn of what it can't promise."""
    if settings.init == "own":
        raise ValueError("init='own' needs a study: in plain mode all nodes get initial_arrays")
    for layer in layers(strategy):
        name = type(layer).__name__
        if isinstance(layer, FedXgbBagging | FedXgbCyclic):
            raise ValueError(f"{name} sends trees, which can't be handed on and averaged")
        if getattr(layer, "accountant", None) is not None:
            raise ValueError(
                f"{name} has an accountant, but its ε would not cover the models that nodes hand "
                "over: leave the accountant out, or use daisy_period=None without FedDC"
            )
        if name.startswith("DifferentialPrivacy"):
            log(WARNING, "%s: its ε covers aggregates, not the models handed over.", name)


def connected_nodes(strategy: Strategy, grid: Grid, clock: Clock | None = None) -> list[int]:
    """Return the connected nodes; wait, and report, until there are as many as needed."""
    clock = clock or Clock()
    needed = max(2, least_hospitals(strategy))
    reported = clock.now() - _REPORT_SECONDS
    while len(nodes := list(grid.get_node_ids())) < needed:
        if clock.now() - reported >= _REPORT_SECONDS:
            reported = clock.now()
            log(INFO, "waiting for nodes: %d connected, %d needed", len(nodes), needed)
        clock.sleep(_POLL_SECONDS)
    return nodes
