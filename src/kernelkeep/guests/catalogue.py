"""The libraries that can keep what they compile in our cache: what is installed, what is on, and the line that turns it on."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple


class Guest(NamedTuple):
    """A library, the module of ours that is its door, and the line that opens it."""

    name: str
    package: str  # to import
    distributions: tuple[str, ...]  # to ask for the version
    door: str  # in `kernelkeep.guests`
    tried: tuple[
        str, ...
    ]  # versions that the tests were run with; others are used where `hooks.py` finds the same place
    line: str
    version_name: str = "__version__"


GUESTS = (
    Guest(
        "Triton",
        "triton",
        ("triton",),
        "triton",
        ("3.6", "3.9"),
        "export TRITON_CACHE_MANAGER=kernelkeep.guests.triton:KernelkeepCacheManager",
    ),
    Guest(
        "torch.compile",
        "torch",
        ("torch",),
        "inductor",
        ("2.15",),
        "import kernelkeep.guests.inductor; kernelkeep.guests.inductor.turn_on()",
    ),
    Guest(
        "JAX",
        "jax",
        ("jax",),
        "jax",
        ("0.10", "0.11"),
        "import kernelkeep.guests.jax; kernelkeep.guests.jax.turn_on()",
    ),
    Guest(
        "CuPy",
        "cupy",
        ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"),
        "cupy",
        ("14.2",),
        "import kernelkeep.guests.cupy; kernelkeep.guests.cupy.turn_on()",
    ),
    Guest(
        "cuda.core",
        "cuda.core",
        ("cuda-core",),
        "cuda_core",
        ("1.2",),
        'program.compile("cubin", cache=kernelkeep.guests.cuda_core.KernelkeepProgramCache())',
    ),
    Guest(
        "PyOpenCL",
        "pyopencl",
        ("pyopencl",),
        "pyopencl",
        ("2026.1",),
        "program = kernelkeep.guests.pyopencl.build(context, source)",
        "VERSION_TEXT",
    ),
    Guest(
        "moderngl",
        "moderngl",
        ("moderngl",),
        "moderngl",
        ("5.13",),
        "kernelkeep.guests.moderngl.turn_on(); shader = kernelkeep.guests.moderngl.compute_shader(context, source)",
    ),
)


class Found(NamedTuple):
    """A guest on this machine; `version` is empty where it is not installed, None where it does not say."""

    guest: Guest
    version: str | None
    is_on: bool


def find_guest(name: str) -> Guest:
    """The row of one guest."""
    return next(guest for guest in GUESTS if guest.name == name)


def find_guests() -> list[Found]:
    """All guests. Imports none of them."""
    return [Found(guest, _version_of(guest), _is_on(guest)) for guest in GUESTS]


def _version_of(guest: Guest) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and a door needs the table only
    from importlib.util import find_spec

    try:
        if find_spec(guest.package) is None:
            return ""
    except (ImportError, ValueError):
        return ""
    for name in guest.distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _is_on(guest: Guest) -> bool:
    """Whether it is on in this process: by a variable of the environment, or because our module was loaded."""
    door = f"kernelkeep.guests.{guest.door}"
    return door in sys.modules or any(value.startswith(door + ":") for value in os.environ.values())
