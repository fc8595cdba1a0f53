"""Forked children use devices of their own, or get an error that says they cannot use the parent's.

The forks happen in a process made for them: pytest's own must not fork under a driver's threads.
"""

from __future__ import annotations

from pathlib import Path

from ...devices.base import Device
from ..process import run_python
from .common import DevicePart

__all__ = ["ForkTests"]

_COMMON = """
import faulthandler, gc, os, sys, threading, time
import numpy as np
import kernelkeep as kk

spec, folder = sys.argv[1:3]
KERNEL = kk.PortableKernel("forked", params=[kk.Buffer("y", "f4")], body="y[kk_global_id(0)] += 3.0f;", group=64)

def in_child(work):
    # The exit status of a child that does `work` and ends as Python programs do.
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(30, exit=True)  # where it hangs
        sys.exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

_BEFORE = (
    _COMMON
    + """
def use():
    with kk.open_device(spec, cache_dir=folder) as device, kk.ProgramCache(device, folder) as cache:
        y = device.array(np.zeros(64, "f4"))
        with cache.get(KERNEL) as lease:
            lease.kernel().launch(1, (y,))
        return 5 if (y.numpy() == 3).all() else 1

assert in_child(use) == 5
assert in_child(use) == 5
assert use() == 5, "the parent after its children"
"""
)

_AFTER = (
    _COMMON
    + """
kk.list_devices(cache_dir=folder)  # loads every driver: a child may use one that was not loaded
groups = int(sys.argv[3])  # so many that a launch takes a while
device = kk.open_device(spec, cache_dir=folder)
cache = kk.ProgramCache(device, folder)
source = KERNEL.source(device)
lease = cache.get(source)
binary = device.compile(source)
kernel = lease.kernel()
y, mine = device.array(np.zeros(64 * groups, "f4")), device.array(np.zeros(64 * groups, "f4"))
kernel.launch(groups, (y,))
prepared = kernel.prepare(groups, (y,))
graph = kk.Graph(device)
for _ in range(4):
    graph.add(prepared)
copies = kk.Graph(device).copy(mine, y)
graph.launch(); copies.launch()
fence, timer = device.fence(), device.timer()
queue = device.queue() if device.capabilities.queues else None
executor = kk.Executor(device)
job = kk.Job(cache, KERNEL, grid=1, outputs={"y": (64, "f4")})
executor.submit(job).result(60)

uses = [
    lambda: kernel.launch(groups, (y,)), lambda: lease.kernel().launch(1, (y,)), prepared, lambda: prepared.update(0, mine),
    lambda: kernel.prepare(1, (y,)), graph.launch, copies.launch, lambda: kk.Graph(device), y.numpy,
    lambda: y.copy_from(mine), lambda: device.array([1.0]), lambda: device.empty(4), device.synchronize, device.fence,
    device.timer, device.queue, fence.wait, lambda: fence.wait(0.1), lambda: timer.__enter__(), device.memory_info,
    lambda: device.compile(source), lambda: device.load(binary), lambda: cache.get(source), lambda: cache.get(KERNEL),
    cache.stats, cache.persist, lambda: cache.preload([source]), lambda: kk.ProgramCache(device, folder),
    lambda: executor.submit(job), lambda: kk.Executor(device),
    lambda: kk.open_device(spec), lambda: kk.open_device(device.backend), kk.open_device, kk.list_devices,
]
if queue is not None:
    uses += [queue.fence, queue.synchronize, lambda: kernel.launch(1, (y,), queue=queue)]

def refused():
    wrong = 0
    for number, use in enumerate(uses):
        try:
            use()
        except kk.DeviceError as error:
            if "get_context('spawn')" in str(error):
                continue
            print(number, repr(error), file=sys.stderr)
        else:
            print(number, "did not raise", file=sys.stderr)
        wrong += 1
    return wrong

def collect():
    # The parent's objects are collected before the child ends, in any order.
    global device, cache, lease, kernel, y, mine, prepared, graph, copies, fence, timer, queue, executor, job, uses
    executor.close(); graph.close(); lease.release(); cache.close(); y.close(); device.close()
    del device, cache, lease, kernel, y, mine, prepared, graph, copies, fence, timer, queue, executor, job, uses
    gc.collect()
    return 6

assert in_child(refused) == 0
assert in_child(collect) == 6
assert in_child(lambda: 7) == 7

def through_multiprocessing():
    import multiprocessing
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(refused)

assert through_multiprocessing() == 0

# Whatever the parent's threads are doing at that moment.
stop = threading.Event()

def busy():
    other = device.array(np.zeros(64 * groups, "f4"))
    while not stop.is_set():
        kernel.launch(groups, (other,))
        prepared(); graph.launch()
        device.array(np.ones(1000, "f4"))
        cache.get(source).release()
        executor.submit(job).result(60)
        other.numpy()

threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads:
    thread.start()
try:
    for turn in range(4):
        time.sleep(0.003 * turn)
        assert in_child(refused if turn % 2 else collect) == (0 if turn % 2 else 6), turn
finally:
    stop.set()
    for thread in threads:
        thread.join()

# The parent is as it was.
before = y.numpy()
kernel.launch(groups, (y,)); graph.launch()
assert (y.numpy() == before + 15).all()
counted = cache.stats()
assert counted.compiles == 1
executor.close(); cache.close(); device.close()
"""
)


class ForkTests(DevicePart):
    """What a forked child can do with devices: everything before its parent loaded a driver, nothing afterwards."""

    def test_a_child_forked_before_the_driver_was_loaded_works(self, device: Device, tmp_path: Path) -> None:
        run_python(_BEFORE, device.spec, tmp_path, timeout_seconds=100)

    def test_a_child_forked_after_the_driver_was_loaded_gets_a_clear_error(
        self, device: Device, tmp_path: Path
    ) -> None:
        groups = 16 if self.is_interpreter(device) else 1 << 10
        run_python(_AFTER, device.spec, tmp_path, groups, timeout_seconds=100)
