"""A small convolutional network for volumes."""

from collections import OrderedDict

from torch import nn

from learning.models.interface import Model, ModelError, Option, Shape, layer_sizes


def cnn_3d(shape: Shape, classes: int, *, filters: tuple[int, ...]) -> nn.Module:
    """Return stages of Conv-GroupNorm-ReLU-MaxPool, the mean over all places, and a linear layer.

    GroupNorm, because a hospital's batches of volumes are small, and each example is normalised by
    itself. With three stages of 8, 16 and 32 filters, one channel and two classes:

        stage 1    1·8·27 + 8 + 2·8        =    240
        stage 2    8·16·27 + 16 + 2·16     =  3 504
        stage 3    16·32·27 + 32 + 2·32    = 13 920
        linear     32·2 + 2                =     66
    """
    smallest = 2 ** len(filters)
    if len(shape) != 4 or min(shape[1:]) < smallest:
        raise ModelError(
            "model: cnn-3d needs volumes (channels, depth, height, width) of at least "
            f"{smallest}×{smallest}×{smallest} voxels, got examples of shape {shape}; choose "
            "another model, or other images in the codebook"
        )
    layers: dict[str, nn.Module] = {}
    inputs = shape[0]
    for number, outputs in enumerate(filters, start=1):
        layers[f"conv{number}"] = nn.Conv3d(inputs, outputs, kernel_size=3, padding=1)
        layers[f"norm{number}"] = nn.GroupNorm(1, outputs)
        layers[f"relu{number}"] = nn.ReLU()
        layers[f"pool{number}"] = nn.MaxPool3d(kernel_size=2, stride=2)
        inputs = outputs
    layers["mean"] = nn.AdaptiveAvgPool3d(1)
    layers["flatten"] = nn.Flatten()
    layers["output"] = nn.Linear(inputs, classes)
    return nn.Sequential(OrderedDict(layers))


CNN_3D = Model(
    name="cnn-3d",
    options=(
        Option(
            "filters",
            default=(8, 16, 32),
            meaning="filters of each stage, which halves all sides of a volume",
            check=layer_sizes(least=1, most=6),
        ),
    ),
    create=cnn_3d,
)
