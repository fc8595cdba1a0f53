"""The workers of a Ray cluster. Ray starts them and notices their death; what was lost is counted and done again by the engine.

Machines may come and go while the fleet works. Nothing is sent to Ray's makers: its usage statistics are off.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import RemoteError, Unsupported
from ..installation import install_command
from .parts import Part, PartFailed, PartLost, Slot, one_sentence, perform, whereabouts
from .workers import Ended, Told, Workers

_LOOK_SECONDS = 1.0  # between two looks at which machines there are
_ASK_SECONDS = 2.0
_REACH_SECONDS = 10.0
_STOP_SECONDS = 30.0
_AHEAD = 2  # parts of the same kind that wait at the cluster for each that runs there


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError:
        raise Unsupported("fleet", f"a cluster needs Ray: {install_command('fleet')}") from None
    return ray


def connected() -> bool:
    """Whether this process is connected to a cluster already. Does not import Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _check_reachable(address: str) -> None:
    """`RemoteError` where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return  # "auto", or a name that Ray resolves
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except OSError as error:
        raise RemoteError(f"the Ray cluster {address} cannot be reached: {error.strerror or error}") from None


class _Board:
    """Lives on the cluster: workers leave notes here, and the driver takes them."""

    def __init__(self) -> None:
        self._notes: list[tuple[int, str, str]] = []

    def post(self, token: int, where: str, note: str) -> None:
        self._notes.append((token, where, note))

    def take(self) -> list[tuple[int, str, str]]:
        notes, self._notes = self._notes, []
        return notes


def _perform(call: Callable[..., Any], payload: Any, slot: Slot, token: int, board: Any) -> Any:
    def tell(note: str) -> None:
        board.post.remote(token, whereabouts(), note)

    tell("")
    return perform(call, payload, slot, tell)


class RayWorkers(Workers):
    """Parts as tasks of a cluster."""

    def __init__(self, address: str, *, each_device: bool = False, device: str | None = None) -> None:
        self._ray = ray = _ray()
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            _check_reachable(address)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
                # It would print the death of each worker to standard output, where results go; the engine counts them.
                if "ray._private.worker" in sys.modules:
                    vars(sys.modules["ray._private.worker"])["_worker_logs_enabled"] = False
            except Exception as error:
                raise RemoteError(f"the Ray cluster {address} cannot be reached: {one_sentence(error)}") from None
        self._each_device = each_device
        self._slot = Slot(device)
        self._task = ray.remote(_perform)
        self._board = ray.remote(_Board).options(num_cpus=0, max_restarts=-1, max_task_retries=0).remote()
        self._running: dict[Any, int] = {}
        self._nodes: dict[int, str] = {}
        self._tokens = 0
        self._looked = 0.0
        self._resources: dict[str, float] = {}
        self._alive: list[str] = []
        self._sizes: list[dict[str, float]] = []  # of each machine
        self._refused: list[Ended] = []
        self._look()

    @property
    def description(self) -> str:
        """How large the cluster is."""
        self._look()
        gpus = int(self._resources.get("GPU", 0))
        count = len(self._alive)
        machines = f"{count} machine{'' if count == 1 else 's'}"
        return f"a Ray cluster of {machines} with {int(self._resources.get('CPU', 0))} CPUs and {gpus} GPUs"

    def _look(self) -> None:
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        self._alive = [node["NodeID"] for node in nodes]
        self._sizes = [node["Resources"] for node in nodes]
        self._resources = {}
        for node in nodes:
            for name, amount in node["Resources"].items():
                self._resources[name] = self._resources.get(name, 0) + amount

    # --- parts

    def start(self, part: Part) -> int | None:
        """Send it to the cluster, unless enough wait there already."""
        self._look()
        if not any(node.get("CPU", 0) >= part.num_cpus and node.get("GPU", 0) >= part.num_gpus for node in self._sizes):
            self._tokens += 1
            wanted = f"{part.num_cpus:g} CPUs and {part.num_gpus:g} GPUs"
            self._refused.append(Ended(self._tokens, PartFailed(f"no machine of the cluster has {wanted}")))
            return self._tokens
        options = self._placed(part)
        if options is None:
            return None
        self._tokens += 1
        node = options.pop("node", "")
        task = self._task.options(max_retries=0, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reference = task.remote(part.call, part.payload, self._slot, self._tokens, self._board)
        self._running[reference] = self._tokens
        self._nodes[self._tokens] = node
        return self._tokens

    def _placed(self, part: Part) -> dict[str, Any] | None:
        """What the cluster reserves for a part; None where there is no room."""
        if not self._each_device:
            cpus = self._resources.get("CPU", 1) / max(part.num_cpus, 0.1)
            if len(self._running) >= max(1.0, cpus) * _AHEAD:
                return None
            return {"num_cpus": part.num_cpus, "num_gpus": part.num_gpus}
        if gpus := int(self._resources.get("GPU", 0)):
            return {"num_cpus": part.num_cpus, "num_gpus": 1} if len(self._running) < gpus else None
        # Two measurements at once on the same processors would disturb each other.
        taken = set(self._nodes.values())
        for node in self._alive:
            if node not in taken:
                from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

                place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
                return {"num_cpus": part.num_cpus, "scheduling_strategy": place, "node": node}
        return None

    def wait(self, seconds: float) -> Sequence[Told | Ended]:
        """Take notes, and the results of what has ended."""
        refused, self._refused = self._refused, []
        if refused or not self._running:
            return refused
        ready, _ = self._ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        found: list[Told | Ended] = [Told(*note) for note in self._notes()]
        for reference in ready:
            token = self._running.pop(reference)
            self._nodes.pop(token, None)
            found.append(Ended(token, self._outcome(reference)))
        return found

    def _notes(self) -> list[tuple[int, str, str]]:
        with contextlib.suppress(Exception):  # its machine may be gone; the work goes on without notes
            notes: list[tuple[int, str, str]] = self._ray.get(self._board.take.remote(), timeout=_ASK_SECONDS)
            return notes
        return []

    def _outcome(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            # What the part itself raises comes back as a value: this is the death of a worker or of a machine.
            return PartLost(_first_sentence(error))

    def interrupt(self) -> None:
        """KeyboardInterrupt in each task, and time to end."""
        for reference in self._running:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=False, recursive=False)
        deadline = time.monotonic() + _STOP_SECONDS
        while self._running and time.monotonic() < deadline:
            self.wait(0.2)

    def close(self) -> None:
        """Cancel what is left, and disconnect where this object connected."""
        for reference in self._running:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=True, recursive=True)
        self._running.clear()
        with contextlib.suppress(Exception):
            self._ray.kill(self._board)
        if self._connected_here:
            self._ray.shutdown()


def _first_sentence(error: BaseException) -> str:
    words = {
        "NodeDiedError": "its machine is gone",
        "WorkerCrashedError": "its process died",
        "OutOfMemoryError": "its machine ran out of memory, and Ray killed it",
        "TaskUnschedulableError": "its machine is gone",
        "TaskCancelledError": "it was cancelled",
    }
    name = type(error).__name__
    return words.get(name, f"{name}: {' '.join(str(error).split())[:200]}")
