"""A tuned kernel: a template, its space of variants, and the memory of which of them is fastest where."""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cache.key import digest_of
from ..cache.program_cache import ProgramCache
from ..devices.array import Array
from ..errors import ArgumentError
from ..programs.portable import PortableKernel
from ..programs.source import Source
from ..storage.private import Trust
from .call import Call
from .choose import Chooser
from .record import Choice, Record, decode_lines
from .records import Records
from .select import Selection
from .space import VariantSpace
from .template import Launch, Template, plain_problem
from .trial import default_tolerance
from .verdicts import why_failed

if TYPE_CHECKING:
    from ..cache.report import PreloadReport
    from ..devices.base import Device
    from .case import Case, Inputs, Reference
    from .explore import Explorer
    from .report import Attempt, TuneReport

__all__ = ["Tuned", "records_of"]

_USUAL_SHARE = 0.05  # what `explore=True` means
_CALLS_KEPT = 4096  # problems; a program whose sizes never repeat must not grow for ever


class Tuned:
    """A kernel with variants. The fastest one known for a device and a problem runs, and says why.

    `reference` computes the right answer with NumPy: it is called by name with what it asks for (arrays, scalars, the
    problem's values) and returns the outputs. A variant that does not agree with it within `tolerance`, relative to the
    largest value, is never used. `checks` are the problems it must agree on besides the one that is tuned; by default
    one with ragged sizes; `check_scalars` are values that scalars have in all but the measured one, so that other paths of
    the kernel are verified too. `inputs(values, rng)` may make the numbers where random ones will not do.

    `work(problem)` says how much there is to do, to estimate the time of one problem from another's; by default it is
    the number of elements of all arrays. `shipped` are files of records that come with the kernel.
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
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ArgumentError("a tuned kernel has a name")
        if isinstance(template, PortableKernel | Source):
            template = Template(template)
        if not isinstance(template, Template):
            raise ArgumentError(f"a tuned kernel is made from a kk.Template, not from a {type(template).__name__}")
        if not isinstance(space, VariantSpace):
            raise ArgumentError(f"the variants are a kk.VariantSpace, not a {type(space).__name__}")
        if reference is not None and not callable(reference):
            raise ArgumentError("reference is a function that computes the right answer with NumPy")
        self.name = name
        self.template = template
        self.space = space
        self.reference = reference
        self.deterministic = deterministic
        self._inputs = inputs
        self._checks = checks
        self._tolerance = tolerance
        self._check_scalars = dict(check_scalars or {})
        self._work = work
        files = [shipped] if isinstance(shipped, str | PathLike) else shipped
        self._shipped_files = tuple(Path(path) for path in files)
        for path in self._shipped_files:
            if not path.is_file():
                raise ArgumentError(f"there is no file {path} of records that are shipped with {name}")
        self._shipped: list[Record] | None = None
        self._calls: weakref.WeakKeyDictionary[ProgramCache, dict[Any, Call]] = weakref.WeakKeyDictionary()

    # --- the kernel

    def source(self, device: Device, variant: Mapping[str, Any], problem: Mapping[str, Any] | None = None) -> Source:
        """A variant's source, as the cache is asked for it."""
        return self.template.launch(self.name, device, self.template.values(problem or {}), variant).source

    def digest(self, source: Source) -> str:
        """A hash of a source, whatever the device."""
        return digest_of(source, "")

    @property
    def tolerance(self) -> float:
        """How far a result may be from the reference's, relative to the largest value."""
        if self._tolerance is not None:
            return self._tolerance
        return default_tolerance(self._params())

    @property
    def dtype(self) -> str:
        """The type of the first output."""
        return next((str(p.dtype) for p in self._params() if p.kind == "buffer" and p.access != "r"), "f4")

    def _params(self) -> Any:
        return self.template.params(self.template.a_language)

    def checks(self, problem: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The problems a variant must get right before it is measured on `problem`, which is the last."""
        from .case import ragged

        given = self._checks(problem) if callable(self._checks) else self._checks
        others = [ragged(self.template, problem)] if given is None else list(given)
        return [*(other for other in others if other != problem), problem]

    def case(self, device: Device, problem: Mapping[str, Any], seed: int = 0, *, measured: bool = False) -> Case:
        """Numbers for a problem, and the reference's answer. Scalars have their usual values where it is measured."""
        from .case import make_case

        params = self.template.params(device.language)
        others = None if measured else self._check_scalars
        return make_case(self.template, params, problem, self.reference, self._inputs, seed, others)

    def trials(
        self, device: Device, variant: Mapping[str, Any], cases: Sequence[Case]
    ) -> tuple[tuple[Launch, ...], tuple[Case, ...]]:
        """A variant's launches on those cases that it must get right; the last one always is.

        Those its conditions exclude are not, nor those whose own constants make it another program: that one is right or
        wrong by itself.
        """
        launches = [self.template.launch(self.name, device, case.values, variant) for case in cases]
        digest = self.digest(launches[-1].source)
        pairs = [
            (launch, case)
            for launch, case in zip(launches, cases, strict=True)
            if case is cases[-1] or (self.digest(launch.source) == digest and self.space.allows(variant, case.values))
        ]
        return tuple(launch for launch, _ in pairs), tuple(case for _, case in pairs)

    # --- tuning

    def tune(
        self,
        cache: ProgramCache,
        problem: Mapping[str, Any],
        budget_seconds: float | None = None,
        progress: bool = False,
        *,
        isolate: bool = True,
        workers: int | None = None,
        trial_seconds: float = 20.0,
        listen: Callable[[Attempt], None] | None = None,
        force: bool = False,
    ) -> TuneReport:
        """Verify and measure variants, and remember the fastest. What was tried before is not tried again, unless with
        `force`, which forgets what was measured of this problem on this device.

        Candidates are tried in child processes, where a crash or a hang costs only the candidate; `isolate=False` tries
        them here. `listen` is called with each attempt.
        """
        from .tune import Tuning

        if self.reference is None:
            raise ArgumentError(f"{self.name} has no reference to verify its variants with, so it cannot be tuned")
        if budget_seconds is not None and not (isinstance(budget_seconds, int | float) and budget_seconds > 0):
            raise ArgumentError(f"budget_seconds is a positive number, not {budget_seconds!r}")
        self._check_cache(cache)
        plain = plain_problem(problem)
        if force:
            self.records(cache).forget(self.name, cache.device.fingerprint.digest, plain, choices=False)
            self.forget(cache)
        return Tuning(
            self,
            cache,
            plain,
            budget_seconds=budget_seconds,
            progress=progress,
            listen=listen,
            isolate=isolate,
            workers=workers,
            trial_seconds=trial_seconds,
        ).run()

    def records(self, cache: ProgramCache) -> Records:
        """The memory of all measurements, in the cache's folder."""
        return records_of(cache)

    def record(
        self,
        device: Device,
        problem: Mapping[str, Any],
        variant: Mapping[str, Any],
        source: Source,
        samples_ms: Sequence[float],
        failure: str = "",
        detail: str = "",
    ) -> Record:
        """A measurement, or a failure, as it is remembered."""
        return Record(
            tuned=self.name,
            source=self.digest(source),
            space=self.space.digest,
            device=device.fingerprint.digest,
            device_name=device.fingerprint.folder,
            architecture=device.family,
            problem=dict(problem),
            variant=dict(variant),
            dtype=self.dtype,
            samples_ms=list(samples_ms),
            failure=failure,
            detail=detail,
            tolerance=self.tolerance,
            verified=not failure,
            reference=self.reference_digest,
        )

    @cached_property
    def reference_digest(self) -> str:
        """A hash of the reference's code; "" where it has none that can be read. What it calls takes no part."""
        code = getattr(self.reference, "__code__", None)
        return "" if code is None else hashlib.sha256(_code_bytes(code)).hexdigest()

    # --- choosing

    def select(
        self, cache: ProgramCache, problem: Mapping[str, Any], *, deterministic: bool | None = None
    ) -> Selection:
        """The variant to run, and why. Measures nothing and compiles nothing.

        With `deterministic` the choice never depends on measurements: what is pinned, else the default. A variant that
        failed for this problem is never chosen; where no other is left, that is a `kk.VariantError`.
        """
        return self._call(cache, problem, deterministic).selection

    def _call(self, cache: ProgramCache, problem: Mapping[str, Any], deterministic: bool | None) -> Call:
        steady = self.deterministic if deterministic is None else deterministic
        try:
            return self._calls[cache][steady, tuple(problem.items())]
        except (KeyError, TypeError, AttributeError):
            pass  # not asked for yet, or nonsense; which of them is seen below
        self._check_cache(cache)
        chooser = Chooser(self, cache, problem)
        plain = chooser.problem
        made = Call(self, cache.device, plain, chooser.choose(steady))
        if len(self._calls.get(cache, ())) >= _CALLS_KEPT:
            self.forget(cache)
        with _opening:  # threads that come first together share one
            return self._calls.setdefault(cache, {}).setdefault((steady, tuple(plain.items())), made)

    def shipped(self) -> list[Record]:
        """The records that come with the kernel."""
        if self._shipped is None:
            found: list[Record] = []
            for path in self._shipped_files:
                with path.open("rb") as lines:
                    found += [item for item in decode_lines(lines)[0] if isinstance(item, Record)]
            self._shipped = [record for record in found if record.tuned == self.name]
        return self._shipped

    def work(self, problem: Mapping[str, Any]) -> float:
        """How much there is to do, to estimate the time of one problem from another's."""
        if self._work is not None:
            return float(self._work(problem))
        values = self.template.values(problem)
        return float(sum(prod(self.template.shape(p.name, values)) for p in self._params() if p.kind == "buffer"))

    def decide(
        self,
        cache: ProgramCache,
        problem: Mapping[str, Any],
        variant: Mapping[str, Any],
        reason: str,
        pinned: bool = False,
    ) -> None:
        """Remember which variant is to run. It is heeded where it is next looked for, not by calls that know one already."""
        self.records(cache).choose(
            Choice(
                tuned=self.name,
                device=cache.device.fingerprint.digest,
                problem=dict(problem),
                variant=dict(variant),
                dtype=self.dtype,
                pinned=pinned,
                reason=reason,
            )
        )

    def pin(self, cache: ProgramCache, problem: Mapping[str, Any], variant: Mapping[str, Any]) -> None:
        """Have one variant run for a problem on this device, whatever is measured, until `unpin`."""
        self._check_cache(cache)
        chooser = Chooser(self, cache, problem)
        allowed = chooser.allowed(variant)
        if allowed is None:
            raise ArgumentError(f"{dict(variant)} is not a variant of {self.name} for {chooser.problem}")
        failure = chooser.against(allowed)
        if failure is not None:
            raise ArgumentError(f"{allowed} cannot be pinned: it failed ({why_failed(failure)})")
        self.decide(cache, chooser.problem, allowed, "pinned", pinned=True)
        self.forget(cache)

    def unpin(self, cache: ProgramCache, problem: Mapping[str, Any]) -> bool:
        """Choose by measurements again; whether something had been pinned."""
        self._check_cache(cache)
        fingerprint = cache.device.fingerprint.digest
        was = self.records(cache).unpin(self.name, fingerprint, plain_problem(problem), self.dtype)
        self.forget(cache)
        return was

    def forget(self, cache: ProgramCache) -> None:
        """Read the records again at the next call: another process may have measured meanwhile."""
        for call in (self._calls.pop(cache, None) or {}).values():
            if call.explorer is not None:
                call.explorer.close()

    def preload(
        self, cache: ProgramCache, problems: Iterable[Mapping[str, Any]], progress: bool = False
    ) -> PreloadReport:
        """Have the variants that would be chosen for some problems compiled and in memory."""
        return cache.preload([self._call(cache, problem, None).launch.source for problem in problems], progress)

    # --- running

    def run(
        self,
        cache: ProgramCache,
        problem: Mapping[str, Any],
        *,
        explore: float | bool = 0.0,
        deterministic: bool | None = None,
        **arguments: Any,
    ) -> Array | dict[str, Array]:
        """Run the best variant known, at once; `kk.VariantError` where all are known to fail. Arguments go by name; outputs
        that are left out are made.

        What is passed and is no device array is copied to the device. Returns the output, a dict where there are several.

        With `explore`, a share of the time, other variants are tried on real calls: each is first verified in a child
        process, and what that and slower calls cost is earned back, before another is tried, from that share of the time
        of all calls. True stands for a twentieth.
        """
        call = self._call(cache, problem, deterministic)
        if explore and self.reference is None:
            raise ArgumentError(f"{self.name} has no reference to verify its variants with, so it cannot explore")
        if explore and not (isinstance(explore, int | float) and 0 < explore <= 1):
            raise ArgumentError(f"explore is a share of the time, above 0 and up to 1, not {explore!r}")
        if explore and call.selection.basis not in ("deterministic", "pinned"):
            share = _USUAL_SHARE if explore is True else float(explore)
            return self._explorer(cache, call, share).run(arguments)
        return call.run(cache, arguments)

    def _explorer(self, cache: ProgramCache, call: Call, share: float) -> Explorer:
        explorer = call.explorer
        if explorer is None:
            from .explore import Explorer

            made = Explorer(self, cache, call)
            with _opening:  # threads that come first together share one
                explorer = call.explorer = call.explorer or made
            cache.add_tenant(explorer)
        explorer.share = share
        return explorer

    def _check_cache(self, cache: ProgramCache) -> None:
        if not isinstance(cache, ProgramCache):
            raise ArgumentError(f"{self.name} runs on the device of a kk.ProgramCache, not of a {type(cache).__name__}")
        cache._check_open()

    def __repr__(self) -> str:
        return f"<Tuned {self.name}: {self.space.combinations} combinations of {', '.join(self.space.parameters)}>"


def _code_bytes(code: Any) -> bytes:
    constants = [_code_bytes(c) if hasattr(c, "co_code") else repr(c).encode() for c in code.co_consts]
    return b"\0".join([code.co_code, repr(code.co_names).encode(), *constants])


_records: weakref.WeakKeyDictionary[ProgramCache, Records] = weakref.WeakKeyDictionary()
_opening = threading.Lock()


def _in_child() -> None:
    global _opening
    _opening = threading.Lock()  # a thread that a forked child does not have may hold the other


os.register_at_fork(after_in_child=_in_child)


def records_of(cache: ProgramCache) -> Records:
    """The tuning records beside a cache's programs; opened once for each cache."""
    with _opening:
        found = _records.get(cache)
        if found is None:
            found = _records[cache] = Records(cache.cache_dir / "tuning.sqlite", Trust(cache.trusted_owner))
            cache.add_tenant(found)
        return found
