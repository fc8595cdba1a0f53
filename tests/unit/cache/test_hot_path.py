"""The twins of the hot path in plain Python and in C behave alike."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings

import pytest

from kernelkeep.cache.native import NATIVE, new_counter

SCENARIO = """
import gc, sys, tempfile, warnings
import kernelkeep as kk
from kernelkeep.cache.native import NATIVE
from kernelkeep.testing import FakeDevice

said = [NATIVE is not None]
with FakeDevice() as device, tempfile.TemporaryDirectory() as folder, kk.ProgramCache(device, folder, max_programs=1) as cache:
    one, two = (kk.PortableKernel(n, [kk.Buffer("x", "f4", "rw")], "x[kk_global_id(0)] += 1.0f;").source(device) for n in "ab")
    first = cache.get(one)
    said.append(first.origin)
    with cache.get(one) as again:
        said += [again.origin, again.program is first.program, again.held is first.held]
    said += [again.held, repr(again)]
    try:
        again.kernel()
    except kk.DeviceError as error:
        said.append(str(error))
    other = cache.get(two)
    said += [len(cache.loaded), cache.loaded.over]
    first.release(), first.release()
    said += [len(cache.loaded), cache.loaded.over, cache.get(one).release(), cache.stats().hits_memory, cache.stats().hits_disk]
    other.release()
    for wrong in (3, [], "text", None):
        try:
            cache.get(wrong)
        except kk.ArgumentError as error:
            said.append(str(error))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cache.get(one)
        gc.collect()
    said += [str(w.message) for w in caught]
    cache.trim(0)
    said.append(len(cache.loaded))
try:
    cache.get(one)
except kk.DeviceError as error:
    said.append("closed" in str(error))
print(said)
"""


def told(native: str) -> list[str]:
    environment = {**os.environ, "KERNELKEEP_NATIVE": native}
    done = subprocess.run([sys.executable, "-c", SCENARIO], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split(", ", 1)


@pytest.mark.skipif(NATIVE is None, reason="kernelkeep._leases was not built here")
def test_the_twins_behave_alike() -> None:
    (in_c, c), (in_python, python) = told("1"), told("0")
    assert (in_c, in_python) == ("[True", "[False")
    assert c == python
    assert "never released" in c


def test_a_counter_counts() -> None:
    count = new_counter()
    assert [count() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(TypeError):
        count(1)  # type: ignore[call-arg]


@pytest.mark.skipif(NATIVE is None, reason="kernelkeep._leases was not built here")
def test_a_lease_that_holds_nothing_is_collected_silently() -> None:
    from kernelkeep.cache.lease import Lease

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lease = Lease()
        assert lease.held is None
        lease.release()
        del lease
        gc.collect()
    with pytest.raises(TypeError):
        Lease().held = 3  # type: ignore[assignment]
