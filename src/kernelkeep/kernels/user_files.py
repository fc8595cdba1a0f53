"""Kernels in a user's own files: source files, and Python files that make sources and portable kernels.

saxpy.cu                  one source; its suffix decides the language
kernels.py:saxpy          a kk.PortableKernel or kk.Source, or a list, tuple or dict of them
kernels.py                every one that the file has by name
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..continuous.lowering.forms import kernels_of
from ..continuous.program import StateProgram
from ..errors import ArgumentError
from ..programs.portable import PortableKernel
from ..programs.source import Source
from ..words import did_you_mean

_SUFFIX = ".py"
Kernels = Source | PortableKernel | StateProgram


def split_name(name: str) -> tuple[str, str]:
    """The file and the name in it of "kernels.py:saxpy"; the name is empty where there is none."""
    file, _, attribute = name.rpartition(":") if f"{_SUFFIX}:" in name else (name, "", "")
    return file, attribute


def is_python_file(name: str) -> bool:
    """Whether this names a Python file, or something in one."""
    return split_name(name)[0].endswith(_SUFFIX)


def compilable(found: Iterable[Kernels], *, cooperative: bool) -> list[Source | PortableKernel]:
    """What is to be compiled: sources and portable kernels as they are, and the kernels of state programs.

    `cooperative`: for devices with cooperative launches, which have more of them.
    """
    all_of_them: list[Source | PortableKernel] = []
    for one in found:
        all_of_them += kernels_of(one, cooperative=cooperative) if isinstance(one, StateProgram) else [one]
    return all_of_them


def kernels_in(name: str) -> list[Kernels]:
    """The sources, portable kernels and state programs that "kernels.py:saxpy" or "kernels.py" names. Runs the file."""
    file, attribute = split_name(name)
    module = run_file(Path(file))
    if attribute:
        missing = object()
        value = getattr(module, attribute, missing)
        if value is missing:
            names = list(_named_kernels(module))
            has = f"; it has {', '.join(names)}" if names else ""
            raise ArgumentError(f"there is no {attribute} in {file}{did_you_mean(attribute, names)}{has}")
        found = list(_kernels_in(value))
        if not found:
            wanted = "a kk.PortableKernel, kk.Source or kk.StateProgram, or several of them"
            raise ArgumentError(f"{attribute} in {file} must be {wanted}, got {_described(value, name)}")
        return found
    # A kernel may be there twice: by its own name, and in a list.
    everything = {id(one): one for kernels in _named_kernels(module).values() for one in kernels}
    if not everything:
        tuned = [key for key, value in vars(module).items() if type(value).__name__ == "Tuned"]
        if tuned:
            raise ArgumentError(f"{tuned[0]} in {file} is a kk.Tuned: kernelkeep tune {file}:{tuned[0]}")
        raise ArgumentError(f"{file} has no kk.PortableKernel, kk.Source or kk.StateProgram among its names")
    return list(everything.values())


def _kernels_in(value: Any) -> Iterator[Kernels]:
    if isinstance(value, Kernels):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        members = list(value.values()) if isinstance(value, Mapping) else value
        if all(isinstance(member, Kernels) for member in members):
            yield from members


def _named_kernels(module: Any) -> dict[str, list[Kernels]]:
    named = {key: list(_kernels_in(value)) for key, value in vars(module).items() if not key.startswith("_")}
    return {key: kernels for key, kernels in named.items() if kernels}


def _described(value: Any, name: str) -> str:
    kind = type(value).__name__
    if kind == "Tuned":
        return f"a kk.Tuned, whose variants are compiled by `kernelkeep tune {name}`"
    return f"a {kind}"


def run_file(file: Path) -> Any:
    """The module of a file, run as Python runs a script, except that it is not `__main__`."""
    if not file.is_file():
        raise ArgumentError(f"there is no file {file}")
    spec = importlib.util.spec_from_file_location(f"kernelkeep_file_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{file} must be a file in Python, with a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.resolve().parent))  # it may import modules beside it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        names = (str(file), str(file.absolute()))
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename in names]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        at = f", line {line}," if line else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ArgumentError(f"{file}{at} cannot be loaded: {type(error).__name__}: {reason}") from None
    return module
