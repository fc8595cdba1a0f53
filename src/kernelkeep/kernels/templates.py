"""Which of a kernel's templates suits a device: *tiled* for GPUs, *vectors* for CPUs with wide vectors, *plain* for the rest."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported, VariantError
from ..variants.space import VariantSpace
from ..variants.template import Template
from ..variants.tuned import Tuned

if TYPE_CHECKING:
    from ..devices.base import Device

__all__ = ["check_rounds", "plain_instead", "tuned_kernel", "way_of"]


def way_of(device: Device) -> str:
    """The template for a kind of device."""
    if device.info.is_gpu:
        return "tiled"
    return "vectors" if device.capabilities.wide_vectors else "plain"


def check_rounds(device: Device, package: str | None, problem: Mapping[str, Any]) -> None:
    """Refuse a problem whose loops the device would cut short: the result would be wrong."""
    most = device.capabilities.max_loop_rounds
    if most is not None:
        rounds = importlib.import_module(".plain", package).rounds(problem)
        if rounds > most:
            message = (
                f"sums over {rounds:,} rounds are too long for {device.info.name}, which ends loops after {most:,}"
            )
            raise Unsupported("long loops", message)


def plain_instead(error: VariantError, device: Device, tuned: Callable[[str, int], Tuned]) -> Tuned:
    """What to run where every variant of the device's own template is known to fail: the plain one, if that is another."""
    if way_of(device) == "plain":
        raise error
    return tuned("plain", device.capabilities.shared_bytes)


def tuned_kernel(
    name: str,
    way: str,
    package: str | None,
    most_shared_bytes: int,
    *,
    arrays: Mapping[str, Any],
    reference: Callable[..., Any],
    tolerance: float,
    work: Callable[[Mapping[str, Any]], float],
    example: Mapping[str, int],
    scalars: Mapping[str, Any] | None = None,
    check_scalars: Mapping[str, Any] | None = None,
    derived: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda problem: {},
) -> Tuned:
    """A kernel from one of its template modules, with the records that are shipped, and without the variants that need
    more shared memory than a device has."""
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
        kernel=name,
        engine="defines",
        nonnegative_remainders=True,  # of indices, all of them
    )
    space = VariantSpace(**module.VALUES).where(module.allowed)
    if hasattr(module, "shared_bytes"):
        space = space.where(lambda v: module.shared_bytes(v) <= most_shared_bytes)
    space = space.with_default(module.default) if hasattr(module, "default") else space.with_default(**module.DEFAULT)
    shipped = sorted(Path(str(files(__package__) / "records")).glob(f"{name}-{way}-*.jsonl"))
    return Tuned(
        f"kernelkeep.{name}",  # a user's own "gemm" is another one, with decisions of its own
        template,
        space,
        reference=reference,
        tolerance=tolerance,
        check_scalars=check_scalars,
        work=work,
        shipped=shipped,
    )
