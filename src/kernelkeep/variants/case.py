"""A problem with numbers: the kernel's arguments, and the outputs that the reference computes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..errors import ArgumentError
from ..programs.signature import Parameter
from .template import Template

Host = np.ndarray[Any, Any]
Reference = Callable[..., Any]
Inputs = Callable[[Mapping[str, Any], np.random.Generator], Mapping[str, Any]]

# No tile divides the first ones; the second ones are for templates that compile in whether a size is a multiple of four.
_RAGGED = (67, 33, 45, 17, 29, 9, 5, 13)
_FOURS = (68, 36, 44, 20, 28, 12, 4, 52)


class Case(msgspec.Struct, frozen=True):
    """One problem's arguments by name, and the outputs the reference computed from them."""

    values: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    inputs: dict[str, Host]
    scalars: dict[str, Any]
    expected: dict[str, Host]

    def save(self, folder: Path) -> None:
        """Write the arrays to a folder, for another process."""
        folder.mkdir(parents=True)
        for kind, arrays in (("in", self.inputs), ("out", self.expected)):
            for name, host in arrays.items():
                np.save(folder / f"{kind}-{name}.npy", host, allow_pickle=False)

    @staticmethod
    def load(folder: Path, shapes: Mapping[str, tuple[int, ...]], scalars: Mapping[str, Any]) -> Case:
        """Read what `save` wrote."""
        arrays: dict[str, dict[str, Host]] = {"in": {}, "out": {}}
        for path in folder.glob("*.npy"):
            kind, _, name = path.stem.partition("-")
            arrays[kind][name] = np.load(path, allow_pickle=False)
        return Case({}, dict(shapes), arrays["in"], dict(scalars), arrays["out"])


def make_case(
    template: Template,
    params: tuple[Parameter, ...],
    problem: Mapping[str, Any],
    reference: Reference | None,
    inputs: Inputs | None = None,
    seed: int = 0,
    other_scalars: Mapping[str, Any] | None = None,
) -> Case:
    """Numbers for a problem, the same each time for the same seed, and the reference's answer to them.

    The reference is given the arguments it names; floating-point ones in double precision, so that its own rounding
    does not count against a variant.
    """
    values = template.values(problem)
    rng = np.random.default_rng(seed)
    given = {**(other_scalars or {}), **(inputs(values, rng) if inputs is not None else {})}
    shapes, arrays, scalars, outputs = {}, {}, {}, []
    for param in params:
        if param.kind == "scalar":
            scalars[param.name] = np.dtype(param.dtype).type(given.pop(param.name, template.scalar(param.name, values)))
            continue
        shape = shapes[param.name] = template.shape(param.name, values)
        if param.access != "w":
            host = given.pop(param.name, None)
            arrays[param.name] = _numbers(shape, param, rng) if host is None else _fitting(host, shape, param)
        if param.access != "r":
            outputs.append(param)
    if given:
        raise ArgumentError(f"inputs returned {', '.join(given)}, which the kernel does not take")
    if not outputs:
        raise ArgumentError("a kernel that writes nothing cannot be verified")
    expected = {} if reference is None else _answer(reference, {**values, **scalars}, arrays, shapes, outputs)
    return Case(values, shapes, arrays, scalars, expected)


def _numbers(shape: tuple[int, ...], param: Parameter, rng: np.random.Generator) -> Host:
    dtype = np.dtype(param.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape, dtype="f4").astype(dtype, copy=False)
    return rng.integers(0, 100, shape).astype(dtype)


def _fitting(host: Any, shape: tuple[int, ...], param: Parameter) -> Host:
    array = np.ascontiguousarray(host, param.dtype)
    if array.size != np.prod(shape, dtype=int):
        raise ArgumentError(f"inputs returned {param.name} with the shape {array.shape}; the template says {shape}")
    return array.reshape(shape)


def _answer(
    reference: Reference,
    scalars: Mapping[str, Any],
    arrays: Mapping[str, Host],
    shapes: Mapping[str, tuple[int, ...]],
    outputs: list[Parameter],
) -> dict[str, Host]:
    exact = {name: host.astype("f8") if host.dtype.kind == "f" else host.copy() for name, host in arrays.items()}
    try:
        answer = reference(**_named(reference, {**scalars, **exact}))
    except Exception as error:
        shown = " ".join(f"{name}={value}" for name, value in scalars.items())
        error.add_note(f"the reference was called for a problem of {shown}")
        raise
    if isinstance(answer, Mapping):
        parts = dict(answer)
    else:
        several = answer if isinstance(answer, tuple | list) else (answer,)
        parts = dict(zip((p.name for p in outputs), several, strict=False))
        if len(several) != len(outputs):
            parts = {}
    names = ", ".join(p.name for p in outputs)
    if any(p.name not in parts or parts[p.name] is None for p in outputs):
        raise ArgumentError(f"the reference must return every output of the kernel: {names}")
    found = {}
    for param in outputs:
        host = np.asarray(parts[param.name])
        if host.size != np.prod(shapes[param.name], dtype=int):
            raise ArgumentError(
                f"the reference returned {param.name} with the shape {host.shape}; the kernel has {shapes[param.name]}"
            )
        found[param.name] = np.ascontiguousarray(host).reshape(shapes[param.name])
    return found


def _named(reference: Reference, known: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments the reference asks for by name; all of them where it takes any."""
    try:
        asked = inspect.signature(reference).parameters.values()
    except (TypeError, ValueError):
        return dict(known)
    if any(p.kind is p.VAR_KEYWORD for p in asked):
        return dict(known)
    missing = [p.name for p in asked if p.name not in known and p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if missing:
        raise ArgumentError(f"the reference asks for {', '.join(missing)}; it may have: {', '.join(known)}")
    if any(p.kind is p.POSITIONAL_ONLY for p in asked):
        raise ArgumentError("the reference's arguments are given by name, so they cannot be positional only")
    return {p.name: known[p.name] for p in asked if p.name in known}


def ragged_problem(template: Template, problem: Mapping[str, Any]) -> dict[str, Any]:
    """A small problem like this one, with sizes that no tile divides. The constants stay, so that it is the same program."""
    changed = dict(problem)
    values = template.values(problem)
    compiled_in = template.compiled_in(values)
    for place, (name, value) in enumerate(problem.items()):
        if isinstance(value, bool) or not isinstance(value, int) or value <= 3:
            continue
        for size in (_RAGGED[place % len(_RAGGED)], _FOURS[place % len(_FOURS)]):
            tried = {**changed, name: min(value - 1 if size in _RAGGED else value, size)}
            others = template.values(tried)
            if template.compiled_in(others) == compiled_in and not _vanished(values, others):
                changed = tried
                break
    return changed


def _vanished(values: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether a size became 0 or less, such as that of an output whose input is now smaller than a filter."""
    return any(type(value) is int and value > 0 and others[name] <= 0 for name, value in values.items())
