"""The thread that keeps the OpenGL context for launches and waits in a row: the same results, and nobody is disturbed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.opengl.libgl import library
from kernelkeep.testing import open_or_skip

pytestmark = pytest.mark.opengl

ADD = kk.PortableKernel(
    "add", params=[kk.Buffer("y", "i4", "rw"), kk.Scalar("a", "i4")], body="y[kk_global_id(0)] += a;", group=64
)


class TestKeptContext:
    @pytest.fixture
    def kept(self) -> Iterator[Any]:
        """A device whose context a thread keeps, also where that is not the usual way."""
        pytest.importorskip(
            "kernelkeep._caller", reason="kernelkeep._caller was not built: no thread keeps the context"
        )
        with open_or_skip("opengl") as device:
            assert hasattr(device, "context")
            device.context.keep_in_thread()
            yield device

    @pytest.fixture
    def add(self, kept: Any) -> kk.Kernel:
        kernel: kk.Kernel = kept.build(ADD.source(kept)).kernel()
        return kernel

    def test_launches_and_waits_in_a_row(self, kept: Any, add: kk.Kernel) -> None:
        y = kept.array(np.zeros(64, "i4"))
        for number in range(200):
            add.launch(1, (y, number % 3))
            kept.synchronize()
        for _ in range(1000):
            add.launch(1, (y, 1))
        assert (y.numpy() == sum(number % 3 for number in range(200)) + 1000).all()

    def test_threads_launch_wait_and_copy(self, kept: Any, add: kk.Kernel) -> None:
        def work(seed: int) -> None:
            y = kept.array(np.zeros(64, "i4"))
            expected = 0
            for number in range(60):
                for _ in range(seed):
                    add.launch(1, (y, number))
                    expected += number
                kept.synchronize()
                if number % (seed + 3) == 0:
                    assert (y.numpy() == expected).all()
                    y.copy_from(np.full(64, seed, "i4"))
                    expected = seed
                if number % 7 == seed:
                    with kept.exclusive():
                        add.launch(1, (y, 1))
                        kept.synchronize()
                    expected += 1
            assert (y.numpy() == expected).all()

        with ThreadPoolExecutor(5) as pool:
            list(pool.map(work, range(1, 6)))

    def test_a_guests_context_stays_current(self, kept: Any, add: kk.Kernel) -> None:
        y = kept.array(np.zeros(64, "i4"))
        egl = library()
        with kk.open_device("opengl") as guest:
            assert hasattr(guest, "context")
            with guest.context.current():
                before = egl.eglGetCurrentContext()
                assert before
                for _ in range(20):
                    add.launch(1, (y, 1))
                    kept.synchronize()
                    assert egl.eglGetCurrentContext() == before
                assert (y.numpy() == 20).all()
                assert egl.eglGetCurrentContext() == before
        assert not egl.eglGetCurrentContext()

    def test_blocks_may_be_nested(self, kept: Any, add: kk.Kernel) -> None:
        y = kept.array(np.zeros(64, "i4"))
        egl = library()

        def work() -> None:
            for _ in range(5):
                add.launch(1, (y, 1))
                kept.synchronize()

        with kept.exclusive():
            work()
            assert not egl.eglGetCurrentContext(), "the thread that keeps it still does"
            assert (y.numpy() == 5).all()
            assert not egl.eglGetCurrentContext(), "it copies, too"
            assert kept.fence().wait(10)
            assert egl.eglGetCurrentContext(), "a fence takes it for the rest of the block"
            with kept.exclusive():
                work()
            assert egl.eglGetCurrentContext()
        assert not egl.eglGetCurrentContext()
        with kept.context.current():
            with kept.exclusive():
                work()
            assert egl.eglGetCurrentContext(), "the outer block has it"
            work()
        assert not egl.eglGetCurrentContext()
        assert (y.numpy() == 20).all()

    def test_an_error_is_raised_by_the_wait(self, kept: Any, add: kk.Kernel) -> None:
        y = kept.array(np.zeros(64, "i4"))
        for _ in range(5):
            add.launch(1, (y, 1))
            kept.synchronize()
        with kept.context.lock:
            kept.context.recorder.glUseProgram(999_999)
            kept.context.make(kept.context.recorder, wait=False)
        with pytest.raises(kk.DeviceError, match="INVALID_VALUE"):
            kept.synchronize()
        kept.synchronize()

    def test_a_device_may_be_closed_while_launches_are_under_way(self) -> None:
        for _ in range(10):
            with open_or_skip("opengl") as device:
                assert hasattr(device, "context")
                device.context.keep_in_thread()
                kernel = device.build(ADD.source(device)).kernel()
                y = device.array(np.zeros(64, "i4"))
                for _ in range(10):
                    kernel.launch(1, (y, 1))
        assert threading.active_count() < 50

    @pytest.mark.parametrize("looks_at_the_end", [False, True])
    def test_a_process_may_end_or_fork_without_closing(self, looks_at_the_end: bool) -> None:
        open_or_skip("opengl").close()
        program = f"""
import os, sys
import numpy as np
import kernelkeep as kk
device = kk.open_device("opengl")
device.context.keep_in_thread()
one = kk.PortableKernel("one", [kk.Buffer("y", "i4", "rw")], "y[kk_global_id(0)] += 1;", group=64)
kernel = device.build(one.source(device)).kernel()
y = device.array(np.zeros(64, "i4"))
for _ in range(10):
    kernel.launch(1, (y,))
    device.synchronize()
pid = os.fork()
if not pid:
    try:
        kernel.launch(1, (y,))
        device.synchronize()
    except kk.DeviceError:
        sys.exit(7)
    sys.exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
kernel.launch(1, (y,))
device.synchronize()
{"assert (y.numpy() == 11).all()" if looks_at_the_end else ""}
"""
        done = subprocess.run(
            [sys.executable, "-c", program], env=dict(os.environ), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
