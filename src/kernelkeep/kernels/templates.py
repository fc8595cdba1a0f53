"""The templates of one kernel and which of them suits a device: *tiled* for GPUs, *vectors* for CPUs with wide vectors,
*plain* for the rest."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported, VariantError
from ..variants.space import VariantSpace
from ..variants.template import Template
from ..variants.tuned import Tuned

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache
    from ..devices.base import Device


def template_kind(device: Device) -> str:
    """Which kind of template a device runs."""
    if device.info.is_gpu:
        return "tiled"
    return "vectors" if device.capabilities.wide_vectors else "plain"


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelTemplates:
    """A ready-to-use kernel: one module of `package` for each kind of template, and what they have in common.

    `example` is a problem from which the names of the constants are read; the other arguments are those of `kk.Template`
    and `kk.Tuned`.
    """

    name: str
    package: str | None
    arrays: Mapping[str, Any]
    reference: Callable[..., Any]
    tolerance: float
    work: Callable[[Mapping[str, Any]], float]
    example: Mapping[str, int]
    scalars: Mapping[str, Any] = field(default_factory=dict)
    check_scalars: Mapping[str, Any] = field(default_factory=dict)
    derived: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda problem: {}
    _tuned: dict[tuple[str, int], Tuned] = field(default_factory=dict, init=False)

    def run(
        self,
        cache: ProgramCache,
        problem: Mapping[str, int],
        arguments: dict[str, Any],
        explore: float | bool,
        deterministic: bool | None,
    ) -> None:
        """Run the best variant known. Where every variant of the device's own template is known to fail, run the plain
        template's."""
        device = cache.device
        limit = device.capabilities.max_loop_rounds
        if limit is not None:
            self._check_loops(device, problem, limit)
        try:
            self.tuned_for(device).run(cache, problem, explore=explore, deterministic=deterministic, **arguments)
        except VariantError:
            if template_kind(device) == "plain":
                raise
            plain = self.tuned("plain", device.capabilities.shared_bytes)
            plain.run(cache, problem, deterministic=deterministic, **arguments)

    def _check_loops(self, device: Device, problem: Mapping[str, int], limit: int) -> None:
        """Refuse a problem whose loops the device would cut short: the result would be wrong."""
        rounds = self._module("plain").rounds(problem)
        if rounds > limit:
            where = f"{device.info.name}, which ends loops after {limit:,}"
            raise Unsupported("long loops", f"sums over {rounds:,} rounds are too long for {where}")

    def tuned_for(self, device: Device) -> Tuned:
        """The tuned kernel for a device."""
        return self.tuned(template_kind(device), device.capabilities.shared_bytes)

    def tuned(self, kind: str, max_shared_bytes: int) -> Tuned:
        """The tuned kernel of one kind of template, without the variants that need more shared memory."""
        found = self._tuned.get((kind, max_shared_bytes))
        if found is None:
            # Of threads that come first together, all use the same one.
            found = self._tuned.setdefault((kind, max_shared_bytes), self._made(kind, max_shared_bytes))
        return found

    def _module(self, kind: str) -> Any:
        return importlib.import_module(f".{kind}", self.package)

    def _made(self, kind: str, max_shared_bytes: int) -> Tuned:
        module, derived = self._module(kind), self.derived
        template = Template(
            module.BODY,
            module.PARAMS,
            arrays=self.arrays,
            grid=module.grid,
            group=module.group,
            derived=lambda problem: {**derived(problem), **module.constants(problem)},
            constants=module.constants(self.example),
            scalars=self.scalars,
            kernel=self.name,
            engine="defines",
            nonnegative_remainders=True,  # all remainders are of indices
        )
        space = VariantSpace(**module.VALUES).where(module.allowed)
        if hasattr(module, "shared_bytes"):
            space = space.where(lambda v: module.shared_bytes(v) <= max_shared_bytes)
        rule = getattr(module, "default", None)
        space = space.with_default(rule) if rule is not None else space.with_default(**module.DEFAULT)
        shipped = sorted(Path(str(files(__package__) / "records")).glob(f"{self.name}-{kind}-*.jsonl"))
        # The prefix tells it from a user's own kernel of the same name, which has decisions of its own.
        return Tuned(
            f"kernelkeep.{self.name}",
            template,
            space,
            reference=self.reference,
            tolerance=self.tolerance,
            check_scalars=self.check_scalars,
            work=self.work,
            shipped=shipped,
        )
