"""The templates of one kernel and which of them suits a device: *tiled* for GPUs, *vectors* for CPUs with wide vectors,
*plain* for the rest."""

from __future__ import annotations

import importlib
import math
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
    from ..variants.call import Call
    from ..variants.time_model import TimeModel


_DOUBT = 1.1


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
    # For GPUs: templates beside *tiled* that suit other problems, and what estimates the times of each one's variants.
    also: tuple[str, ...] = ()
    model: Callable[[str], TimeModel | None] = lambda kind: None
    inputs: Any = None
    module_of: Callable[[str], Any] | None = None  # what describes a kind of template; by default a module of `package`
    # Kinds for a device and a problem, where these are others than the device's own.
    kinds: Callable[[Device, Mapping[str, Any] | None], tuple[str, ...]] | None = None
    _tuned: dict[tuple[str, int], Tuned] = field(default_factory=dict, init=False)

    def run(
        self,
        cache: ProgramCache,
        problem: Mapping[str, int],
        arguments: dict[str, Any],
        explore: float | bool,
        deterministic: bool | None,
    ) -> None:
        """Run the best variant known, and try others where `explore` says so."""
        call, tuned = self.find(cache, problem, deterministic)
        if explore and tuned is not None:
            tuned.run(cache, problem, explore=explore, deterministic=deterministic, **arguments)
        else:
            call.run(cache, arguments)

    def find(
        self, cache: ProgramCache, problem: Mapping[str, int], deterministic: bool | None
    ) -> tuple[Call, Tuned | None]:
        """The best variant known, ready to be called, and the tuned kernel with the others.

        Where every variant of the device's own template is known to fail, it is the plain template's, and there are no others.
        """
        device = cache.device
        limit = device.capabilities.max_loop_rounds
        if limit is not None:
            self._check_loops(device, problem, limit)
        found: list[tuple[Call, Tuned]] = []
        for kind in self._kinds(device, problem):
            tuned = self.tuned(kind, device.capabilities.shared_bytes)
            try:
                found.append((tuned.call(cache, problem, deterministic), tuned))
            except VariantError:
                if kind == "plain":
                    raise
        if not found:
            plain = self.tuned("plain", device.capabilities.shared_bytes)
            return plain.call(cache, problem, deterministic), None
        return found[0] if len(found) == 1 else min(found, key=lambda one: _expected(device, *one))

    def _check_loops(self, device: Device, problem: Mapping[str, int], limit: int) -> None:
        """Refuse a problem whose loops the device would cut short: the result would be wrong."""
        rounds = self._module("plain").rounds(problem)
        if rounds > limit:
            where = f"{device.info.name}, which ends loops after {limit:,}"
            raise Unsupported("long loops", f"sums over {rounds:,} rounds are too long for {where}")

    def tuned_for(self, device: Device, problem: Mapping[str, Any] | None = None) -> Tuned:
        """The tuned kernel for a device; with a problem, that of the template which is expected to suit the problem best."""
        several = [self.tuned(kind, device.capabilities.shared_bytes) for kind in self._kinds(device, problem)]
        if problem is None or len(several) == 1:
            return several[0]
        return min(several, key=lambda tuned: _estimate(device, tuned, problem))

    def _kinds(self, device: Device, problem: Mapping[str, Any] | None) -> tuple[str, ...]:
        chosen = () if self.kinds is None else self.kinds(device, problem)
        return chosen or self.kinds_on(device)

    def kinds_on(self, device: Device) -> tuple[str, ...]:
        """The device's own kinds of templates."""
        kind = template_kind(device)
        return (kind, *self.also) if kind == "tiled" else (kind,)

    def tuned(self, kind: str, max_shared_bytes: int) -> Tuned:
        """The tuned kernel of one kind of template, without the variants that need more shared memory."""
        found = self._tuned.get((kind, max_shared_bytes))
        if found is None:
            # Of threads that come first together, all use the same one.
            found = self._tuned.setdefault((kind, max_shared_bytes), self._made(kind, max_shared_bytes))
        return found

    def _module(self, kind: str) -> Any:
        if self.module_of is not None:
            return self.module_of(kind)
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
            kernel=self.name.partition("-")[0],  # gemm, whatever it multiplies
            shared_bytes=getattr(module, "dynamic_shared_bytes", 0),
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
            inputs=self.inputs,
            tolerance=self.tolerance,
            check_scalars=self.check_scalars,
            work=self.work,
            shipped=shipped,
            model=self.model(kind),
        )


def _expected(device: Device, call: Call, tuned: Tuned) -> float:
    """How long a call takes, as far as that is known; a pinned variant comes before all others.

    The shortest of several estimates is likely to be one that is too short, so that measurements have an advantage.
    """
    chosen = call.selection
    if chosen.basis == "pinned":
        return -1.0
    if chosen.expected_ms is not None:
        return chosen.expected_ms if chosen.distance == 0 else chosen.expected_ms * _DOUBT
    return _estimate(device, tuned, call.problem) * _DOUBT


def _estimate(device: Device, tuned: Tuned, problem: Mapping[str, Any]) -> float:
    model, values = tuned.definition.model, tuned.definition.template.values(problem)
    best = None if model is None else model.best(device, values)
    found = None if model is None or best is None else model.milliseconds(device, values, best)
    return math.inf if found is None else found
