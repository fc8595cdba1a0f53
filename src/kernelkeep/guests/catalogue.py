"""The libraries that can keep what they compile in our cache: what is installed, what is on, and the line that turns it on."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple


class Guest(NamedTuple):
    """A library, the module of ours that is its door, and the line that opens it."""

    name: str
    package: str  # to import
    distributions: tuple[str, ...]  # to ask for the version
    door: str  # in `kernelkeep.guests`
    line: str


GUESTS = (
    Guest(
        "Triton",
        "triton",
        ("triton",),
        "triton",
        "export TRITON_CACHE_MANAGER=kernelkeep.guests.triton:KernelkeepCacheManager",
    ),
    Guest(
        "torch.compile",
        "torch",
        ("torch",),
        "inductor",
        "import kernelkeep.guests.inductor; kernelkeep.guests.inductor.turn_on()",
    ),
    Guest("JAX", "jax", ("jax",), "jax", "import kernelkeep.guests.jax; kernelkeep.guests.jax.turn_on()"),
    Guest(
        "CuPy",
        "cupy",
        ("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x"),
        "cupy",
        "import kernelkeep.guests.cupy; kernelkeep.guests.cupy.turn_on()",
    ),
    Guest(
        "cuda.core",
        "cuda.core",
        ("cuda-core",),
        "cuda_core",
        'program.compile("cubin", cache=kernelkeep.guests.cuda_core.KernelkeepProgramCache())',
    ),
    Guest(
        "PyOpenCL",
        "pyopencl",
        ("pyopencl",),
        "pyopencl",
        "program = kernelkeep.guests.pyopencl.build(context, source)",
    ),
    Guest(
        "moderngl",
        "moderngl",
        ("moderngl",),
        "moderngl",
        "kernelkeep.guests.moderngl.turn_on(); shader = kernelkeep.guests.moderngl.compute_shader(context, source)",
    ),
)


class Found(NamedTuple):
    """A guest on this machine; `version` is empty where it is not installed, None where it does not say."""

    guest: Guest
    version: str | None
    is_on: bool


def find_guests() -> list[Found]:
    """All guests. Imports none of them."""
    return [Found(guest, _version_of(guest), _is_on(guest)) for guest in GUESTS]


def _version_of(guest: Guest) -> str | None:
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
