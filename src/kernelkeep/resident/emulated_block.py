"""A block of an emulated grid: a thread that follows the protocol of the ring, and works together with the other blocks.

Wide tasks and graphs keep the rules of `programs/languages/cuda_resident.cu`: whoever waits for another block answers its calls
meanwhile, and all blocks stay until none can call another.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..devices.array import Array
from ..devices.base import Device
from ..devices.synchronization import Queue
from .emulated_graph import EmulatedGraph
from .emulated_program import EmulatedProgram
from .protocol import EXIT, RingView, result_words
from .task import GRAPH, WIDE

_SPIN_SECONDS = 200e-6  # how long an idle block looks without sleeping
_LEAST_SLEEP, _MOST_SLEEP = 50e-6, 2e-3
_PATIENCE = 0.1  # seconds between two looks at what another block should have told
TRACED_WIDE, TRACED_IN_GRAPH, TRACED_PART = 1, 2, 4


class _Call:
    """A wide task that waits for all blocks, or runs."""

    def __init__(self, task: int) -> None:
        self.task = task
        self.arrived = 0
        self.over = False


class _Run:
    """A graph that runs."""

    def __init__(self, graph: EmulatedGraph) -> None:
        self.graph, self.nodes = graph, graph.nodes
        nodes = graph.nodes
        self.ready = deque(number for number, node in enumerate(nodes) if not node.wanted)
        self.arrived = [0] * len(nodes)
        self.left = len(nodes)
        self.inside = 0  # blocks that joined and have not left

    @property
    def over(self) -> bool:
        return not self.left


class BlockEnds(Exception):
    """Another block has failed."""


class Shared:
    """What the blocks of one start share. All of it changes under `changed`."""

    def __init__(
        self,
        device: Device,
        view: RingView,
        program: EmulatedProgram,
        arrays: Sequence[Array],
        graphs: Mapping[int, Any],
    ) -> None:
        self.device = device
        self.view, self.program, self.arrays, self.graphs = view, program, arrays, graphs
        self.changed = threading.Condition()
        self.failure: BaseException | None = None
        self.leaving = 0
        self.calls = 0  # ever
        self.call: _Call | None = None  # held by the block that calls the others
        self.run: _Run | None = None

    def wake(self) -> None:
        """Have all blocks look."""
        with self.changed:
            self.changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """End all blocks."""
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()


class EmulatedBlock(threading.Thread):
    """A block's thread."""

    def __init__(self, shared: Shared, number: int, queue: Queue | None, traces: np.ndarray[Any, Any]) -> None:
        super().__init__(name=f"kernelkeep-block-{number}", daemon=True)
        self.ended = threading.Event()  # `join` that is interrupted takes a thread that runs for one that has ended
        self._shared, self._number, self._queue = shared, number, queue
        self._results: dict[str, Array] = {}
        self._seen_calls = 0
        self._running = 0  # the sequence number of the task that runs, plus 1
        self._since = 0
        self._traces = traces.view(np.uint64) if traces.nbytes else None

    def run(self) -> None:
        try:
            self._work()
        except BlockEnds:
            pass
        except BaseException as error:
            self._shared.fail(error)
        finally:
            for array in self._results.values():
                array.close()
            self.ended.set()

    def beat(self) -> bool:
        """Tell the host that the block lives, and what it runs; whether it does."""
        if self.ended.is_set():
            return False
        view, number = self._shared.view, self._number
        running = self._running
        view.running[number], view.since[number] = running, self._since
        view.beat[number] = time.perf_counter_ns()
        return True

    # --- the lane

    def _work(self) -> None:
        shared, number = self._shared, self._number
        view, changed = shared.view, shared.changed
        capacity = view.layout.capacity
        heads, dones, slots, command = view.head, view.done, view.slots, view.command
        done = int(dones[number])
        leaving = False
        pause, idle_since = _LEAST_SLEEP, time.monotonic()
        while True:
            self._look()
            leave = int(command[number]) == EXIT
            if shared.calls != self._seen_calls:
                self._answer()
            elif not leave and int(heads[number]) != done:
                self._run_record(bytes(slots[number, done % capacity]), done)
                done += 1
                dones[number] = done
                self._running = 0
            elif leave:
                # All blocks stay until none can call another.
                with changed:
                    if not leaving:
                        leaving = True
                        shared.leaving += 1
                        changed.notify_all()
                    if shared.leaving == view.layout.lanes and shared.calls == self._seen_calls:
                        return
                    if shared.calls == self._seen_calls:
                        changed.wait(_PATIENCE)
            elif self._join():
                pass
            elif time.monotonic() - idle_since < _SPIN_SECONDS:
                time.sleep(0)
                continue
            else:
                with changed:
                    if shared.calls == self._seen_calls:
                        changed.wait(pause)
                pause = min(2 * pause, _MOST_SLEEP)
                continue
            pause, idle_since = _LEAST_SLEEP, time.monotonic()

    def _look(self) -> None:
        if self._shared.failure is not None:
            raise BlockEnds

    def _run_record(self, record: bytes, sequence: int) -> None:
        view = self._shared.view
        (task,) = struct.unpack_from("<I", record)
        self._since = time.perf_counter_ns()
        self._running = sequence + 1
        if task == GRAPH:
            (address,) = struct.unpack_from("<Q", record, 8)
            self._run_graph(self._shared.graphs[address])
        else:
            value = self._call_all(record) if task & WIDE else self._run_task(record, 1)
            code = self._task(record).task.result_code
            if code:
                at = sequence % view.layout.capacity
                view.results[self._number, at] = result_words(sequence, code, value)
        self._trace(self._since, task, TRACED_WIDE if task & WIDE and task != GRAPH else 0, sequence + 1)

    def _task(self, record: bytes) -> Any:
        (task,) = struct.unpack_from("<I", record)
        return self._shared.program.tasks[task & ~WIDE]

    def _run_task(self, record: bytes, groups: int) -> Any:
        found, shared = self._task(record), self._shared
        dtype = found.task.result
        result = None
        if dtype:
            result = self._results.get(dtype)
            if result is None:
                result = self._results[dtype] = shared.device.empty(1, dtype)
        return found.run(record, groups, shared.program.threads, shared.arrays, self._queue, result)

    # --- wide tasks

    def _answer(self) -> None:
        """Take part in another block's wide task: stand still until it is over."""
        shared = self._shared
        with shared.changed:
            self._seen_calls = shared.calls
            call = shared.call
            if call is None:
                return
            begun = time.perf_counter_ns()
            call.arrived += 1
            shared.changed.notify_all()
            while not call.over:
                self._look()
                shared.changed.wait(_PATIENCE)
        self._trace(begun, call.task, TRACED_WIDE | TRACED_PART, 0)

    def _wait_answering(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready`, which is called under `changed`, and answer calls meanwhile."""
        shared = self._shared
        while True:
            with shared.changed:
                while (shared.calls == self._seen_calls) and not (is_ready := ready()):
                    self._look()
                    shared.changed.wait(_PATIENCE)
                if shared.calls == self._seen_calls and is_ready:
                    return
            self._answer()

    def _call_all(self, record: bytes) -> Any:
        """Run a task with all blocks."""
        shared = self._shared
        blocks = shared.view.layout.lanes
        (task,) = struct.unpack_from("<I", record)
        call = _Call(task)

        def take() -> bool:
            if shared.call is None:
                shared.call = call
                shared.calls += 1
                self._seen_calls = shared.calls
                shared.changed.notify_all()
                return True
            return False

        self._wait_answering(take)
        with shared.changed:
            while call.arrived < blocks - 1:
                self._look()
                shared.changed.wait(_PATIENCE)
        value = self._run_task(record, blocks)
        with shared.changed:
            call.over = True
            shared.call = None
            shared.changed.notify_all()
        return value

    # --- graphs

    def _run_graph(self, graph: EmulatedGraph) -> None:
        """Run a whole graph, with those blocks that join."""
        shared = self._shared
        run = _Run(graph)

        def take() -> bool:
            if shared.run is None:
                shared.run = run
                shared.changed.notify_all()
                return True
            return False

        self._wait_answering(take)
        self._work_on(run)
        self._wait_answering(lambda: not run.inside)
        with shared.changed:
            shared.run = None
            shared.changed.notify_all()

    def _join(self) -> bool:
        """Join the graph that another block runs; whether there was one."""
        shared = self._shared
        with shared.changed:
            run = shared.run
            if run is None or run.over:
                return False
            run.inside += 1
        try:
            self._work_on(run)
        finally:
            with shared.changed:
                run.inside -= 1
                shared.changed.notify_all()
        return True

    def _work_on(self, run: _Run) -> None:
        changed = self._shared.changed
        while True:
            self._wait_answering(lambda: bool(run.ready) or run.over)
            with changed:
                if run.over:
                    return
                if not run.ready:
                    continue
                number = run.ready.popleft()
            node = run.nodes[number]
            begun = time.perf_counter_ns()
            (task,) = struct.unpack_from("<I", node.record)
            view = self._shared.view
            view.node_since[self._number] = begun
            view.node[self._number] = run.graph.number << 32 | number + 1
            value = self._call_all(node.record) if task & WIDE else self._run_task(node.record, 1)
            view.node[self._number] = 0
            if code := self._task(node.record).task.result_code:
                run.graph.set_result(number, code, value)
            self._trace(begun, task, TRACED_IN_GRAPH | (TRACED_WIDE if task & WIDE else 0), number)
            with changed:
                for one in node.successors:
                    run.arrived[one] += 1
                    if run.arrived[one] == run.nodes[one].wanted:
                        run.ready.append(one)
                run.left -= 1
                changed.notify_all()

    # --- the timeline

    def _trace(self, begun: int, task: int, what: int, number: int) -> None:
        words = self._traces
        if words is None:
            return
        traced = int(words[0])
        at = 16 + 4 * (traced % ((len(words) - 16) // 4))
        words[at : at + 4] = (begun, time.perf_counter_ns(), what << 32 | task, number)
        words[0] = traced + 1
