"""A device that the driver loses: a `DeviceError` for everybody who waits, and no end of the process.

The driver is `losing_driver.c` before Mesa's. wgpu-native panics in these cases, and `_guard.c` makes an error of it.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from kernelkeep.testing import open_or_skip
from kernelkeep.testing.process import run_python

pytestmark = pytest.mark.webgpu

SETUP = """
import ctypes, sys, threading, time
import numpy as np
import kernelkeep as kk

driver = ctypes.CDLL(sys.argv[1])
device = kk.open_device("webgpu", cache_dir=sys.argv[2])
cache = kk.ProgramCache(device, sys.argv[2])
body = "int i = kk_global_id(0); y[i] = y[i] + a;"
add = kk.PortableKernel("add", params=[kk.Buffer("y", "i4"), kk.Scalar("a", "i4")], body=body, group=64)
kernel = cache.get(add.source(device)).kernel()
y = device.array(np.zeros(64, "i4"))
kernel.launch(1, (y, 1))
assert y.numpy()[0] == 1

def lost(call):
    try:
        call()
    except kk.DeviceError as error:
        assert "webgpu:0 is lost" in str(error), error
        return
    raise AssertionError(f"{call} did not hear of it")
"""

THREADS = (
    SETUP
    + """
count = kk.StateProgram("count", coupling="independent", items=64, state={"u": np.zeros(64, "i4")},
                        body="u_next[kk_item()] = u[kk_item()] + 1;")
kk.run(cache, count, 300, "redispatch").close()
executor = kk.Executor(device)
job = kk.Job(cache, add, grid=1, outputs={"y": ((64,), "i4")})
executor.submit(job, y=np.zeros(64, "i4"), a=1).result(60)
lanes = device.open_lanes()

driver.hang(1)
kernel.launch(1, (y, 1))
fence, mark = device.fence(), lanes.compute.mark()
with device.timer() as timer:
    kernel.launch(1, (y, 1))
futures = [executor.submit(job, y=np.zeros(64, "i4"), a=1) for _ in range(3)]
waits = [fence.wait, lambda: fence.wait(60), mark.wait, device.synchronize, y.numpy, lambda: timer.seconds,
         lambda: kk.run(cache, count, 300, "redispatch"), *(future.result for future in futures)]
begun, heard = [], []
def wait(number):
    begun.append(number)
    lost(waits[number])
    heard.append(number)
threads = [threading.Thread(target=wait, args=(number,), daemon=True) for number in range(len(waits))]
for thread in threads:
    thread.start()
while len(begun) < len(waits):
    time.sleep(0.01)
time.sleep(0.2)  # most of them wait by now; those that come later hear of it, too
assert not heard
driver.lose(1)
for thread in threads:
    thread.join(30)
assert sorted(heard) == list(range(len(waits))), heard
for call in (lambda: kernel.launch(1, (y, 1)), device.synchronize, device.fence, lambda: device.array([1.0]), y.numpy):
    lost(call)
executor.close()
cache.close()
device.close()

driver.lose(0)
driver.hang(0)
with kk.open_device("webgpu", cache_dir=sys.argv[2]) as again:
    assert again.array(np.arange(4, dtype="i4")).numpy().tolist() == [0, 1, 2, 3]
print("heard")
"""
)

ALONE = (
    SETUP
    + """
driver.hang(1)
kernel.launch(1, (y, 1))
def lose():
    while not driver.count_waiting():  # the main thread waits inside wgpu-native
        time.sleep(0.01)
    driver.lose(1)
threading.Thread(target=lose).start()
lost(device.synchronize)
device.close()
print("heard")
"""
)

SUBMISSION = (
    SETUP
    + """
driver.lose(2)
lost(lambda: (kernel.launch(1, (y, 1)), device.submit()))
lost(lambda: y.numpy())
device.close()
print("heard")
"""
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The library, and the variables that make Vulkan use it."""
    open_or_skip("webgpu").close()
    found = sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))
    compiler = shutil.which("cc")
    if not found or compiler is None or importlib.util.find_spec("kernelkeep._guard") is None:
        pytest.skip("needs Mesa's software Vulkan driver, a C compiler, and the module in C that catches panics")
    folder = tmp_path_factory.mktemp("driver")
    library = folder / "liblosing.so"
    source = Path(__file__).with_name("losing_driver.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    original = json.loads(found[0].read_text())["ICD"]["library_path"]
    manifest = folder / "losing.json"
    manifest.write_text(
        json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": str(library), "api_version": "1.3.0"}})
    )
    return library, {"KK_DRIVER": original, "VK_ICD_FILENAMES": str(manifest), "VK_DRIVER_FILES": str(manifest)}


@pytest.mark.parametrize(
    "script", [THREADS, ALONE, SUBMISSION], ids=["while threads wait", "while one waits", "within a submission"]
)
def test_everybody_hears_that_the_device_is_lost(
    driver: tuple[Path, dict[str, str]], script: str, tmp_path: Path
) -> None:
    library, variables = driver
    done = run_python(script, library, tmp_path / "cache", environment={**variables, "RUST_BACKTRACE": "0"})
    assert done.stdout.strip() == "heard"
