"""The networks against the paper: parameter counts, layers, first weights, shapes of scores."""

import math

import pytest
import torch
from torch import nn

from learning.models import build


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "parameters"),
    [
        # SUSY: Radon number 21 = 19 parameters + 2
        ("linear", (18,), 2, {"outputs": 1}, 19),
        ("linear", (18,), 2, {}, 38),
        ("linear", (18,), 2, {"outputs": 2}, 38),
        # synthetic: 100·100 + 100 + 100·50 + 50 + 50·20 + 20 + 20·2 + 2
        ("mlp", (100,), 2, {}, 16_212),
        ("mlp", (100,), 2, {"hidden": [7]}, 100 * 7 + 7 + 7 * 2 + 2),
        # MRI: the paper's number, with grey scans read with three channels; and with one
        ("mri-cnn", (3, 150, 150), 2, {}, 194_818),
        ("mri-cnn", (1, 150, 150), 2, {}, 194_818 - 2 * 32 * 9),
        # MNIST: 25·32 + 32 + 32·25·64 + 64 + 1024·100 + 100 + 100·10 + 10
        ("mnist-cnn", (1, 28, 28), 10, {}, 155_606),
        # CIFAR10: the paper's number
        ("resnet-small", (3, 32, 32), 10, {}, 175_818),
        # torchvision's published 11 689 512 have 1000 classes; pneumonia has 2
        ("resnet18", (3, 224, 224), 1000, {}, 11_689_512),
        ("resnet18", (3, 224, 224), 2, {}, 11_689_512 - 998 * 513),
        # 1·8·27 + 8 + 16 + 8·16·27 + 16 + 32 + 16·32·27 + 32 + 64 + 32·2 + 2
        ("cnn-3d", (1, 32, 64, 64), 2, {}, 17_730),
    ],
)
def test_trainable_parameters(
    name: str, shape: tuple[int, ...], classes: int, options: dict[str, object], parameters: int
) -> None:
    network = build(name, shape=shape, classes=classes, options=options, seed=0)

    trainable = [each for each in network.parameters() if each.requires_grad]
    assert sum(each.numel() for each in trainable) == parameters


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("linear", (18,)),
        ("linear", (1, 8, 8)),
        ("mlp", (18,)),
        ("mlp", (3, 8, 8)),
        ("mri-cnn", (1, 48, 48)),
        ("mri-cnn", (3, 33, 50)),
        ("mnist-cnn", (1, 28, 28)),
        ("mnist-cnn", (3, 17, 30)),
        ("mnist-cnn", (1, 15, 16)),
        ("mnist-cnn", (1, 8, 8)),
        ("resnet-small", (3, 32, 32)),
        ("resnet-small", (1, 28, 29)),
        ("resnet18", (1, 64, 64)),
        ("resnet18", (3, 32, 32)),
        ("cnn-3d", (1, 8, 8, 8)),
        ("cnn-3d", (2, 9, 17, 12)),
        ("linear", (1, 4, 4, 4)),
    ],
)
def test_one_score_per_class_for_every_example(name: str, shape: tuple[int, ...]) -> None:
    network = build(name, shape=shape, classes=5, options={}, seed=0)

    scores = network(torch.randn(4, *shape, generator=torch.Generator().manual_seed(0)))

    assert scores.shape == (4, 5)
    assert scores.isfinite().all()


def test_a_margin_is_one_score() -> None:
    network = build("linear", shape=(18,), classes=2, options={"outputs": 1}, seed=0)
    examples = torch.randn(4, 18, generator=torch.Generator().manual_seed(0))

    weight, bias = network.get_parameter("output.weight"), network.get_parameter("output.bias")

    torch.testing.assert_close(network(examples), (examples * weight).sum(1, keepdim=True) + bias)


def test_mlp_computes_relu_between_its_layers_and_none_after_the_last() -> None:
    network = build("mlp", shape=(6,), classes=2, options={"hidden": [4, 3]}, seed=0)
    values = examples = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))

    for name in ("linear1", "linear2", "output"):
        values = values @ network.get_parameter(f"{name}.weight").T
        values = values + network.get_parameter(f"{name}.bias")
        values = values if name == "output" else values.clamp(min=0)

    torch.testing.assert_close(network(examples), values)


def test_mri_cnn_has_the_papers_order_of_layers() -> None:
    network = build("mri-cnn", shape=(1, 150, 150), classes=2, options={}, seed=0)

    assert [type(layer) for layer in network.children()] == [
        *(nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d),
        *(nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d),
        *(nn.Flatten, nn.Linear),
    ]


