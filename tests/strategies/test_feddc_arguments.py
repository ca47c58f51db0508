"""FedDC refuses impossible arguments and strategies that change their minds."""

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from tests.strategies.unruly_grid import STUDY, UnrulyGrid, make_feddc, prepare, run, tiny


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fraction": 0.0}, "fraction must be more than 0 and at most 1, got 0.0"),
        ({"fraction": 1.2}, "fraction must be more than 0 and at most 1, got 1.2"),
        ({"quorum": 0}, "quorum must be more than 0 and at most 1, got 0"),
        ({"quorum": float("nan")}, "quorum must be more than 0"),
        ({"permutation": "ring"}, "permutation must be one of uniform, derangement, coverage"),
        ({"weighting": "size"}, "weighting must be one of equal, examples, chain-examples"),
        ({"init": "zeros"}, "init must be one of shared, own, got 'zeros'"),
        ({"daisy_period": 0}, "daisy_period must be at least 1, got 0"),
        ({"aggregation_period": 0}, "aggregation_period must be at least 1, got 0"),
        ({"seed": 1}, "seed and seal_hand_overs are for plain mode: a study has its route_seed"),
        ({"random_schedule": True, "daisy_period": None}, "random schedule needs daisy_period"),
    ],
)
def test_impossible_arguments_are_refused_where_they_are_given(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_feddc(FedAvg(), **STUDY, **arguments)


@pytest.mark.parametrize(
    ("arrays", "buffers", "message"),
    [
        (
            {"w": np.zeros(2), "steps": np.zeros((), np.int64)},
            (),
            "steps holds int64: name it in buffers",
        ),
        ({"w": np.zeros(2), "mask": np.zeros(2, bool)}, (), "mask holds bool: name it in buffers"),
        ({"w": np.zeros(2)}, ("running_mean",), "buffers name .*running_mean.* do not have"),
    ],
)
def test_what_is_not_trained_must_be_named_in_buffers(
    arrays: dict[str, np.ndarray], buffers: tuple[str, ...], message: str
) -> None:
    record = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    with pytest.raises(ValueError, match=message):
        make_feddc(FedAvg(), **STUDY, buffers=buffers).start(UnrulyGrid(tiny()), record)


class Restless(FedAvg):
    """Lowers the learning rate from one configuration to the next."""

    rate = 0.2

    def configure_train(
        self, server_round: int, arrays: Any, config: ConfigRecord, grid: Any
    ) -> Any:
        self.rate /= 2
        config["learning-rate"] = self.rate
        return super().configure_train(server_round, arrays, config, grid)


def test_a_strategy_that_changes_its_config_between_legs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Restless changed its config in leg 1, .*agree.*once"):
        run(UnrulyGrid(tiny()), Restless())


class Partial(FedAvg):
    """Sends hospitals different settings."""

    def configure_train(
        self, server_round: int, arrays: Any, config: ConfigRecord, grid: Any
    ) -> Any:
        messages = list(super().configure_train(server_round, arrays, config, grid))
        messages[-1].content = RecordDict({"config": ConfigRecord({"learning-rate": 9.0})})
        return messages


def test_a_strategy_that_sends_hospitals_different_configs_is_refused() -> None:
    with pytest.raises(Exception, match="Partial sends hospitals different configs"):
        run(UnrulyGrid(tiny()), Partial())


def test_a_config_that_no_descriptor_can_hold_is_refused() -> None:
    _, start = prepare(UnrulyGrid(tiny()))
    config = ConfigRecord({"model": "mlp", "layers": [1, 2], "shape": [30], "classes": 2})
    with pytest.raises(ValueError, match="train_config: layers must be a number"):
        start(train_config=config)


def test_the_callers_config_is_left_as_it_was() -> None:
    settings = tiny(rounds=4)
    outcome, start = prepare(UnrulyGrid(settings))
    config = ConfigRecord(dict(settings.training.as_config()))
    config["shape"], config["classes"] = [30], 2
    before = dict(config)
    start(train_config=config)
    assert dict(config) == before
    assert outcome.result is not None


def test_another_strategy_around_feddc_is_refused_instead_of_handing_nothing_over() -> None:
    """Flower's wrappers call an inner strategy's hooks, and never its `start`."""
    outer = DifferentialPrivacyServerSideFixedClipping(
        make_feddc(FedAvg(), **STUDY),
        noise_multiplier=0.1,
        clipping_norm=1.0,
        num_sampled_clients=5,
    )
    record = ArrayRecord({"w": Array(np.zeros(2))})
    with pytest.raises(RuntimeError, match=r"Put the other strategy inside, FedDC\(Other\("):
        outer.start(UnrulyGrid(tiny()), record, num_rounds=1)


def test_every_hook_says_what_to_do() -> None:
    feddc, record, config = make_feddc(FedAvg(), **STUDY), ArrayRecord(), ConfigRecord()
    grid = UnrulyGrid(tiny())
    for call in (
        lambda: feddc.configure_train(1, record, config, grid),
        lambda: feddc.aggregate_train(1, []),
        lambda: feddc.configure_evaluate(1, record, config, grid),
        lambda: feddc.aggregate_evaluate(1, []),
    ):
        with pytest.raises(RuntimeError, match="call FedDC's start"):
            call()
