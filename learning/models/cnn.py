"""The paper's two small convolutional networks, for MRI scans and for MNIST."""

from collections import OrderedDict

from torch import nn

from learning.models.interface import (
    NORM,
    Model,
    Option,
    Shape,
    image_shape,
    layer_sizes,
    norm_layer,
)


def mri_cnn(shape: Shape, classes: int, *, filters: tuple[int, ...], norm: str) -> nn.Module:
    """Return Conv-BatchNorm-ReLU-MaxPool-Conv-BatchNorm-ReLU-MaxPool-Linear (app. MRI).

    The text leaves padding and channels open; the 194 818 trainable parameters of the experiment
    fix both. Padding 1 keeps 150 pixels, which the pools make 75 and 37, and the grey scans are
    read with three channels:

        convolution 1    3·32·9 + 32     =     896
        BatchNorm 1      2·32            =      64
        convolution 2    32·64·9 + 64    =  18 496
        BatchNorm 2      2·64            =     128
        linear           64·37·37·2 + 2  = 175 234

    With one channel the first convolution has 576 fewer; without padding, no number of channels
    fits.
    """
    channels, height, width = image_shape("mri-cnn", shape, smallest=4)
    first, second = filters
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(channels, first, kernel_size=3, padding=1),
        "norm1": norm_layer(norm, first),
        "relu1": nn.ReLU(),
        "pool1": nn.MaxPool2d(kernel_size=2, stride=2),
        "conv2": nn.Conv2d(first, second, kernel_size=3, padding=1),
        "norm2": norm_layer(norm, second),
        "relu2": nn.ReLU(),
        "pool2": nn.MaxPool2d(kernel_size=2, stride=2),
        "flatten": nn.Flatten(),
        "output": nn.Linear(second * (height // 4) * (width // 4), classes),
    }
    return nn.Sequential(OrderedDict(layers))


def mnist_cnn(shape: Shape, classes: int, *, filters: tuple[int, ...]) -> nn.Module:
    """Return two convolutions with max-pooling and two linear layers (app. MNIST).

    "Two linear layers with 1024, resp. 100 neurons" are read as layers *on* 1024 and 100 values:
    these are two, where layers *of* 1024 and 100 would need a third for the classes, and 32 and
    64 filters of kernel 5 turn 28×28 pixels into exactly 64·4·4 = 1024 values.
    """
    channels, height, width = image_shape("mnist-cnn", shape, smallest=4)
    # Below 16 pixels (the 8×8 digits) nothing is left of an image after two unpadded
    # convolutions; there, padding keeps its size.
    padding = 0 if min(height, width) >= 16 else 2

    def pooled(side: int) -> int:
        return (side + 2 * padding - 4) // 2

    first, second = filters
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(channels, first, kernel_size=5, padding=padding),
        "relu1": nn.ReLU(),
        "pool1": nn.MaxPool2d(kernel_size=2, stride=2),
        "conv2": nn.Conv2d(first, second, kernel_size=5, padding=padding),
        "relu2": nn.ReLU(),
        "pool2": nn.MaxPool2d(kernel_size=2, stride=2),
        "flatten": nn.Flatten(),
        "linear": nn.Linear(second * pooled(pooled(height)) * pooled(pooled(width)), 100),
        "relu3": nn.ReLU(),
        "output": nn.Linear(100, classes),
    }
    return nn.Sequential(OrderedDict(layers))


_FILTERS = Option(
    "filters",
    default=(32, 64),
    meaning="filters of the first and of the second convolution",
    check=layer_sizes(least=2, most=2),
)

MRI_CNN = Model(name="mri-cnn", options=(_FILTERS, NORM), create=mri_cnn)
MNIST_CNN = Model(name="mnist-cnn", options=(_FILTERS,), create=mnist_cnn)
