"""The types of numbers that `gemm` multiplies, and the templates for each.

float32 has templates of its own in this folder. Half and bfloat16 use the same text with other reads and writes, and sums in
float32; where a device multiplies tiles, `tensor_half`. NumPy has no bfloat16: such arrays are 16-bit words on the device.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ArgumentError
from ...programs.portable import Buffer
from ..templates import KernelTemplates
from .params import PARAMS
from .reference import reference, work
from .tensor_tiles import half_kind, single_kind, splits_in_clusters

if TYPE_CHECKING:
    from ...devices.base import Device

# What replaces a read of an element and a written value in the texts for float32.
_HALF = """
#define READ(x) ((float)(x))
#define WRITTEN(x) ((half)(x))
"""
_BFLOAT = """
// To the nearest, of two the even one; NaN stays NaN.
unsigned short narrowed(float x) {
    uint bits = as_uint(x);
    if (isnan(x)) return (unsigned short)(bits >> 16 | 64u);
    return (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
#define READ(x) as_float((uint)(x) << 16)
#define WRITTEN(x) narrowed(x)
"""
_TILED = (
    ("= a[a_from + A_DOWN(i) * k + A_ALONG(i) + ahead];", "= READ(a[a_from + A_DOWN(i) * k + A_ALONG(i) + ahead]);"),
    (
        "= b[b_from + B_ALONG(i) * n + B_ACROSS(i) + ahead * n];",
        "= READ(b[b_from + B_ALONG(i) * n + B_ACROSS(i) + ahead * n]);",
    ),
    (
        "c[row * n + col] = beta != 0.0f ? sum + beta * c[row * n + col] : sum;",
        "c[row * n + col] = WRITTEN(beta != 0.0f ? sum + beta * READ(c[row * n + col]) : sum);",
    ),
)
_PLAIN = (
    ("= b[p * n + right[q]];", "= READ(b[p * n + right[q]]);"),
    ("= a[left[r] + p];", "= READ(a[left[r] + p]);"),
    ("value += a[left[r] + even] * b[even * n + col];", "value += READ(a[left[r] + even]) * READ(b[even * n + col]);"),
    ("value += beta * c[row * n + col];", "value += beta * READ(c[row * n + col]);"),
    ("c[row * n + col] = value;", "c[row * n + col] = WRITTEN(value);"),
)


_OWN_MODULES = {"tensor": "tensor_half", "warps": "tensor_warps"}


def widened(words: Any) -> Any:
    """bfloat16 as float32."""
    return (np.asarray(words, "u2").astype("u4") << 16).view("f4")


def narrowed(values: Any) -> Any:
    """float32 as bfloat16, to the nearest, of two the even one."""
    bits = np.ascontiguousarray(values, "f4").view("u4")
    near = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), bits >> 16 | 64, near).astype("u2")


def _changed(text: str, changes: tuple[tuple[str, str], ...], head: str) -> str:
    for old, new in changes:
        if old not in text:
            raise AssertionError(f"the text for float32 no longer has {old!r}")
        text = text.replace(old, new)
    return head + text


def _half_template(kind: str, storage: str) -> Any:
    """A kind's template for 16-bit floats."""
    head = _BFLOAT if storage == "u2" else _HALF
    params = tuple(Buffer(p.name, storage, p.access) if isinstance(p, Buffer) else p for p in PARAMS)
    module = importlib.import_module(f".{_OWN_MODULES.get(kind, kind)}", __package__)
    described = {name: getattr(module, name) for name in module.__all__}
    if kind in _OWN_MODULES:
        body = module.BODY
        defines = {**body.defines, "BFLOAT": int(storage == "u2")}
        return SimpleNamespace(**{**described, "PARAMS": params, "BODY": replace(body, defines=defines)})
    body = _changed(module.BODY, _TILED if kind == "tiled" else _PLAIN, head)
    return SimpleNamespace(
        **{
            **described,
            "PARAMS": params,
            "BODY": body,
            "constants": _one_by_one if kind == "tiled" else module.constants,
        }
    )


def _one_by_one(problem: Mapping[str, Any]) -> dict[str, int]:
    return {"VECTOR_K": 1, "VECTOR_N": 1}


def _half_kinds(device: Device, problem: Mapping[str, Any] | None) -> tuple[str, ...]:
    own = half_kind(device, problem)
    return (own or ("tiled" if device.info.is_gpu else "plain"),)


# --- what is verified, with which tolerance


def _bfloat_reference(a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
    """The answer for words that are bfloat16."""
    left, right, old = (widened(words).astype("f8") for words in (a, b, c))
    return reference(left, right, old, alpha, beta)


def _bfloat_inputs(values: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    m, n, k = values["m"], values["n"], values["k"]
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    return {name: narrowed(rng.standard_normal(shape, dtype="f4")) for name, shape in shapes.items()}


def _templates(name: str, tolerance: float, module_of: Any, kinds: Any, words: bool = False) -> KernelTemplates:
    return KernelTemplates(
        name=f"gemm-{name}",
        package=__package__,
        arrays={"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")},
        scalars={"alpha": 1.0, "beta": 0.0},
        check_scalars={"alpha": -0.75, "beta": 0.5},
        reference=_bfloat_reference if words else reference,
        inputs=_bfloat_inputs if words else None,
        tolerance=tolerance,
        work=work,
        example={"m": 8, "n": 8, "k": 8},
        module_of=module_of,
        kinds=kinds,
    )


def float32_template(kind: str) -> Any:
    """A kind's template for float32."""
    if kind == "tensor":
        from .tensor_single import template

        return template(split=1)
    return importlib.import_module(".single_warps" if kind == "warps" else f".{kind}", __package__)


def _tf32_template(kind: str) -> Any:
    from .tensor_single import template

    return template(split=0)


def float32_kinds(device: Device, problem: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Tensor cores, where they serve the problem; else nothing, which means the device's own kinds."""
    kind = single_kind(device, problem, tf32=False)
    if kind is not None:
        return (kind,)
    return ("tiled", "sliced", "warps") if problem is not None and splits_in_clusters(device) else ()


def _tf32_kinds(device: Device, problem: Mapping[str, Any] | None) -> tuple[str, ...]:
    kind = single_kind(device, problem, tf32=True)
    return () if kind is None else (kind,)


class Element(NamedTuple):
    """A type of numbers: what it is on the device, and the templates that multiply it."""

    name: str
    storage: np.dtype[Any]
    templates: KernelTemplates | None  # None: those of float32

    def templates_for(self, device: Device, problem: Mapping[str, Any] | None) -> KernelTemplates | None:
        """The templates for a problem; None where those of float32 serve it."""
        own = self.templates
        if own is None or (own is _TF32 and not _tf32_kinds(device, problem)):
            return None
        return own

    def scaled(self, values: Any, factor: np.float32) -> Any:
        """A NumPy array of this type times a number."""
        if self.storage == np.uint16:
            return narrowed(factor * widened(values))
        return (factor * values).astype(self.storage)


_TF32 = _templates("tf32", 2e-3, _tf32_template, _tf32_kinds)
_ELEMENTS = {
    "float32": Element("float32", np.dtype("f4"), None),
    "float16": Element(
        "float16", np.dtype("f2"), _templates("float16", 2e-3, lambda kind: _half_template(kind, "f2"), _half_kinds)
    ),
    "bfloat16": Element(
        "bfloat16",
        np.dtype("u2"),
        _templates("bfloat16", 1e-2, lambda kind: _half_template(kind, "u2"), _half_kinds, words=True),
    ),
    "tf32": Element("float32", np.dtype("f4"), _TF32),
}


def templates_of(name: str, device: Device, problem: Mapping[str, Any] | None) -> KernelTemplates:
    """The templates of a type by its name; those of float32 where TF32 has none for a problem."""
    from .operation import GEMM

    return _ELEMENTS[name].templates_for(device, problem) or GEMM


def element_of(a: Any, b: Any, dtype: str | None, tf32: bool) -> Element:
    """What the matrices hold. `dtype` tells that words are bfloat16; unknown types count as float32, and are refused later."""
    if dtype not in (None, "float32", "float16", "bfloat16"):
        raise ArgumentError(f"dtype must be float32, float16 or bfloat16, got {dtype!r}")
    found = [_name(value) for value in (a, b)]
    if dtype == "bfloat16":
        found = ["bfloat16" if name == "uint16" else name for name in found]
    if found[0] != found[1] and {"float16", "bfloat16"} & set(found):
        raise ArgumentError(f"a is {found[0]} and b is {found[1]}: convert one of them first")
    if dtype is not None and found[0] != dtype:
        raise ArgumentError(f"dtype is {dtype}, and a is {found[0]}")
    if tf32 and found[0] in ("float16", "bfloat16"):
        raise ArgumentError(f"tf32 is for float32, and a is {found[0]}")
    return _ELEMENTS["tf32" if tf32 else found[0] if found[0] in _ELEMENTS else "float32"]


def _name(value: Any) -> str:
    return str(getattr(value, "dtype", "float32")).removeprefix("torch.")


def words_of(value: Any) -> Any:
    """An array of bfloat16 as 16-bit words: PyTorch's, or NumPy's with the type of another library; others as they are."""
    if _name(value) != "bfloat16":
        return value
    torch = sys.modules.get("torch")
    return value.view(torch.uint16 if torch is not None and isinstance(value, torch.Tensor) else np.uint16)


def from_words(result: Any, like: Any) -> Any:
    """A result in 16-bit words as bfloat16, where the input was."""
    return result.view(like.dtype) if _name(like) == "bfloat16" else result
