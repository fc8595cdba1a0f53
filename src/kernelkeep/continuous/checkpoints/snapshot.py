"""Downloading the committed state while the next slices run.

It is copied on the device first, which takes a moment, and downloaded from that copy in the background, which takes longer:
meanwhile the run goes on, and may overwrite the original.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...devices.array import Array
from ...devices.lanes import Block, Mark
from ..session import Session
from .checkpoint import TASK
from .header import CheckpointHeader, ScalarValue, stored_body


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


class Snapshots:
    """One snapshot at a time: `take`, then `poll` until it has arrived."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._copies: dict[str, Array] = {}
        self._idle: dict[str, list[Block]] = {}
        self._under_way: tuple[CheckpointHeader, dict[str, tuple[Block, Any, int]], Mark, list[Any]] | None = None

    @property
    def busy(self) -> bool:
        """Whether one is being downloaded."""
        return self._under_way is not None

    def take(self, *, finished: bool = False) -> None:
        """Begin a snapshot of the committed state. Nothing else runs on the device."""
        assert self._under_way is None
        session, lanes = self._session, self._session.lanes
        header = header_of(session, finished=finished)
        held: list[Any] = []
        origins = self._origins()
        for name, (array, count) in origins.items():
            if count:
                copy = self._copy_of(name, array)
                held.append(lanes.compute.copy(copy.handle, array.handle, array.nbytes))
        mark = lanes.compute.mark()
        lanes.compute.flush()
        if not lanes.single:
            lanes.download.wait_for(mark)
        arriving: dict[str, tuple[Block, Any, int]] = {}
        for name, (array, count) in origins.items():
            block = self._block_of(name, array.nbytes)
            if count:
                held.append(lanes.download.download(self._copies[name].handle, block))
            arriving[name] = (block, array, count)
        arrived = lanes.download.mark()
        lanes.download.flush()
        self._under_way = header, arriving, arrived, [mark, *held]

    def poll(
        self, deliver: Callable[[CheckpointHeader, dict[str, np.ndarray[Any, Any]], Callable[[object], None]], None]
    ) -> bool:
        """Deliver the snapshot if it has arrived; the receiver calls the third argument when it no longer needs the arrays."""
        if self._under_way is None or not self._under_way[2].done:
            return False
        header, arriving, _, _ = self._under_way
        self._under_way = None
        arrays = {}
        for name, (block, array, count) in arriving.items():
            whole = block.host[: array.nbytes].view(array.dtype).reshape(array.shape)
            arrays[name] = whole[:count] if name.startswith(TASK) else whole

        def give_back(_: object) -> None:
            for name, (block, _, _) in arriving.items():
                self._idle.setdefault(name, []).append(block)

        deliver(header, arrays, give_back)
        return True

    def finish(self) -> None:
        """Wait until the one under way has arrived."""
        if self._under_way is not None:
            self._under_way[2].wait()

    def _origins(self) -> dict[str, tuple[Array, int]]:
        state, session = self._session.state, self._session
        found = {name: (array, 1) for name, array in state.copy(0).items()}
        found |= {f"{TASK}{name}": (array, session.pending_tasks) for name, array in state.queue(0).items()}
        return found

    def _copy_of(self, name: str, array: Array) -> Array:
        copy = self._copies.get(name)
        if copy is None or copy.nbytes != array.nbytes:
            copy = self._copies[name] = self._session.device.empty(array.shape, array.dtype)
        return copy

    def _block_of(self, name: str, nbytes: int) -> Block:
        idle = self._idle.get(name, [])
        while idle:
            block = idle.pop()
            if block.nbytes == nbytes:
                return block
        return self._session.lanes.block(nbytes)

    def close(self) -> None:
        """Free the copies."""
        for copy in self._copies.values():
            copy.close()
        self._copies.clear()
