"""`kernelkeep check`: mistakes and bugs in portable kernels, found without a driver."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ..continuous.program import StateProgram
from ..devices.base import Device
from ..devices.registry import open_device, open_interpreter
from ..errors import ArgumentError, CompileError, KernelFault, KernelKeepError
from ..escaping import escaped
from ..kernels.user_files import kernels_in
from ..observe.kernel_run import run_once, run_program
from ..programs.portable import PortableKernel
from ..programs.source import Source
from .common import AsJson, CacheDir, print_json, print_line


def check(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE.py[:NAME]", help="Python files with portable kernels and state programs."),
    ],
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="LANGUAGE",
            help="Check for this language only: cuda, opencl, glsl or wgsl, or a backend's name.",
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run each kernel once on the reference device, which finds bugs.")
    ] = False,
    items: Annotated[
        int, typer.Option("--items", metavar="N", help="Work-items, elements of each buffer, value of integer scalars.")
    ] = 1000,
    grid: Annotated[
        str | None, typer.Option("--grid", metavar="X[,Y[,Z]]", help="Groups, instead of enough for N.")
    ] = None,
    scalar: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="The value of a scalar; several times for several."),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", metavar="NAME=N", help="The length of a buffer; several times for several."),
    ] = None,
    cache_dir: CacheDir = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="SPEC", help="Check for this device, such as opencl:0, and what it lacks."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check portable kernels for every language, without any driver. Ends with 1 if anything is wrong.

    Each kernel is read, checked, and written in CUDA C, OpenCL C, GLSL and WGSL; a state program in all its forms. Warnings do
    not count as wrong. With --run it is run on the reference device instead.
    """
    kernels = [one for file in files for one in kernels_in(file)]
    options: dict[str, Any] = {
        "items": items,
        "grid": None if grid is None else tuple(int(part) for part in _numbers(grid)),
        "scalars": _assignments(scalar, float),
        "sizes": _assignments(size, int),
    }
    results: list[dict[str, Any]] = []
    if run and (device or target):
        raise ArgumentError("--run runs the kernels on the reference device: leave out --device and --target")
    with _opened(run, device, cache_dir) as opened:
        for kernel in kernels:
            if isinstance(kernel, Source):
                results.append(
                    {"name": kernel.name, "ok": None, "said": f"a kk.Source in {kernel.language} is not checked"}
                )
            elif run and opened is not None:
                results.append(_run_one(opened, kernel, options))
            else:
                chosen: list[str | Device] = [*(target or ()), *([] if opened is None else [opened])]
                results.append(_check_one(kernel, chosen or None))
    if as_json:
        print_json(results)
    else:
        for result in results:
            _print(result)
    if any(result["ok"] is False for result in results):
        raise typer.Exit(1)


def _print(result: dict[str, Any]) -> None:
    """Problems to the error output, and what is well to the other."""
    if result["ok"] is False or result.get("problems"):
        for line in result["said"].split("\n"):
            print(escaped(line), file=sys.stderr)
    if result["ok"] is not False:
        well = "no mistakes; warnings above" if result.get("problems") else result["said"]
        print_line(f"{result['name']}: {well}")


def _opened(run: bool, spec: str | None, cache_dir: Path | None) -> AbstractContextManager[Device | None]:
    if run:
        return open_interpreter()
    return nullcontext() if spec is None else open_device(spec, cache_dir=cache_dir)


def _check_one(kernel: PortableKernel | StateProgram, targets: list[str | Device] | None) -> dict[str, Any]:
    # Here, because all commands are imported at once, and this one needs the whole front end.
    from ..observe.kernel_check import check as check_kernel
    from ..observe.kernel_check import titles

    report = check_kernel(kernel, targets=targets)
    said = str(report) if report else f"no mistakes ({titles(report.targets)})"
    problems = [{"severity": one.severity, **msgspec.structs.asdict(one)} for one in report]
    for one in problems:
        del one["is_warning"]  # the severity says it
    return {
        "name": kernel.name, "ok": not report.errors, "targets": report.targets, "problems": problems, "said": said
    }  # fmt: skip


def _run_one(device: Device, kernel: PortableKernel | StateProgram, options: dict[str, Any]) -> dict[str, Any]:
    try:
        said = _run(device, kernel, options)
    except (CompileError, KernelFault) as error:
        kind = error.kind if isinstance(error, KernelFault) else "mistake"
        return {"name": kernel.name, "ok": False, "kind": kind, "line": error.line, "said": str(error)}
    except KernelKeepError as error:
        return {"name": kernel.name, "ok": False, "kind": "refused", "line": None, "said": f"{kernel.name}: {error}"}
    return {"name": kernel.name, "ok": True, "said": said}


def _run(device: Device, kernel: PortableKernel | StateProgram, options: dict[str, Any]) -> str:
    if isinstance(kernel, StateProgram):
        return f"no bugs found in {run_program(device, kernel)} iterations"
    return f"no bugs found in a run with the grid {run_once(device, kernel, **options)}"


def _numbers(text: str) -> list[str]:
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdigit() for part in parts):
        raise ArgumentError(f"--grid must be one to three numbers, like 4,4, got {text!r}")
    return parts


def _assignments(given: list[str] | None, kind: Callable[[str], Any]) -> dict[str, Any]:
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        try:
            found[name.strip()] = kind(value)
        except ValueError:
            equals = ""
        if not equals or not name.strip():
            raise ArgumentError(f"write NAME=VALUE, like n=100, got {text!r}")
    return found
