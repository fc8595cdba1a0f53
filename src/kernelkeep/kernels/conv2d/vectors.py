"""2-D convolution in float32 (cross-correlation, NCHW) for OpenCL on a CPU: any kernel size, stride and zero padding.

It is the product of `gemm/vectors.py`: weights (a row per output channel) times a matrix with a column per output pixel
and a row per tap, that is per input channel and place in the kernel. A group gathers only the part of that matrix it
needs, about NC pixels and KC taps at a time, for about MC output channels of one image. Strides and zero padding are a
matter of gathering alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...programs.portable import Buffer
from ..gemm.vectors import DEFAULT, VALUES, allowed, group, shared_bytes
from ..own_source import own_source
from .params import PARAMS as _PARAMS
from .params import filter_constants

__all__ = ["BODY", "DEFAULT", "PARAMS", "VALUES", "allowed", "constants", "grid", "group", "shared_bytes"]

# Sums of one part of the taps are added to those before, so the result is read, too.
PARAMS = tuple(Buffer("y", "f4", "rw") if param.name == "y" else param for param in _PARAMS)

BODY = own_source(__file__, "conv2d")


def constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """The filter's size and the strides."""
    return filter_constants(problem)


def grid(v: Mapping[str, Any]) -> tuple[int, int, int]:
    """Groups that cover the outputs: pixels, output channels, images."""
    return (-(-v["oh"] * v["ow"] // v["NC"]), -(-v["k"] // v["MC"]), v["n"])
