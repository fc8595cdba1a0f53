"""What `gemm` does: checks, the result's array, the launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...devices.array import Array
from ...errors import ArgumentError
from ..operands import device_of, like_input, output_array, to_device
from ..plan import Plan, bound_operand
from ..ready import ReadyCall, keep_ready
from ..templates import KernelTemplates
from .cost import MODELLED, GemmModel, TensorModel
from .elements import Element, element_of, float32_kinds, float32_template, from_words, words_of
from .reference import reference, work

if TYPE_CHECKING:
    from ...cache.program_cache import ProgramCache

TOLERANCE = 1e-5


def _model(kind: str) -> GemmModel | TensorModel | None:
    if kind == "tensor":
        return TensorModel()
    return GemmModel(kind) if kind in MODELLED else None


GEMM = KernelTemplates(
    name="gemm",
    package=__package__,
    arrays={"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")},
    scalars={"alpha": 1.0, "beta": 0.0},
    check_scalars={"alpha": -0.75, "beta": 0.5},
    reference=reference,
    tolerance=TOLERANCE,
    work=work,
    example={"m": 4, "n": 4, "k": 4},
    module_of=float32_template,
    kinds=float32_kinds,
    also=("sliced",),
    model=_model,
)


def run(
    cache: ProgramCache,
    a: Any,
    b: Any,
    c: Any,
    alpha: float,
    beta: float,
    out: Any,
    explore: float | bool,
    deterministic: bool | None,
    tf32: bool = False,
    dtype: str | None = None,
) -> Any:
    """`gemm` with every option resolved to a value."""
    device = device_of(cache)
    element = element_of(a, b, dtype, tf32)
    left = to_device(device, words_of(a), "a", 2, element.storage, element.name)
    right = to_device(device, words_of(b), "b", 2, element.storage, element.name)
    problem, scale, keep = _checked(left, right, alpha, beta)
    shape = left.shape[0], right.shape[1]
    target = output_array(device, out, shape, (left, right), element.storage, element.name)
    if c is not None:
        _start_with(target, device, c, out, keep, element)
    elif keep and out is None:
        raise ArgumentError("with beta other than 0, gemm needs c")
    if all(problem.values()):
        arguments = {"a": left, "b": right, "c": target, "alpha": scale, "beta": keep}
        templates = element.templates_for(device, problem) or GEMM
        templates.run(cache, problem, arguments, explore, deterministic)
        if c is None and not explore and left is a and right is b:
            call, _ = templates.find(cache, problem, deterministic)
            key = ("gemm", left.shape, right.shape, alpha, beta, out is None, deterministic, tf32, dtype)
            keep_ready(cache, key, ReadyCall(call, arguments, target))
    elif target.size:  # k is 0: an empty sum
        target.copy_from(element.scaled(target.numpy(), keep) if keep else np.zeros(shape, element.storage))
    return out if out is not None else from_words(like_input(target, words_of(a)), a)


def plan(
    cache: ProgramCache,
    a: Any,
    b: Any,
    out: Any,
    alpha: float,
    beta: float,
    deterministic: bool | None,
    tf32: bool,
    dtype: str | None,
) -> Plan:
    """`gemm.plan` with every option resolved to a value."""
    device = device_of(cache)
    element = element_of(a, b, dtype, tf32)
    left = bound_operand(device, words_of(a), "a", 2, element.storage, element.name)
    right = bound_operand(device, words_of(b), "b", 2, element.storage, element.name)
    problem, scale, keep = _checked(left, right, alpha, beta)
    if not all(problem.values()):
        raise ArgumentError(f"a plan needs work to do: a is {left.shape} and b is {right.shape}")
    if keep and out is None:
        raise ArgumentError("with beta other than 0, a plan of gemm needs out")
    shape = left.shape[0], right.shape[1]
    if out is None:
        target = device.empty(shape, element.storage)
    else:
        target = output_array(device, out, shape, (left, right), element.storage, element.name)
    templates = element.templates_for(device, problem) or GEMM
    call, _ = templates.find(cache, problem, deterministic)
    return Plan(cache, call, {"a": left, "b": right, "c": target, "alpha": scale, "beta": keep}, target)


def _checked(left: Array, right: Array, alpha: Any, beta: Any) -> tuple[dict[str, int], np.float32, np.float32]:
    """The problem, alpha and beta."""
    (m, k), (inner, n) = left.shape, right.shape
    if k != inner:
        raise ArgumentError(f"a is {m} × {k} and b is {inner} × {n}: the inner sizes differ")
    try:
        if alpha is None or beta is None:  # NumPy takes them for NaN
            raise TypeError
        return {"m": m, "n": n, "k": k}, np.float32(alpha), np.float32(beta)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"alpha and beta must be numbers, got {alpha!r} and {beta!r}") from None


def _start_with(target: Array, device: Any, c: Any, out: Any, keep: np.float32, element: Element) -> None:
    """Copy `c` to the result, where beta is not 0."""
    shape = getattr(c, "shape", None)
    if shape is not None and tuple(shape) != target.shape:
        raise ArgumentError(f"c has the shape {tuple(shape)}, and the product is {target.shape[0]} × {target.shape[1]}")
    if keep and c is not out:
        start = to_device(device, words_of(c), "c", 2, element.storage, element.name)
        if start.shape != target.shape:
            raise ArgumentError(f"c has the shape {start.shape}, and the product is {target.shape}")
        target.copy_from(start)
