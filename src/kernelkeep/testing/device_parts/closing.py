"""Some threads close what others use: at worst that raises `DeviceError`.

In a process of its own, which a driver that is given freed memory would end.
"""

from __future__ import annotations

from pathlib import Path

from ...devices.base import Device
from ..process import run_python
from .common import DevicePart

__all__ = ["ClosingTests"]

_SCRIPT = """
import faulthandler, itertools, sys, threading
import numpy as np
import kernelkeep as kk

faulthandler.enable()
faulthandler.dump_traceback_later(80, exit=True)
sys.setswitchinterval(1e-6)  # so that threads meet inside a launch
device = kk.open_device(sys.argv[1])
GROUPS = 2 if device.info.is_interpreter else 16  # an interpreter needs no more for a launch to take a while
N = 64 * GROUPS
KERNEL = kk.PortableKernel(
    "closing", params=[kk.Buffer("x", "i4", "r"), kk.Buffer("y", "i4", "w"), kk.Scalar("a", "i4")],
    body="int i = kk_global_id(0); y[i] = x[i] + a;", group=64)
source = KERNEL.source(device)
binary = device.compile(source)
queue = device.queue() if device.capabilities.queues else None


class Shared:
    # `now` is what the threads use; one of them replaces it in a single step.
    def __init__(self, device):
        self.renew(device.load(binary))

    def renew(self, program):
        arrays = program.device.array(np.full(N, 7, "i4")), program.device.array(np.zeros(N, "i4"))
        self.program, self.now = program, (program.kernel(), *arrays)


def launch(it):
    kernel, x, y = it.now
    kernel.launch(GROUPS, (x, y, 1))

def launch_on_queue(it):
    kernel, x, y = it.now
    kernel.launch(GROUPS, (x, y, 1), queue=queue)

def call_prepared(it):
    kernel, x, y = it.now
    prepared = kernel.prepare(GROUPS, (x, y, 1))
    for _ in range(4):
        prepared()

def replay(it):
    kernel, x, y = it.now
    graph = kk.Graph(kernel.device)
    prepared = kernel.prepare(GROUPS, (x, y, 1))
    for _ in range(4):
        graph.add(prepared)
    graph.copy(y, x)
    for _ in range(3):
        graph.launch()

def copy(it):
    _, x, y = it.now
    y.copy_from(x)
    assert (x.numpy() == 7).all()

uses = [launch, call_prepared, replay, copy] + ([launch_on_queue] if queue is not None else [])


def while_closing(it, close, rounds):
    stop, problems, done = threading.Event(), [], itertools.count()

    def use_it(use):
        while not stop.is_set():
            try:
                use(it)
                if next(done) % 16 == 0:  # or the queue of a driver that is slower than the host would grow
                    it.program.device.synchronize()
            except kk.DeviceError:
                pass
            except BaseException as error:
                problems.append(error)
                return

    threads = [threading.Thread(target=use_it, args=(use,)) for use in uses]
    for thread in threads:
        thread.start()
    try:
        for _ in range(rounds):
            close(it)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not problems, problems
    assert next(done), "nothing was ever used"


def together(close):
    # Two threads close at once: one of them does it.
    other = threading.Thread(target=close)
    other.start()
    close()
    other.join()

def close_arrays(it):
    _, *old = it.now
    it.renew(it.program)
    for array in old:
        together(array.close)

def close_program(it):
    old = it.program
    it.renew(old.device.load(binary))
    together(old.close)

def close_device(it):
    old = it.program.device
    it.renew(kk.open_device(sys.argv[1]).load(binary))
    together(old.close)
    assert old.closed

# Memory that nothing was ever launched on: a launch must not hit it through what was freed.
untouched = [device.array(np.full(N, -5, "i4")) for _ in range(8)]
it = Shared(device)
while_closing(it, close_arrays, 80)
while_closing(it, close_program, 30)
assert not any((array.numpy() != -5).any() for array in untouched)
uses = [launch, call_prepared, replay, copy]
while_closing(it, close_device, 4)

# Whatever was closed, what is open works.
with kk.open_device(sys.argv[1]) as last:
    fresh = Shared(last)
    launch(fresh)
    assert (fresh.now[2].numpy() == 8).all()
"""


class ClosingTests(DevicePart):
    """Arrays, programs and devices are closed under the hands of other threads."""

    def test_closing_what_other_threads_use_is_safe(self, device: Device, tmp_path: Path) -> None:
        run_python(_SCRIPT, device.spec, environment={"KERNELKEEP_CACHE_DIR": str(tmp_path)}, timeout_seconds=100)
