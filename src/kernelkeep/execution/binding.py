"""A job on an executor: its program is leased once, and its launches are prepared once for each grid."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices.array import Array
from ..devices.base import Device, Kernel
from ..devices.lanes import Lanes
from ..devices.prepared import Prepared
from ..errors import ArgumentError
from .job import Job, check_outputs

if TYPE_CHECKING:
    from ..cache.lease import Lease
    from ..programs.signature import Parameter
    from .submission import Submission

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
            self.params: tuple[Parameter, ...] = self.kernel.params or ()
            check_outputs(job, {param.name for param in self.params if param.kind in ("buffer", "any")})
        except BaseException:
            self.lease.release()
            raise
        self.names = {param.name: index for index, param in enumerate(self.params)}
        self._prepared: dict[Any, Prepared] = {}

    def launch_of(self, submission: Submission, handles: Mapping[int, Any], lanes: Lanes) -> Prepared:
        """The launch of a submission with its arguments bound; one for each grid is kept."""
        job, kernel = submission.job, self.kernel
        prepared = self._prepared.get(submission.grid)
        if prepared is None:
            args = tuple(self._stand_in(i, param, submission, handles) for i, param in enumerate(self.params))
            if len(self._prepared) >= _GRIDS_KEPT:
                self._prepared.clear()
            prepared = kernel.prepare(
                submission.grid, args, job.group, queue=lanes.compute.queue, shared_bytes=job.shared_bytes
            )
            self._prepared[submission.grid] = prepared
            return prepared
        if prepared.revoked:  # the cache was closed meanwhile, and the program with it
            prepared.refuse()
        for index, value in submission.values.items():
            prepared.bind(index, value)
        for index, handle in handles.items():
            prepared.bind(index, handle)
        return prepared

    def _stand_in(self, index: int, param: Parameter, submission: Submission, handles: Mapping[int, Any]) -> Any:
        """An argument of the first launch: an array that `prepare` takes, with the handle that the launch needs."""
        if index not in handles and index not in submission.on_device:
            return submission.originals[index]
        dtype = np.dtype(param.dtype or "u1")
        # A guest, because somebody else owns the memory. Not the caller's own array: closing that one would revoke the
        # launch for all later batches.
        handle = handles[index] if index in handles else submission.values[index]
        return Array(self.kernel.device, (1,), dtype, handle, guest=self)

    def close(self) -> None:
        self._prepared.clear()
        self.lease.release()


class Bindings:
    """The bindings of an executor, one for each job that is alive. Safe under threads."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._bindings: weakref.WeakKeyDictionary[Job, Binding] = weakref.WeakKeyDictionary()
        self._stale: list[Binding] = []  # of jobs that were collected
        self._finalizers: list[weakref.finalize[Any, Any]] = []
        self._lock = threading.Lock()

    def get(self, job: Job) -> Binding:
        """The binding of a job, made at its first batch."""
        binding = self._bindings.get(job)
        if binding is None:
            while self._stale:
                self._stale.pop().close()
            made = Binding(job, self._device)
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
        for binding in (*self._bindings.values(), *self._stale):
            binding.close()
        self._bindings.clear()
        self._stale.clear()
