"""Sweeps on a Ray cluster of two local nodes: the local pool's records, also when a node dies."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lab.experiments import ExperimentError
from lab.sweep import Request, SweepPlan
from lab.sweep.ray_pool import RayPool, ray_pool
from lab.sweep.ready import ready
from lab.sweep.train_trial import train
from tests.lab.conftest import tiny

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def _plan() -> SweepPlan:
    return ready(Request(tiny(), "laptop"))


def test_a_killed_nodes_trainings_are_run_again_with_the_local_pools_records(cluster: Any) -> None:
    plan = _plan()
    trials = plan.candidates()
    checkpoints = [(trial, None) for trial in trials]
    with ray_pool(cluster.address) as pool:
        pool.check(plan)
        killed = False
        found = {}
        for trial, record in pool.train_all(
            checkpoints,  # type: ignore[arg-type]
            on_progress=lambda trial, done: None,
            stop=lambda: False,
        ):
            found[trial.key] = record
            if not killed:
                cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
                killed = True
    assert set(found) == {trial.key for trial in trials}
    for trial in trials:
        local = train(trial)
        assert local is not None
        assert replace(found[trial.key], seconds=0.0) == replace(local, seconds=0.0)


def test_a_node_with_other_data_is_named_before_anything_starts(cluster: Any) -> None:
    plan = _plan()
    other = SweepPlan(replace(plan.request, data="0" * 16))
    with ray_pool(cluster.address) as pool, pytest.raises(ExperimentError, match="has other data"):
        pool.check(other)


def test_no_cluster_at_the_address_is_said() -> None:
    with (
        pytest.raises(ExperimentError, match=r"no Ray cluster at 127\.0\.0\.1:1"),
        ray_pool("127.0.0.1:1"),
    ):
        pass


def test_a_stopped_sweep_cancels_the_rest(cluster: Any) -> None:
    plan = _plan()
    with ray_pool(cluster.address) as pool:
        assert isinstance(pool, RayPool)
        done = list(
            pool.train_all(
                [(trial, None) for trial in plan.candidates()],  # type: ignore[misc]
                on_progress=lambda trial, done: None,
                stop=lambda: True,
            )
        )
    assert done == []
