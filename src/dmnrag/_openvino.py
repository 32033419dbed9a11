"""OpenVINO, which computes linear layers in int8 on CPUs: how it is imported, and how weights are rounded for it.

Knows neither encoders nor LLMs.
"""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from dmnrag._optional import require

_LARGEST = 127
"""Of a symmetric int8."""

_BLOCK_ROWS = 8192
"""Rows rounded at a time: the output layer of an LLM has hundreds of thousands."""


def load_openvino() -> Any:
    """OpenVINO without its telemetry: its import would report the use of the library to a web service.

    Raises:
        MissingDependencyError: it is not installed.
    """
    if "openvino" not in sys.modules and "openvino_telemetry" not in sys.modules:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # makes importing it fail
        try:
            require("openvino", "int8")
        finally:
            del sys.modules["openvino_telemetry"]
    return require("openvino", "int8")


def rounded(weights: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Weights (outputs, inputs) in int8, and the scale of each output, (outputs, 1)."""
    scales = np.empty((len(weights), 1), np.float32)
    whole = np.empty(weights.shape, np.int8)
    for start in range(0, len(weights), _BLOCK_ROWS):
        block = weights[start : start + _BLOCK_ROWS]
        scale = np.abs(block).max(axis=1, keepdims=True) / _LARGEST
        scale[scale == 0] = 1
        scales[start : start + len(block)] = scale
        whole[start : start + len(block)] = np.rint(block / scale)
    return whole, scales
