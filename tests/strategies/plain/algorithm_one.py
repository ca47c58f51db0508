"""Algorithm 1 read directly, for any local update and any weights, with drop-outs and newcomers."""

from collections.abc import Callable, Mapping

import numpy as np

from protocol.randomness import stream

Model = dict[str, np.ndarray]
Train = Callable[[int, Model], Model]  # a node's local update


def daisy_chaining(
    train: Train,
    first: Model,
    *,
    rounds: int,
    d: int | None,
    b: int | None,
    route_seed: bytes,
    weights: Mapping[int, float],
    nodes_after: Mapping[int, list[int]],
    fails: Callable[[int, int], bool] = lambda t, node: False,
    aggregate: Callable[[list[Model], list[float], Model], Model] | None = None,
) -> Model:
    """Return the last aggregate; `nodes_after[t]` are the nodes from round t on (0: at first)."""
    nodes, current, leg = nodes_after[0], first, 0
    models = dict.fromkeys(nodes, first)
    for t in range(rounds):
        trained = {node: not fails(t, node) for node in nodes}
        models = {n: train(n, m) if trained[n] else m for n, m in models.items()}
        is_aggregation = (b is not None and t % b == b - 1) or t == rounds - 1
        is_hand_over = d is not None and t % d == d - 1
        leg += is_aggregation or is_hand_over
        if is_aggregation:
            used = [node for node in nodes if trained[node]]
            combine = aggregate or mean
            current = combine([models[n] for n in used], [weights[n] for n in used], current)
            nodes = nodes_after.get(t, nodes)
            models = dict.fromkeys(nodes, current)
        elif is_hand_over:
            order = stream(route_seed, "permutation", leg).permutation(len(nodes))
            models = {nodes[to]: models[node] for node, to in zip(nodes, order, strict=True)}
            models = {node: models[node] for node in nodes}
    return current


def mean(models: list[Model], weights: list[float], current: Model) -> Model:
    total = sum(weights)
    means = {
        name: sum(w / total * model[name] for w, model in zip(weights, models, strict=True))
        for name in current
    }
    for name, value in means.items():
        if np.issubdtype(current[name].dtype, np.integer):  # counters stay integers
            means[name] = np.rint(value).astype(current[name].dtype)
    return means  # type: ignore[return-value]
