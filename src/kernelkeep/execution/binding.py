"""Jobs and pipelines on an executor: programs are leased once, and launches are prepared once for each grid."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..devices.array import Array
from ..devices.base import Device, Kernel
from ..devices.lanes import Lanes
from ..devices.prepared import Prepared
from ..errors import ArgumentError
from ..programs.portable import PortableKernel
from .job import Job, check_outputs
from .pace import Pace
from .pipeline import Pipeline
from .plan import Plan, plan_of

if TYPE_CHECKING:
    from ..cache.lease import Lease
    from ..cache.tiers.disk import DiskTier
    from ..programs.signature import Parameter
    from .pattern import Pattern
    from .submission import Launch

_GRIDS_KEPT = 16


class Binding:
    """A job on an executor: a lease on its program, and its launches bound to the compute lane."""

    def __init__(self, job: Job, device: Device) -> None:
        if job.cache.device is not device:
            raise ArgumentError(
                f"job {job.name} has a cache of {job.cache.device.spec}, the executor runs {device.spec}"
            )
        self.lease: Lease = job.cache.get(job.source)
        try:
            self.kernel: Kernel = self.lease.kernel(job.kernel)
            self.params = _declared(job, self.kernel)
            check_outputs(job, {param.name for param in self.params if param.kind in ("buffer", "any")})
        except BaseException:
            self.lease.release()
            raise
        self._prepared: dict[Any, Prepared] = {}

    def launch_of(self, launch: Launch, handles: Mapping[int, Any], lanes: Lanes) -> Prepared:
        """A launch with its arguments bound; one for each grid is kept."""
        prepared = self._prepared.get(launch.grid)
        if prepared is None:
            if len(self._prepared) >= _GRIDS_KEPT:
                self._prepared.clear()
            prepared = self._prepared[launch.grid] = self.prepare(launch, handles, lanes)
            return prepared
        if prepared.revoked:  # the cache was closed meanwhile, and the program with it
            prepared.refuse()
        bound = prepared.values
        for index, value in launch.values.items():
            if bound[index] is not value:
                prepared.bind(index, value)
        for index, cell in launch.buffers.items():
            if bound[index] is not (handle := handles[cell]):
                prepared.bind(index, handle)
        return prepared

    def prepare(self, launch: Launch, handles: Mapping[int, Any], lanes: Lanes) -> Prepared:
        """A new launch on the compute lane with its arguments bound."""
        args = tuple(self._stand_in(i, param, launch, handles) for i, param in enumerate(self.params))
        queue, shared_bytes = lanes.compute.queue, launch.shared_bytes
        return self.kernel.prepare(launch.grid, args, launch.group, queue=queue, shared_bytes=shared_bytes)

    def _stand_in(self, index: int, param: Parameter, launch: Launch, handles: Mapping[int, Any]) -> Any:
        """An argument of the first launch: an array that `prepare` takes, with the handle that the launch needs."""
        if index not in launch.buffers:
            return launch.originals[index]
        dtype = np.dtype(param.dtype or "u1")
        # A guest, because somebody else owns the memory. Not the caller's own array: closing that one would revoke the
        # launch for all later batches.
        return Array(self.kernel.device, (1,), dtype, handles[launch.buffers[index]], guest=self)

    def close(self) -> None:
        self._prepared.clear()
        self.lease.release()


def _declared(job: Job, kernel: Kernel) -> tuple[Parameter, ...]:
    """The parameters of a kernel; what a portable one declares counts more than what a driver tells of its accesses."""
    params = kernel.params or ()
    if not isinstance(job.source, PortableKernel):
        return params
    access = {param.name: param.access for param in job.source.signature.params or ()}
    return tuple(msgspec.structs.replace(param, access=access.get(param.name, param.access)) for param in params)


class Wiring:
    """A job or a pipeline on an executor: what goes where, the binding of each of its jobs, and what batches were like."""

    def __init__(self, plan: Plan, bindings: tuple[Binding, ...]) -> None:
        self.plan = plan
        self.bindings = bindings
        self.pace = Pace()
        self.pattern: Pattern | None = None  # of the last batch

    def learn(self, pattern: Pattern | None) -> None:
        """The last batch was like this."""
        before, self.pattern = self.pattern, pattern
        if before is not None:
            before.retire()


class Bindings:
    """The bindings of an executor, one for each job that is alive. Safe under threads."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._wirings: weakref.WeakKeyDictionary[Job | Pipeline, Wiring] = weakref.WeakKeyDictionary()
        self._bindings: weakref.WeakKeyDictionary[Job, Binding] = weakref.WeakKeyDictionary()
        self._stale: list[Binding] = []  # of jobs that were collected
        self._finalizers: list[weakref.finalize[Any, Any]] = []
        self._lock = threading.Lock()
        self.disk: DiskTier | None = None  # of the cache whose programs are run

    def known(self, work: Job | Pipeline) -> Wiring | None:
        """The wiring of a job or a pipeline, if it was made already."""
        return self._wirings.get(work)

    def get(self, work: Job | Pipeline) -> Wiring:
        """The wiring of a job or a pipeline, made at its first batch."""
        wiring = self._wirings.get(work)
        if wiring is None:
            stages = work.stages
            bindings = tuple(self._binding_of(stage.job) for stage in stages)
            wiring = Wiring(plan_of(stages, [one.params for one in bindings], work.returns), bindings)
            with self._lock:
                self._wirings[work] = wiring
        return wiring

    def _binding_of(self, job: Job) -> Binding:
        binding = self._bindings.get(job)
        if binding is None:
            while self._stale:
                self._stale.pop().close()
            made = Binding(job, self._device)
            self.disk = job.cache.disk
            with self._lock:
                binding = self._bindings.setdefault(job, made)
                if binding is made:
                    # The garbage collector may run anywhere, so it only notes what is to be closed.
                    finalizer = weakref.finalize(job, self._stale.append, made)
                    finalizer.atexit = False
                    self._finalizers = [one for one in self._finalizers if one.alive] + [finalizer]
            if binding is not made:
                made.close()
        return binding

    def close(self) -> None:
        """Release every program."""
        for finalizer in self._finalizers:
            finalizer.detach()  # or a job that lives on would keep its binding here
        for wiring in list(self._wirings.values()):
            wiring.learn(None)  # which gives its memory back
        for binding in (*self._bindings.values(), *self._stale):
            binding.close()
        self._wirings.clear()
        self._bindings.clear()
        self._stale.clear()
