"""Building by name: first weights from the seed alone, and a clear message for every mistake."""

import subprocess
import sys

import pytest
import torch

from learning.models import ModelError, build, names, options_of

BUILT_IN = ("linear", "mlp", "mnist-cnn", "mri-cnn", "resnet-small", "resnet18", "cnn-3d")


def _shape(name: str) -> tuple[int, ...]:
    return (3, 8, 16, 8) if name == "cnn-3d" else (3, 32, 32)


def test_the_papers_models_are_there() -> None:
    assert set(BUILT_IN) <= set(names())


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(name: str) -> None:
    def weights(seed: int) -> dict[str, torch.Tensor]:
        return build(name, shape=_shape(name), classes=3, options={}, seed=seed).state_dict()

    first, again, other = weights(7), weights(7), weights(8)

    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", BUILT_IN)
def test_weights_do_not_depend_on_the_global_generator_nor_change_it(name: str) -> None:
    torch.manual_seed(1)
    first = build(name, shape=_shape(name), classes=2, options={}, seed=7).state_dict()
    after_building = torch.rand(4)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(4), after_building)

    second = build(name, shape=_shape(name), classes=2, options={}, seed=7).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_seeds_may_have_63_bits() -> None:
    build("linear", shape=(2,), classes=2, options={}, seed=2**63 - 1)


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_documented_defaults_are_what_build_uses(name: str) -> None:
    documented = {option.name: option.default for option in options_of(name)}

    shape = _shape(name)
    by_default = build(name, shape=shape, classes=2, options={}, seed=7).state_dict()
    spelled_out = build(name, shape=shape, classes=2, options=documented, seed=7).state_dict()

    assert all(torch.equal(by_default[key], spelled_out[key]) for key in by_default)
    assert all(option.meaning for option in options_of(name))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "mlp",
            {"width": 3},
            "model-options: 'width' is not an option of mlp; mlp has the options",
        ),
        ("mlp", {"width": 3}, r"hidden (default [100, 50, 20])"),
        ("resnet18", {"depth": 3}, "model-options: 'depth' is not an option of resnet18"),
        ("resnet18", {"depth": 3}, "resnet18 has the options norm (default 'batch')"),
        ("resnet18", {"norm": "layer"}, 'norm must be "batch" or "group", got \'layer\''),
        ("mlp", {"hidden": []}, "model-options: hidden must be a list of 1 to 16 whole numbers"),
        ("mlp", {"hidden": [1] * 17}, "hidden must be a list of 1 to 16"),
        ("mlp", {"hidden": 100}, "hidden must be a list"),
        ("mlp", {"hidden": "100"}, "hidden must be a list"),
        ("mlp", {"hidden": [10, 0]}, "whole numbers from 1 to 4096, got [10, 0]"),
        ("mlp", {"hidden": [10**9]}, "whole numbers from 1 to 4096, got [1000000000]"),
        ("mlp", {"hidden": [2.5]}, "whole numbers"),
        ("mlp", {"hidden": [True]}, "whole numbers"),
        ("mlp", {"hidden": None}, "hidden must be a list"),
        ("mri-cnn", {"filters": [32]}, "filters must be a list of 2 whole numbers"),
        ("mnist-cnn", {"filters": [8, 16, 32]}, "filters must be a list of 2 whole numbers"),
        ("mnist-cnn", {"filters": [8, -16]}, "filters must be a list of 2 whole numbers"),
        ("linear", {"outputs": "1"}, "model-options: outputs must be a whole number, got '1'"),
        ("linear", {"outputs": True}, "outputs must be a whole number"),
        ("linear", {"outputs": 3}, "model-options: outputs of linear must be 0 (one per class), 1"),
        ("linear", {"outputs": -1}, "model-options: outputs of linear must be 0"),
    ],
)
def test_an_impossible_option_is_named_in_one_line(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        build(name, shape=(1, 32, 32), classes=2, options=options, seed=0)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_margin_needs_two_classes() -> None:
    with pytest.raises(ModelError, match=r"outputs = 1 is a margin between 2 classes.* has 10"):
        build("linear", shape=(4,), classes=10, options={"outputs": 1}, seed=0)


def test_an_unknown_name_gets_the_list_and_a_guess() -> None:
    message = r"model must be one of linear, mlp, .*, got 'resnet-18'; did you mean 'resnet18'\?"
    with pytest.raises(ModelError, match=message):
        _build_on_features("resnet-18")
    with pytest.raises(ModelError, match=message):
        options_of("resnet-18")


@pytest.mark.parametrize("name", ["mnist-cnn", "mri-cnn", "resnet-small", "resnet18"])
def test_networks_for_images_refuse_flat_features(name: str) -> None:
    with pytest.raises(ModelError, match=rf"model: {name} needs images.*\(18,\)"):
        _build_on_features(name)


@pytest.mark.parametrize(
    ("name", "smallest"),
    [("mnist-cnn", 4), ("mri-cnn", 4), ("resnet-small", 8), ("resnet18", 32)],
)
def test_the_smallest_image_works_and_one_pixel_less_is_refused(name: str, smallest: int) -> None:
    shape = (1, smallest, smallest + 3)
    network = build(name, shape=shape, classes=2, options={}, seed=0).eval()
    assert network(torch.zeros(2, *shape)).shape == (2, 2)

    too_small = (1, smallest + 3, smallest - 1)
    with pytest.raises(ModelError) as caught:
        build(name, shape=too_small, classes=2, options={}, seed=0)
    assert f"model: {name} needs images of at least {smallest}×{smallest}" in str(caught.value)
    assert str(too_small) in str(caught.value)


def test_the_smallest_volume_works_and_others_are_refused() -> None:
    network = build("cnn-3d", shape=(1, 8, 9, 8), classes=2, options={}, seed=0)
    assert network(torch.zeros(1, 1, 8, 9, 8)).shape == (1, 2)
    for shape in ((1, 8, 8, 7), (1, 8, 8), (18,)):
        with pytest.raises(ModelError, match="cnn-3d needs volumes") as caught:
            build("cnn-3d", shape=shape, classes=2, options={}, seed=0)
        assert str(shape) in str(caught.value)
    build("cnn-3d", shape=(1, 4, 4, 4), classes=2, options={"filters": [2, 3]}, seed=0)
    with pytest.raises(ModelError, match=r"needs images .*\(1, 8, 8, 8\).*cnn-3d for volumes"):
        build("mnist-cnn", shape=(1, 8, 8, 8), classes=2, options={}, seed=0)


@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (1, 0, 8), (1, 2, 3, 4, 5)])
def test_an_impossible_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="model: an example's shape must be"):
        build("linear", shape=shape, classes=2, options={}, seed=0)


def test_a_single_class_is_refused() -> None:
    with pytest.raises(ModelError, match="classes must be at least 2, got 1"):
        build("linear", shape=(4,), classes=1, options={}, seed=0)


def test_other_models_do_not_wait_for_torchvision() -> None:
    script = (
        "import sys\n"
        "from learning.models import build, names\n"
        "names()\n"
        "build('mlp', shape=(4,), classes=2, options={}, seed=0)\n"
        "sys.exit('torchvision' in sys.modules)\n"
    )
    environment_path = [path for path in sys.path if path]
    finished = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {environment_path!r}\n{script}"],
        check=False,
    )
    assert finished.returncode == 0


def _build_on_features(name: str) -> torch.nn.Module:
    return build(name, shape=(18,), classes=2, options={}, seed=0)
