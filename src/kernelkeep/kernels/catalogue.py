"""Tuned kernels by name: the shipped ones, and those in a user's own file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ArgumentError
from ..variants.tuned import Tuned
from .user_files import run_file, split_name

if TYPE_CHECKING:
    from ..devices.base import Device

Problem = dict[str, Any]


class CatalogueEntry(NamedTuple):
    """A tuned kernel for any device. `tuned_for(device, problem)` is what serves a problem there, None for any; `complete` checks
    a problem and adds the sizes that were left out."""

    name: str
    tuned_for: Callable[[Device, Problem | None], Tuned]
    problems: tuple[Problem, ...]  # common ones
    complete: Callable[[Mapping[str, Any]], Problem]


def find_kernel(name: str) -> CatalogueEntry:
    """A shipped kernel by its name, or a `kk.Tuned` from a file: "blur.py:blur", or "blur.py" where it has one only."""
    if name in SHIPPED:
        return SHIPPED[name]
    file, attribute = split_name(name)
    if not file.endswith(".py"):
        raise ArgumentError(
            f"there is no kernel {name!r}; name one of {', '.join(SHIPPED)}, or FILE.py:NAME for your own"
        )
    tuned = _from_file(Path(file), attribute)
    return CatalogueEntry(tuned.name, lambda device, problem: tuned, (), dict)


def parse_problem(text: str) -> Problem:
    """A problem as it is typed on the command line: "m=256,n=256,k=256"."""
    problem: Problem = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise ArgumentError(f"a problem must be written like m=256,n=256,k=256, got {text!r}")
        if name in problem:
            raise ArgumentError(f"the problem {text!r} says {name} twice")
        problem[name] = _value(value)
    return problem


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


# --- those that are shipped


def _gemm(device: Device, problem: Problem | None) -> Tuned:
    from .gemm.operation import GEMM

    return GEMM.tuned_for(device, problem)


def _gemm_of(element: str) -> Callable[[Device, Problem | None], Tuned]:
    def tuned_for(device: Device, problem: Problem | None) -> Tuned:
        from .gemm.elements import templates_of

        return templates_of(element, device, problem).tuned_for(device, problem)

    return tuned_for


def _conv2d(device: Device, problem: Problem | None) -> Tuned:
    from .conv2d.operation import CONV2D

    return CONV2D.tuned_for(device, problem)


def _complete_conv2d(problem: Mapping[str, Any]) -> Problem:
    given = dict(problem)
    for short in ("stride", "pad"):  # one number for both directions
        if short in given:
            value = given.pop(short)
            given = {f"{short}_y": value, f"{short}_x": value, **given}
    rows, columns = given.get("r"), given.get("s", given.get("r"))
    optional: Problem = {"n": 1, "s": columns, "stride_y": 1, "stride_x": 1}
    if isinstance(rows, int) and isinstance(columns, int):
        optional |= {"pad_y": rows // 2, "pad_x": columns // 2}
    order = ("n", "c", "h", "w", "k", "r", "s", "stride_y", "stride_x", "pad_y", "pad_x")
    whole = _checked("conv2d", given, order, optional, may_be_zero=("pad_y", "pad_x"))
    if whole["h"] + 2 * whole["pad_y"] < whole["r"] or whole["w"] + 2 * whole["pad_x"] < whole["s"]:
        raise ArgumentError(f"filters of {whole['r']} × {whole['s']} are larger than the images with their padding")
    return whole


def _checked(
    name: str,
    problem: Mapping[str, Any],
    sizes: tuple[str, ...],
    optional: Mapping[str, Any],
    may_be_zero: tuple[str, ...] = (),
) -> Problem:
    unknown = [size for size in problem if size not in sizes]
    missing = [size for size in sizes if size not in problem and size not in optional]
    if unknown or missing:
        wrong = f"does not have {', '.join(unknown)}" if unknown else f"needs {', '.join(missing)}"
        raise ArgumentError(f"a problem of {name} {wrong}; its sizes are {', '.join(sizes)}")
    whole = {size: problem.get(size, optional.get(size)) for size in sizes}
    for size, value in whole.items():
        least = 0 if size in may_be_zero else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ArgumentError(f"{size} of {name} must be a whole number of at least {least}, got {value!r}")
    return whole


def _conv(c: int, k: int, side: int, taps: int, n: int = 1) -> Problem:
    return _complete_conv2d({"n": n, "c": c, "h": side, "w": side, "k": k, "r": taps})


def _square(*sizes: int) -> tuple[Problem, ...]:
    return tuple({"m": size, "n": size, "k": size} for size in sizes)


def _complete_gemm(problem: Mapping[str, Any]) -> Problem:
    return _checked("gemm", problem, ("m", "n", "k"), {})


SHIPPED = {
    "gemm": CatalogueEntry("gemm", _gemm, _square(64, 256, 1024), _complete_gemm),
    **{
        f"gemm-{element}": CatalogueEntry(f"gemm-{element}", _gemm_of(element), _square(1024, 4096), _complete_gemm)
        for element in ("float16", "bfloat16", "tf32")
    },
    "conv2d": CatalogueEntry(
        "conv2d",
        _conv2d,
        (_conv(64, 128, 56, 3), _conv(64, 64, 256, 3), _conv(64, 64, 256, 5), _conv(64, 128, 56, 3, n=8)),
        _complete_conv2d,
    ),
}


# --- a user's own


def _from_file(file: Path, attribute: str) -> Tuned:
    module = run_file(file)
    if attribute:
        found = getattr(module, attribute, None)
        if not isinstance(found, Tuned):
            what = "there is none" if found is None else f"it is a {type(found).__name__}"
            raise ArgumentError(f"{attribute} in {file} must be a kk.Tuned, and {what}")
        return found
    several = {name: value for name, value in vars(module).items() if isinstance(value, Tuned)}
    if len(set(several.values())) != 1:
        names = f"has several: {', '.join(several)}; name one as {file}:NAME" if several else "has no kk.Tuned"
        raise ArgumentError(f"{file} {names}")
    return next(iter(several.values()))
