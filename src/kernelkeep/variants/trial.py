"""One trial of a variant: does it compile, run, compute the right result, and write only to its outputs?

Outputs start as a pattern that no result has, which shows elements that were not written. Behind every array lies a guard
region of the same pattern, which shows writes past the end; reading past the end of an input spoils the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ..errors import ArgumentError, CompileError, KernelKeepError, Unsupported
from ..programs.signature import Parameter

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache
    from ..devices.base import Device
    from ..devices.kernel import Kernel
    from ..programs.source import Source
    from .case import Case

FAILURES = {
    "compile": "does not compile",
    "refused": "is refused by the device",
    "wrong": "computes something else",
    "guard": "writes past the end of an output",
    "crashed": "crashes",
    "hung": "does not end",
    "slow": "is far too slow",
    "transient": "failed for a reason that may pass, and is not remembered",
}

_TOO_SLOW = 20.0  # times the best
_NEVER_TOO_SLOW_MS = 20.0  # a single launch on a busy machine may take this long by chance

Host = np.ndarray[Any, Any]
_PATTERN = 0x7FC0DEAD  # as a float it is a NaN, and no computation makes this one
_MIN_GUARD, _MAX_GUARD = 4096, 1 << 20  # elements


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a trial: "" or the class of the failure (`FAILURES`), and a sentence."""

    failure: str = ""
    detail: str = ""
    error: float = 0.0  # the largest, relative to the largest value of the reference
    seconds: float = 0.0  # of the last problem's launch, on the device
    compile_seconds: float = 0.0


class TrialLaunch(NamedTuple):
    """A launch of the variant on one case."""

    grid: tuple[int, ...]
    group: tuple[int, ...] | None
    case: Case
    shared_bytes: int = 0


def failed(error: BaseException, otherwise: str) -> Outcome:
    """An error as an outcome. `otherwise` is the class of one that neither the compiler's nor the device's limits explain."""
    detail = sentence(error)
    if isinstance(error, CompileError):
        return Outcome("compile", detail)
    if isinstance(error, MemoryError):
        return Outcome("transient", detail)
    if isinstance(error, ArgumentError | Unsupported):
        return Outcome("refused", detail)
    return Outcome(otherwise, detail)


def too_slow(milliseconds: float, best_ms: float | None) -> str:
    """Why a variant is not worth measuring, in words; "" where it is."""
    if best_ms is None or milliseconds <= max(_TOO_SLOW * best_ms, _NEVER_TOO_SLOW_MS):
        return ""
    return f"{milliseconds:.4g} ms, and the best takes {best_ms:.4g} ms"


def default_tolerance(params: Sequence[Parameter]) -> float:
    """The error that half, single and double precision allow; integers are exact."""
    kinds = {p.dtype for p in params if p.kind == "buffer" and p.access != "r"}
    return 1e-2 if "f2" in kinds else 1e-4 if "f4" in kinds else 1e-10 if "f8" in kinds else 0.0


def try_variant(
    cache: ProgramCache,
    source: Source,
    name: str | None,
    params: Sequence[Parameter],
    launches: Sequence[TrialLaunch],
    tolerance: float,
) -> Outcome:
    """Try a variant in this process. A refusal of the device or the compiler is an outcome, not an error."""
    device = cache.device
    try:
        with cache.get(source) as lease:
            kernel = lease.kernel(name)
            worst, seconds = 0.0, 0.0
            for launch in launches:
                outcome = _verify(device, kernel, params, launch, tolerance)
                if outcome.failure:
                    return outcome
                worst, seconds = max(worst, outcome.error), outcome.seconds
            return Outcome(error=worst, seconds=seconds)
    except KernelKeepError as error:
        return failed(error, otherwise="crashed")


