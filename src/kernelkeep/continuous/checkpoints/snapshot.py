"""The committed state comes to host memory, between two turns of a run.

On a GPU the blocks of a large state are digested where they are, and only those that changed since the last snapshot come to
the host. The run waits meanwhile. The writer's thread begins with the first bytes of a large state, and goes on when the run
does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...devices.array import Array
from ...errors import CompileError, OutOfMemory, Unsupported
from ..session import Session
from .arriving import Arriving
from .block_digest import BLOCK_BYTES, Digests
from .checkpoint import TASK
from .device_digest import DeviceDigest
from .header import CheckpointHeader, ScalarValue, stored_body
from .host_copy import HostCopy, Span

_LEAST_DIGESTED = 1 << 22  # bytes of a state; a smaller one is downloaded in less time
# Bytes that come. Fewer are here before a thread has begun, and the two would only take turns in Python.
_LEAST_AHEAD = 1 << 23


def header_of(session: Session, *, finished: bool) -> CheckpointHeader:
    """The header of what the session has committed."""
    program, device = session.program, session.device
    return CheckpointHeader(
        program=program.name,
        program_digest=program.program_digest,
        layout_digest=program.layout_digest,
        coupling=program.coupling,
        items=program.items,
        iteration=session.iteration,
        generation=session.generation,
        phase=session.phase,
        queue_head=session.taken,
        queue_tail=session.taken + session.pending_tasks,
        finished=finished,
        scalars={key: ScalarValue.of(value[()]) for key, value in program.scalars.items()},
        device=device.spec,
        device_name=device.info.name,
        body=stored_body(program.body),
    )


Deliver = Callable[[CheckpointHeader, dict[str, np.ndarray[Any, Any]], Arriving], None]


class Snapshots:
    """Takes snapshots of a session, one at a time: the arrays of one hold until the next is taken."""

    def __init__(self, session: Session, key: bytes, *, digests_on_device: bool | None = None) -> None:
        self._session = session
        self._copy = HostCopy(session.device, session.lanes)
        self._digests: dict[str, Digests] = {}  # of what the copy holds
        sizes = {name: nbytes for name, (_, nbytes) in self._origins().items()}
        if digests_on_device is None:
            digests_on_device = session.device.info.is_gpu and sum(sizes.values()) >= _LEAST_DIGESTED
        self._digester: DeviceDigest | None = None
        if digests_on_device:
            # Without it every checkpoint has all blocks, and they are digested on the host.
            with contextlib.suppress(CompileError, OutOfMemory, Unsupported):
                self._digester = DeviceDigest(session.cache, key)
        self._copy.prepare(sizes)

    def take(self, deliver: Deliver, *, finished: bool = False) -> float:
        """Bring the committed state to the host; returns the seconds that the run waited. Nothing else runs on the device.

        `deliver` gets the header and the arrays, of a large state before their contents have come; the third argument tells when
        they have.
        `MemoryError` where the host has no room for them.
        """
        began = time.perf_counter()
        header = header_of(self._session, finished=finished)
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        wanted: dict[str, tuple[Array, list[Span]]] = {}
        digests: dict[str, Digests] = {}
        for name, (array, nbytes) in self._origins().items():
            shape = (nbytes // array.dtype.itemsize,) if name.startswith(TASK) else array.shape
            arrays[name] = self._copy.memory(name, nbytes).view(array.dtype).reshape(shape)
            if self._digester is None:
                wanted[name] = array, [(0, nbytes)] if nbytes else []
            else:
                digests[name], spans = self._changed(self._digester, name, array, nbytes)
                wanted[name] = array, spans
        arriving = Arriving(None if self._digester is None else digests)
        self._digests = {}  # until the copy is complete, nobody knows what it holds
        ahead = sum(end - begin for _, spans in wanted.values() for begin, end in spans) >= _LEAST_AHEAD
        if ahead:
            deliver(header, arrays, arriving)
        try:
            for name, (array, spans) in wanted.items():
                self._copy.update(name, array, spans, arriving.reach)
            arriving.finish()
        except BaseException as error:
            arriving.fail(error)
            raise
        self._digests = digests
        if not ahead:
            deliver(header, arrays, arriving)
        return time.perf_counter() - began

    def _changed(self, digester: DeviceDigest, name: str, array: Array, nbytes: int) -> tuple[Digests, list[Span]]:
        """The digests of an array's blocks, and the bytes that changed since the last snapshot."""
        # Words are what the device digests: of an array that ends within one, the last block always comes along.
        whole = nbytes if nbytes % 4 == 0 else nbytes // BLOCK_BYTES * BLOCK_BYTES
        digests = digester.digest(array, whole)
        before = self._digests.get(name)
        changed = np.ones(len(digests), bool)
        if before is not None and len(before) == len(digests):
            changed = (before != digests).any(axis=1)
        spans = _spans(changed, whole)
        return digests, [*spans, (whole, nbytes)] if whole < nbytes else spans

    def _origins(self) -> dict[str, tuple[Array, int]]:
        """The committed arrays, and how many bytes of each count."""
        state, waiting = self._session.state, self._session.pending_tasks
        found = {name: (array, array.nbytes) for name, array in state.copy(0).items()}
        tasks = state.queue(0).items()
        return found | {f"{TASK}{name}": (array, waiting * array.dtype.itemsize) for name, array in tasks}

    def close(self) -> None:
        """Free the memory."""
        self._copy.close()
        if self._digester is not None:
            self._digester.close()


def _spans(changed: np.ndarray[Any, Any], nbytes: int) -> list[Span]:
    """The bytes of the blocks that changed; neighbours together."""
    edges = np.flatnonzero(np.diff(changed.astype("i1"), prepend=0, append=0)).reshape(-1, 2).tolist()
    return [(first * BLOCK_BYTES, min(end * BLOCK_BYTES, nbytes)) for first, end in edges]
