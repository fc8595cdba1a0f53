"""Intel's OpenCL driver for CPUs from PyPI (`pip install 'kernelkeep[intel]'`): a part of the suite, to keep it short.

In an environment without PoCL Intel's driver is "opencl", and `pytest -m opencl` then runs all suites on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices import opencl
from kernelkeep.devices.base import Device
from kernelkeep.testing import note_skipped, run_python
from kernelkeep.testing.device_parts.atomics import AtomicTests
from kernelkeep.testing.device_parts.launches import LaunchTests

pytestmark = pytest.mark.opencl


@pytest.fixture(scope="module")
def intel() -> Iterator[Device]:
    """Intel's driver, whatever number it has."""
    try:
        found = [info for info in opencl.list_devices() if "intel" in info.driver.lower() and not info.is_gpu]
        reason = "Intel's OpenCL driver for CPUs is not installed: pip install 'kernelkeep[intel]'"
    except kk.DeviceError as error:
        found, reason = [], str(error)
    if not found:
        note_skipped("intel", reason)
        pytest.skip(reason)
    with kk.open_device(found[0].spec) as opened:
        yield opened


class TestIntel(LaunchTests, AtomicTests):
    backend = "opencl"

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls, intel: Device) -> Device:
        """The device under test."""
        return intel


FROM_DISK = """
import sys
import numpy as np
import kernelkeep as kk
twice = kk.PortableKernel("twice", params=[kk.Buffer("y", "f4", "rw")], body="y[kk_global_id(0)] *= 2.0f;", group=64)
with kk.open_device(sys.argv[1]) as device, kk.ProgramCache(device, sys.argv[2]) as cache, cache.get(twice) as lease:
    y = device.array(np.arange(128, dtype="f4"))
    lease.kernel().launch(2, (y,))
    print(lease.origin, (y.numpy() == 2 * np.arange(128)).all())
"""


def test_a_program_of_another_process_comes_from_disk(intel: Device, tmp_path: Path) -> None:
    said = [run_python(FROM_DISK, intel.spec, tmp_path).stdout.split() for _ in range(2)]
    assert said == [["compiled", "True"], ["disk", "True"]]


def test_a_graph_replays_without_a_leak(intel: Device) -> None:
    """Intel's command buffers keep memory for each replay, so they are not used."""
    count = kk.PortableKernel("count", params=[kk.Buffer("y", "i4", "rw")], body="y[kk_global_id(0)] += 1;", group=64)
    kernel = intel.load(intel.compile(count.source(intel))).kernel()
    y = intel.array(np.zeros(64, "i4"))
    with kk.Graph(intel) as graph:
        for _ in range(4):
            graph.add(kernel.prepare(1, (y,)))
        for _ in range(10):
            graph.launch()
        assert (y.numpy() == 40).all()
        assert type(graph._replay).__name__ == "Replay"