def _verify(
    device: Device, kernel: Kernel, params: Sequence[Parameter], launch: TrialLaunch, tolerance: float
) -> Outcome:
    """Run the kernel twice from the same inputs; compare the outputs with the reference, and check the guards."""
    case = launch.case
    arrays: dict[str, Any] = {}
    seconds, worst = 0.0, 0.0
    try:
        for _ in range(2):  # a race may show in one run only
            for param in params:
                if param.kind == "buffer" and (param.access != "r" or param.name not in arrays):
                    if param.name in arrays:
                        arrays[param.name].close()
                    arrays[param.name] = device.array(_guarded(param, case))
            args = tuple(arrays[p.name] if p.kind == "buffer" else case.scalars[p.name] for p in params)
            timer = device.timer()
            with timer:
                kernel.launch(launch.grid, args, launch.group, shared_bytes=launch.shared_bytes)
            device.synchronize()
            seconds = timer.seconds
            for param in params:
                if param.kind == "buffer":
                    failure, detail, error = _check(param, arrays[param.name].numpy(), case, tolerance)
                    if failure:
                        return Outcome(failure, detail, error, seconds)
                    worst = max(worst, error)
    finally:
        for array in arrays.values():
            array.close()
    return Outcome(error=worst, seconds=seconds)


def _guarded(param: Parameter, case: Case) -> Host:
    """A buffer's contents before the launch, followed by the guard."""
    size = math.prod(case.shapes[param.name])
    guard = min(_MAX_GUARD, max(_MIN_GUARD, size // 4))
    dtype = np.dtype(param.dtype)
    filled = _pattern(size + guard, dtype)
    if param.access != "w":
        filled[:size] = case.inputs[param.name].ravel()
    return filled


def _pattern(size: int, dtype: np.dtype[Any]) -> Host:
    nbytes = size * dtype.itemsize
    return np.full(math.ceil(nbytes / 4), _PATTERN, "u4").view("u1")[:nbytes].view(dtype)


def _check(param: Parameter, found: Host, case: Case, tolerance: float) -> tuple[str, str, float]:
    """The class of failure or "", a sentence, and the error."""
    shape = case.shapes[param.name]
    size = math.prod(shape)
    # The pattern is four bytes long: where elements are smaller, the guard may begin in the middle of one.
    pattern = _pattern(found.size, found.dtype)
    guard = found[size:].view("u1") != pattern[size:].view("u1")
    if guard.any():
        where = int(np.argmax(guard)) // found.dtype.itemsize
        return "guard", f"wrote {param.name}[{size + where}], and it has {size} elements", 0.0
    if param.access == "r":
        return "", "", 0.0
    result, expected = found[:size].reshape(shape), case.expected[param.name]
    error, place = largest_error(result, expected)
    if error <= tolerance:
        return "", "", error
    at = ", ".join(str(int(index)) for index in place)
    untouched = result[place].tobytes() == pattern[:size].reshape(shape)[place].tobytes()
    found_there = "was never written" if untouched else f"is {result[place]}"
    return "wrong", f"{param.name}[{at}] {found_there} instead of {expected[place]:.8g}", error


def largest_error(result: Host, expected: Host) -> tuple[float, tuple[Any, ...]]:
    """The largest difference relative to the largest value expected, and where it is. NaN equals NaN only.

    Where floats are expected of 16-bit words, these are bfloat16.
    """
    if not result.size:
        return 0.0, ()
    if result.dtype == np.uint16 and expected.dtype.kind == "f":
        result = (result.astype("u4") << 16).view("f4")  # bfloat16, for which NumPy has no type
    if result.dtype.kind != "f":
        different = np.asarray(result != expected)
        return float(different.any()), np.unravel_index(int(np.argmax(different)), result.shape)
    truth = expected.astype("f8")
    finite = np.isfinite(truth)
    scale = float(np.max(np.abs(truth), where=finite, initial=0.0)) or 1.0
    with np.errstate(all="ignore"):
        difference = np.abs(result.astype("f8") - truth) / scale
    same = (result == truth) | (np.isnan(result) & np.isnan(truth))
    difference = np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))
    place = np.unravel_index(int(np.argmax(difference)), result.shape)
    return float(difference[place]), place


def sentence(error: BaseException) -> str:
    """An error's text in one line, short enough to be stored."""
    return " ".join(str(error).split())[:300]
