"""A network as an ONNX file: probabilities from features, compared with PyTorch before it is kept.

Needs the extra `export`: torch's exporter uses onnxscript, and onnxruntime runs the result.
"""

import contextlib
import copy
import io
import logging
import warnings
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learning.extras import install
from learning.trainer import Network

INPUT, OUTPUT = "features", "probabilities"
TOLERANCE = 1e-5
_TRIES = (1, 7, 64)  # examples in a batch, to compare with: the batch size is free


class ExportError(RuntimeError):
    """A model can't be exported; the message says why and what to do."""


def to_onnx(
    network: Network,
    metadata: Mapping[str, str],
    examples: NDArray[np.float32] | None = None,
) -> bytes:
    """Return the ONNX file of a network; an ExportError if it computes anything else.

    `examples` are real ones to compare with, beside random ones.
    """
    try:
        import onnx
        import onnxruntime  # noqa: F401 (fails here if it is missing)
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ExportError(
            f"ONNX needs the package {error.name}, which is not installed: " + install("export")
        ) from error
    module = _Probabilities(copy.deepcopy(network.module)).float().cpu().eval()
    example = torch.zeros(2, *network.task.shape)
    with _quiet():
        program = torch.onnx.export(
            module,
            (example,),
            dynamo=True,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_shapes=({0: torch.export.Dim("examples")},),
            verbose=False,
        )
    if program is None:
        raise ExportError("torch has exported nothing")
    proto = program.model_proto
    for key, value in metadata.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    data = bytes(proto.SerializeToString())
    onnx.checker.check_model(data)
    _compare(data, network, examples)
    return data


class _Probabilities(nn.Module):
    """A network followed by softmax, or by the logistic function of its margin."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, features: Tensor) -> Tensor:
        outputs = self.module(features)
        if outputs.shape[-1] == 1:
            second = torch.sigmoid(outputs)
            return torch.cat([1 - second, second], dim=-1)
        return torch.softmax(outputs, dim=-1)


def _compare(data: bytes, network: Network, examples: NDArray[np.float32] | None) -> None:
    """Raise ExportError unless onnxruntime and PyTorch agree."""
    import onnxruntime

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=(n, *network.task.shape)).astype(np.float32) for n in _TRIES]
    if examples is not None and len(examples):
        batches.append(examples)
    for batch in batches:
        expected = network.probabilities(batch)
        (found,) = session.run([OUTPUT], {INPUT: batch})
        difference = float(np.abs(found - expected).max())
        if not difference <= TOLERANCE:
            raise ExportError(
                f"the ONNX file's probabilities differ from PyTorch's by {difference:.1e}, more "
                f"than {TOLERANCE:.0e}: nothing was written; use the safetensors file"
            )
        best = np.sort(expected, axis=1)
        clear = best[:, -1] - best[:, -2] > 2 * TOLERANCE  # a draw may go either way
        if (found.argmax(axis=1) != expected.argmax(axis=1))[clear].any():
            raise ExportError("the ONNX file predicts other classes than PyTorch")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's progress and warnings off the terminal."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
