"""What `conv2d` does: checks, the result's array, the launch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError
from ..operands import MAX_ELEMENTS, device_of, like_input, output_array, to_device
from ..plan import Plan, bound_operand
from ..ready import ReadyCall, keep_ready
from ..templates import KernelTemplates

if TYPE_CHECKING:
    from ...cache.program_cache import ProgramCache

TOLERANCE = 1e-5


def reference(
    x: Any, weights: Any, oh: int, ow: int, stride_y: int, stride_x: int, pad_y: int, pad_x: int
) -> np.ndarray[Any, Any]:
    """The answer, with NumPy: a matrix product for each tap of the filter."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad_y, pad_y), (pad_x, pad_x)))
    n, c = x.shape[:2]
    k, _, r, s = weights.shape
    y = np.zeros((n, k, oh * ow), x.dtype)
    for i in range(r):
        for j in range(s):
            seen = padded[:, :, i : i + (oh - 1) * stride_y + 1 : stride_y, j : j + (ow - 1) * stride_x + 1 : stride_x]
            y += weights[:, :, i, j] @ seen.reshape(n, c, oh * ow)
    return y.reshape(n, k, oh, ow)


def _problem(
    x: tuple[int, ...], w: tuple[int, ...], padding: tuple[int, int], stride: tuple[int, int]
) -> dict[str, int]:
    sizes = {"n": x[0], "c": x[1], "h": x[2], "w": x[3], "k": w[0], "r": w[2], "s": w[3]}
    return {**sizes, "stride_y": stride[0], "stride_x": stride[1], "pad_y": padding[0], "pad_x": padding[1]}


def _output(problem: Mapping[str, Any]) -> dict[str, int]:
    """The size of an output image."""
    return {
        "oh": (problem["h"] + 2 * problem["pad_y"] - problem["r"]) // problem["stride_y"] + 1,
        "ow": (problem["w"] + 2 * problem["pad_x"] - problem["s"]) // problem["stride_x"] + 1,
    }


def _work(problem: Mapping[str, Any]) -> float:
    size = _output(problem)
    taps = problem["c"] * problem["r"] * problem["s"]
    return 2.0 * float(problem["n"] * problem["k"] * size["oh"] * size["ow"] * taps)


CONV2D = KernelTemplates(
    name="conv2d",
    package=__package__,
    arrays={"x": ("n", "c", "h", "w"), "weights": ("k", "c", "r", "s"), "y": ("n", "k", "oh", "ow")},
    reference=reference,
    tolerance=TOLERANCE,
    work=_work,
    example=_problem((1, 4, 8, 8), (4, 4, 3, 3), (1, 1), (1, 1)),
    derived=_output,
)


def run(
    cache: ProgramCache,
    x: Any,
    w: Any,
    padding: int | tuple[int, int] | str,
    stride: int | tuple[int, int],
    out: Any,
    explore: float | bool,
    deterministic: bool | None,
) -> Any:
    """`conv2d` with every option resolved to a value."""
    device = device_of(cache)
    images, filters = to_device(device, x, "x", 4), to_device(device, w, "w", 4)
    try:
        problem, shape = _described(images.shape, filters.shape, padding, stride)
    except TypeError:  # lists
        problem, shape = _describe(images.shape, filters.shape, padding, stride)
    target = output_array(device, out, shape, (images, filters))
    if target.size:
        arguments = {"x": images, "weights": filters, "y": target}
        CONV2D.run(cache, problem, arguments, explore, deterministic)
        if not explore and images is x and filters is w:
            key = ("conv2d", images.shape, filters.shape, padding, stride, deterministic)
            if _is_hashable(key):
                call, _ = CONV2D.find(cache, problem, deterministic)
                keep_ready(cache, key, ReadyCall(call, arguments, target))
    return out if out is not None else like_input(target, x)


def plan(
    cache: ProgramCache,
    x: Any,
    w: Any,
    padding: int | tuple[int, int] | str,
    stride: int | tuple[int, int],
    out: Any,
    deterministic: bool | None,
) -> Plan:
    """`conv2d.plan` with every option resolved to a value."""
    device = device_of(cache)
    images, filters = bound_operand(device, x, "x", 4), bound_operand(device, w, "w", 4)
    problem, shape = _describe(images.shape, filters.shape, padding, stride)
    if not prod(shape):
        raise ArgumentError(f"a plan needs work to do: its result would have the shape {shape}")
    target = device.empty(shape) if out is None else output_array(device, out, shape, (images, filters))
    call, _ = CONV2D.find(cache, problem, deterministic)
    return Plan(cache, call, {"x": images, "weights": filters, "y": target}, target)


def _is_hashable(key: Any) -> bool:
    """Whether padding and stride are no lists."""
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _describe(
    images: tuple[int, ...], filters: tuple[int, ...], padding: Any, stride: Any
) -> tuple[dict[str, int], tuple[int, ...]]:
    """The problem, and the result's shape."""
    (n, c, height, width), (k, channels, r, s) = images, filters
    if c != channels:
        raise ArgumentError(f"x has {c} channels, and the filters in w have {channels}")
    if not (c and r and s):
        raise ArgumentError(f"a convolution needs channels and taps, and w has the shape {filters}")
    if prod(images) + c * height * width > MAX_ELEMENTS:  # the last image is read past its end before it is cut off
        raise ArgumentError(f"x has {prod(images):,} elements; kernels count them with 32 bits")
    strides = _pair(stride, "stride", 1)
    pads = _padding(padding, (r, s), strides)
    problem = _problem(images, filters, pads, strides)
    size = _output(problem)
    if size["oh"] < 1 or size["ow"] < 1:
        padded = f"{height + 2 * pads[0]} × {width + 2 * pads[1]} with padding"
        raise ArgumentError(f"filters of {r} × {s} are larger than the images, {padded}")
    return problem, (n, k, size["oh"], size["ow"])


# By types, too: True and 1 are equal, and only 1 is a stride.
_described = lru_cache(maxsize=1024, typed=True)(_describe)


def _padding(padding: Any, filters: tuple[int, int], strides: tuple[int, int]) -> tuple[int, int]:
    if padding == "valid":
        return 0, 0
    if padding == "same":
        if strides != (1, 1) or not (filters[0] % 2 and filters[1] % 2):
            raise ArgumentError('padding="same" is for stride 1 and filters of odd size: give the numbers')
        return filters[0] // 2, filters[1] // 2
    if isinstance(padding, str):
        raise ArgumentError(f'padding must be a number, two of them, "same" or "valid", got {padding!r}')
    return _pair(padding, "padding", 0)


def _pair(value: Any, name: str, least: int) -> tuple[int, int]:
    several = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(several) != 2 or any(isinstance(v, bool) or not hasattr(v, "__index__") or v < least for v in several):
        raise ArgumentError(f"{name} must be an integer of at least {least}, or two of them, got {value!r}")
    return int(several[0]), int(several[1])
