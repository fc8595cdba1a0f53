"""`kk.Tuned`: a kernel with variants. A thin layer over its definition, the chooser and the records."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cache.program_cache import ProgramCache
from ..errors import ArgumentError
from ..programs.portable import PortableKernel
from ..programs.source import Source
from .call import Call, Results
from .chooser import Chooser
from .definition import Definition
from .kernel_records import KernelRecords, creation_lock, records_of
from .known_failures import why_failed
from .records import Records
from .select import Selection
from .space import VariantSpace
from .template import Template, plain_problem

if TYPE_CHECKING:
    from ..cache.report import PreloadReport
    from ..devices.base import Device
    from ..progress.reporter import Wanted
    from .case import Inputs, Reference
    from .explore import Explorer
    from .report import Attempt, TuneReport
    from .time_model import TimeModel

_DEFAULT_SHARE = 0.05  # of `explore=True`
_MAX_CALLS = 4096  # problems that are kept; a program whose sizes never repeat must not grow without limit


class Tuned:
    """A kernel with variants. The fastest one known for a device and a problem runs, and says why.

    `reference` computes the right answer with NumPy: it is called by name with what it asks for (arrays, scalars, the
    problem's values) and returns the outputs. A variant that does not agree with it within `tolerance`, relative to the
    largest value, is never used. `checks` are the problems it must agree on besides the one that is tuned; by default
    one with ragged sizes; `check_scalars` are values that scalars have in all but the measured one, so that other paths of
    the kernel are verified too. `inputs(values, rng)` may make the numbers where random ones will not do.

    `work(problem)` says how much there is to compute, to estimate the time of one problem from another's; by default it
    is the number of elements of all arrays. `shipped` are files of records that come with the kernel. `model`, a
    `TimeModel`, estimates the time of variants on problems that were never measured.
    """

    def __init__(
        self,
        name: str,
        template: Template | PortableKernel | Source,
        space: VariantSpace,
        *,
        reference: Reference | None = None,
        inputs: Inputs | None = None,
        checks: Sequence[Mapping[str, Any]] | Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]] | None = None,
        tolerance: float | None = None,
        check_scalars: Mapping[str, Any] | None = None,
        work: Callable[[Mapping[str, Any]], float] | None = None,
        shipped: str | PathLike[str] | Iterable[str | PathLike[str]] = (),
        deterministic: bool = False,
        model: TimeModel | None = None,
    ) -> None:
        files = [shipped] if isinstance(shipped, str | PathLike) else shipped
        self.definition = Definition(
            name,
            Template(template) if isinstance(template, PortableKernel | Source) else template,
            space,
            reference,
            inputs,
            checks,
            tolerance,
            dict(check_scalars or {}),
            work,
            tuple(Path(path) for path in files),
            deterministic,
            model,
        )
        self._deterministic = deterministic
        self._calls: weakref.WeakKeyDictionary[ProgramCache, dict[Any, Call]] = weakref.WeakKeyDictionary()

    @property
    def name(self) -> str:
        """The name its records are stored under."""
        return self.definition.name

    @property
    def template(self) -> Template:
        """The kernel's text, and how a problem becomes a launch of it."""
        return self.definition.template

    @property
    def space(self) -> VariantSpace:
        """The variants there are."""
        return self.definition.space

    @property
    def reference(self) -> Reference | None:
        """What computes the right answer."""
        return self.definition.reference

    @property
    def tolerance(self) -> float:
        """How far a result may be from the reference's, relative to the largest value."""
        return self.definition.tolerance

    def source(self, device: Device, variant: Mapping[str, Any], problem: Mapping[str, Any] | None = None) -> Source:
        """A variant's source, as the cache is asked for it."""
        return self.definition.source(device, variant, problem)

    # --- tuning

    def tune(
        self,
        cache: ProgramCache,
        problem: Mapping[str, Any],
        budget_seconds: float | None = None,
        progress: Wanted = False,
        *,
        isolate: bool = True,
        workers: int | None = None,
        trial_seconds: float = 20.0,
        listen: Callable[[Attempt], None] | None = None,
        force: bool = False,
    ) -> TuneReport:
        """Verify and measure variants, and remember the fastest. What was tried before is not tried again, unless with
        `force`, which forgets what was measured of this problem on this device.

        Candidates are tried in worker processes, where a crash or a hang costs only the candidate; `isolate=False` tries
        them here. `listen` is called with each attempt. `progress` is True, False or a function of a `kk.Progress`.
        """
        from .tune import Tuning

        self.definition.require_reference("be tuned")
        if budget_seconds is not None and not (isinstance(budget_seconds, int | float) and budget_seconds > 0):
            raise ArgumentError(f"budget_seconds must be a positive number, got {budget_seconds!r}")
        records = self._records(cache)
        plain = plain_problem(problem)
        if force:
            records.forget_measurements(plain)
            self.forget(cache)
        try:
            return Tuning(
                records,
                cache,
                plain,
                budget_seconds=budget_seconds,
                progress=progress,
                listen=listen,
                isolate=isolate,
                workers=workers,
                trial_seconds=trial_seconds,
            ).run()
        finally:
            self.forget(cache)  # also where it was interrupted

    def records(self, cache: ProgramCache) -> Records:
        """The records of all measurements, in the cache's folder."""
        return records_of(cache)

    # --- choosing

    def select(
        self, cache: ProgramCache, problem: Mapping[str, Any], *, deterministic: bool | None = None
    ) -> Selection:
        """The variant to run, and why. Measures nothing and compiles nothing.

        With `deterministic` the choice never depends on measurements: the pinned variant, else the default. A variant
        that failed for this problem is never chosen; where no other is left, that is a `kk.VariantError`.
        """
        return self.call(cache, problem, deterministic).selection

    def call(self, cache: ProgramCache, problem: Mapping[str, Any], deterministic: bool | None = None) -> Call:
        """The prepared call for a problem: made once, and kept until `forget`."""
        steady = self._deterministic if deterministic is None else deterministic
        try:
            return self._calls[cache][steady, tuple(problem.items())]
        except (KeyError, TypeError, AttributeError):
            pass  # not prepared yet, or an argument is wrong, which is found below
        chooser = Chooser(self._records(cache), problem)
        plain = chooser.problem
        made = Call(self.definition, cache.device, plain, chooser.choose(steady))
        if len(self._calls.get(cache, ())) >= _MAX_CALLS:
            self.forget(cache)
        with creation_lock():
            return self._calls.setdefault(cache, {}).setdefault((steady, tuple(plain.items())), made)

    def pin(self, cache: ProgramCache, problem: Mapping[str, Any], variant: Mapping[str, Any]) -> None:
        """Run this variant for a problem on this device until `unpin`, regardless of measurements."""
        records = self._records(cache)
        chooser = Chooser(records, problem)
        allowed = chooser.allowed(variant)
        if allowed is None:
            raise ArgumentError(f"{dict(variant)} is not a variant of {self.name} for {chooser.problem}")
        failure = chooser.failure_of(allowed)
        if failure is not None:
            raise ArgumentError(f"{allowed} cannot be pinned: it failed ({why_failed(failure)})")
        records.choose(chooser.problem, allowed, "pinned", pinned=True)
        self.forget(cache)

    def unpin(self, cache: ProgramCache, problem: Mapping[str, Any]) -> bool:
        """Choose by measurements again; returns whether something had been pinned."""
        was_pinned = self._records(cache).unpin(plain_problem(problem))
        self.forget(cache)
        return was_pinned

    def forget(self, cache: ProgramCache) -> None:
        """Read the records again at the next call: another process may have measured meanwhile."""
        cache.memo.clear()
        for call in (self._calls.pop(cache, None) or {}).values():
            if call.explorer is not None:
                call.explorer.close()

    def preload(
        self, cache: ProgramCache, problems: Iterable[Mapping[str, Any]], progress: Wanted = False
    ) -> PreloadReport:
        """Compile the variants that would be chosen for some problems, and load them into memory."""
        return cache.preload([self.call(cache, problem).launch.source for problem in problems], progress)

    # --- running

    def run(
        self,
        cache: ProgramCache,
        problem: Mapping[str, Any],
        *,
        explore: float | bool = 0.0,
        deterministic: bool | None = None,
        **arguments: Any,
    ) -> Results:
        """Run the best variant known, at once; `kk.VariantError` where all are known to fail. Arguments go by name; outputs
        that are left out are made.

        An argument that is not a device array is copied to the device. Returns the output, a dict where there are several.

        With `explore`, other variants are tried on real calls, after each was verified in a worker process. The time lost by
        that and by slower calls stays below this share of the time of all calls. True means a twentieth.
        """
        call = self.call(cache, problem, deterministic)
        if explore:
            self.definition.require_reference("explore")
            if not (isinstance(explore, int | float) and 0 < explore <= 1):
                raise ArgumentError(f"explore must be a share of the time, above 0 and up to 1, got {explore!r}")
            if call.selection.basis not in ("deterministic", "pinned"):
                share = _DEFAULT_SHARE if explore is True else float(explore)
                return self._explorer(cache, call, share).run(arguments)
        return call.run(cache, arguments)

    def _explorer(self, cache: ProgramCache, call: Call, share: float) -> Explorer:
        explorer: Explorer | None = call.explorer
        if explorer is None:
            from .explore import Explorer

            made = Explorer(self._records(cache), cache, call)
            with creation_lock():
                explorer = call.explorer = call.explorer or made
            cache.add_tenant(explorer)
        explorer.share = share
        return explorer

    def _records(self, cache: ProgramCache) -> KernelRecords:
        if not isinstance(cache, ProgramCache):
            raise ArgumentError(f"cache must be a kk.ProgramCache, got a {type(cache).__name__}")
        cache.check_open()
        return KernelRecords(self.definition, cache)

    def __repr__(self) -> str:
        space = self.definition.space
        return f"<Tuned {self.name}: {space.combinations} combinations of {', '.join(space.parameters)}>"