@pytest.mark.parametrize(
    ("side", "values"),
    # 28 → 24 → 12 → 8 → 4 and 16 → 12 → 6 → 2 → 1; padded below: 15 → 7 → 3 and 8 → 4 → 2
    [(28, 64 * 4 * 4), (16, 64), (15, 64 * 3 * 3), (8, 64 * 2 * 2)],
)
def test_mnist_cnn_has_two_linear_layers_the_first_on_1024_values(side: int, values: int) -> None:
    network = build("mnist-cnn", shape=(1, side, side), classes=10, options={}, seed=0)

    linear = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    assert [layer.in_features for layer in linear] == [values, 100]


@pytest.mark.parametrize("name", ["mnist-cnn", "mri-cnn"])
def test_filters_are_an_option(name: str) -> None:
    network = build(name, shape=(1, 28, 28), classes=2, options={"filters": [8, 16]}, seed=0)

    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [8, 16]


@pytest.mark.parametrize(
    ("name", "norms"),
    [("linear", 0), ("mlp", 0), ("mnist-cnn", 0), ("mri-cnn", 2), ("resnet-small", 15)],
)
def test_number_of_batch_norms(name: str, norms: int) -> None:
    network = build(name, shape=(3, 32, 32), classes=2, options={}, seed=0)

    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in network.modules()) == norms


@pytest.mark.parametrize("name", ["mri-cnn", "resnet-small", "resnet18"])
def test_group_norm_leaves_no_buffers_and_mixes_no_images(name: str) -> None:
    shape, options = (3, 32, 32), {"norm": "group"}
    network = build(name, shape=shape, classes=2, options=options, seed=0).train()
    batch = build(name, shape=shape, classes=2, options={}, seed=0)

    assert not dict(network.named_buffers())
    assert [p.shape for p in network.parameters()] == [p.shape for p in batch.parameters()]
    images = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    alone = torch.cat([network(image.unsqueeze(0)) for image in images])
    torch.testing.assert_close(network(images), alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["resnet-small", "resnet18"])
def test_resnets_start_with_kaiming_normal_weights_and_zero_biases(name: str) -> None:
    network = build(name, shape=(1, 32, 32), classes=10, options={}, seed=0)

    for layer in network.modules():
        if not isinstance(layer, nn.Conv2d | nn.Linear):
            continue
        weight = layer.weight.detach()
        # Kaiming: variance 2 / fan-in; five standard errors of a normal sample's deviation.
        expected = math.sqrt(2 / weight[0].numel())
        assert weight.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * weight.numel()))
        # A uniform distribution of that variance would stop at √3 deviations.
        assert weight.abs().max().item() > 1.8 * expected
        assert layer.bias is None or layer.bias.count_nonzero() == 0


def test_resnet_blocks_add_their_input() -> None:
    network = build("resnet-small", shape=(3, 32, 32), classes=2, options={}, seed=0).eval()
    block = network.get_submodule("stage1.0")
    with torch.no_grad():
        block.get_parameter("norm2.weight").zero_()  # silences the two convolutions
    images = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))

    torch.testing.assert_close(block(images), images.clamp(min=0))


def test_resnet_small_halves_the_image_twice() -> None:
    network = build("resnet-small", shape=(3, 32, 32), classes=2, options={}, seed=0)
    assert isinstance(network, nn.Sequential)
    features = network[: list(dict(network.named_children())).index("pool")]

    assert features(torch.zeros(2, 3, 32, 32)).shape == (2, 64, 8, 8)


@pytest.mark.parametrize("name", ["linear", "mlp", "mnist-cnn", "mri-cnn", "resnet-small"])
def test_a_stack_of_models_can_be_run_at_once(name: str) -> None:
    models = [build(name, shape=(1, 16, 16), classes=3, options={}, seed=seed) for seed in (1, 2)]
    models = [model.double().eval() for model in models]
    parameters, buffers = torch.func.stack_module_state(models)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 4, 1, 16, 16, generator=generator, dtype=torch.float64)

    def scores(
        model_parameters: dict[str, torch.Tensor],
        model_buffers: dict[str, torch.Tensor],
        batch: torch.Tensor,
    ) -> torch.Tensor:
        state = (model_parameters, model_buffers)
        result: torch.Tensor = torch.func.functional_call(models[0], state, (batch,))
        return result

    together = torch.func.vmap(scores)(parameters, buffers, images)

    one_by_one = torch.stack([model(batch) for model, batch in zip(models, images, strict=True)])
    torch.testing.assert_close(together, one_by_one, rtol=1e-10, atol=1e-10)
