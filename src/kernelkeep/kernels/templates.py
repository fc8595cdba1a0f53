"""Which of a kernel's templates suits a device: *tiled* for GPUs, *vectors* for OpenCL on a CPU, *plain* for the rest."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..variants.space import VariantSpace
from ..variants.template import Template
from ..variants.tuned import Tuned

if TYPE_CHECKING:
    from ..devices.base import Device

__all__ = ["tuned_kernel", "way_of"]


def way_of(device: Device) -> str:
    """The template for a kind of device."""
    if device.info.is_gpu:
        return "tiled"
    return "vectors" if device.language == "opencl" else "plain"


def tuned_kernel(
    name: str,
    way: str,
    package: str | None,
    *,
    arrays: Mapping[str, Any],
    reference: Callable[..., Any],
    tolerance: float,
    work: Callable[[Mapping[str, Any]], float],
    example: Mapping[str, int],
    scalars: Mapping[str, Any] | None = None,
    derived: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda problem: {},
) -> Tuned:
    """A kernel from one of its template modules, with the records that are shipped."""
    module = importlib.import_module(f".{way}", package)
    template = Template(
        module.BODY,
        module.PARAMS,
        arrays=arrays,
        grid=module.grid,
        group=module.group,
        derived=lambda problem: {**derived(problem), **module.constants(problem)},
        constants=module.constants(example),
        scalars=scalars,
        engine="defines",
    )
    space = VariantSpace(**module.VALUES).where(module.allowed)
    space = space.with_default(module.default) if hasattr(module, "default") else space.with_default(**module.DEFAULT)
    shipped = sorted(Path(str(files(__package__) / "records")).glob(f"{name}-{way}-*.jsonl"))
    return Tuned(name, template, space, reference=reference, tolerance=tolerance, work=work, shipped=shipped)
