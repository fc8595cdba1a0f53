"""What `test_platforms.py` does in processes that believe to be on another operating system: `scenario.py STEP FOLDER …`."""

from __future__ import annotations

import importlib
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import kernelkeep as kk

PACKAGE = Path(kk.__file__).parent
SAXPY = kk.PortableKernel(
    "aux",  # a file with this name is a device on Windows
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = a * x[i] + y[i];",
    group=64,
)
N = 32
U = np.linspace(0, 1, N, dtype="f4")
HEAT = kk.StateProgram(
    "heat",
    coupling="neighbours",
    items=N,
    state={"u": U},
    scalars={"k": np.float32(0.25)},
    body="""int i = kk_item();
            if (i > 0 && i < kk_items() - 1) u_next[i] = u[i] + k * (u[i-1] - 2 * u[i] + u[i+1] + 0.5f);
            else u_next[i] = u[i];""",
)


def imports() -> None:
    """Every module, and what is said of drivers that are not there."""
    other = "posix" if os.environ["KERNELKEEP_STAND_IN"] == "win32" else "windows"
    count = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[-1] == "__main__" or parts[-2:] == ("platforms", other):
            continue
        try:
            importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        except ModuleNotFoundError as missing:
            if "guests" not in parts or str(missing.name).startswith("kernelkeep"):
                raise  # only the door of a guest needs the guest
        count += 1
    from kernelkeep.platforms import system

    print(system.__name__.rpartition(".")[2], count)


def absent(*specs: str) -> None:
    for spec in specs:
        try:
            kk.open_device(spec)
        except (kk.DeviceError, kk.Unsupported) as error:
            print(spec, type(error).__name__, error)


def program(folder: str) -> None:
    """Where a program came from; and the rest of the cache's life."""
    with kk.open_device("reference", cache_dir=folder) as device, kk.ProgramCache(device, folder) as cache:
        x, y = device.array(np.arange(100, dtype="f4")), device.array(np.ones(100, "f4"))
        with cache.get(SAXPY) as lease:
            lease.kernel().launch(2, (x, y, np.float32(2), np.int32(100)))
            assert (y.numpy() == 2 * np.arange(100, dtype="f4") + 1).all()
            print(lease.origin)
        found = cache.preload(["aux"])  # by a name that was noted when it was saved
        assert not found.failed, found
        cache.persist()
        print(device.info.memory_bytes > 0)
        print(cache.stats().on_disk)


def clear(folder: str) -> None:
    with kk.open_device("reference", cache_dir=folder) as device, kk.ProgramCache(device, folder) as cache:
        cache.prune(max_age_days=0)
        print(cache.stats().on_disk)


def count(folder: str, rounds: str) -> None:
    """Add one to a number in a file, under a lock, in two steps."""
    from kernelkeep.storage.files import append_line
    from kernelkeep.storage.locks import FileLock

    number, lock = Path(folder, "number"), FileLock(Path(folder, "locks", "number.lock"))
    for _ in range(int(rounds)):
        with lock.held(60):
            before = int(number.read_text()) if number.exists() else 0
            time.sleep(0.001)
            number.write_text(str(before + 1))
        append_line(Path(folder, "lines"), f"{os.getpid()}\n")


def hold(folder: str) -> None:
    """Take one lock alone and share another, say so, and wait to be killed."""
    from kernelkeep.storage.locks import FileLock, hold_for_life

    lock = FileLock(Path(folder, "alone.lock"))
    lock.acquire(0)
    lock.leave_note("mine")
    hold_for_life(Path(folder, "shared.lock"))
    print("held", flush=True)
    time.sleep(600)


def advance(folder: str, iterations: str, reader: str = "") -> None:
    """Go on with a run from its checkpoint. With a reader, the file is open until it could not be replaced once."""
    path = Path(folder, "heat.kkpt")
    refused = []
    if reader:
        opened, real = path.open("rb"), os.replace

        def replace(source: Any, target: Any) -> None:
            try:
                real(source, target)
            except PermissionError:
                refused.append(target)
                opened.close()
                raise

        os.replace = replace  # type: ignore[assignment]
    with kk.open_device("reference", cache_dir=folder) as device, kk.ProgramCache(device, folder) as cache:
        run = kk.run(cache, HEAT, iterations=int(iterations), checkpoint=path, resume=True)
        print(run.report.resumed_from, run.state["u"].numpy().tobytes().hex())
    print(f"refused {len(refused)}")
    saved = kk.read_checkpoint(path)
    assert saved.iteration == int(iterations), saved


def dies_once(folder: str) -> str:
    with kk.open_device("reference", cache_dir=folder) as device, kk.ProgramCache(device, folder) as cache:
        path = Path(folder, "supervised.kkpt")
        first = not path.exists()
        run = kk.run(cache, HEAT, iterations=2 if first else 4, checkpoint=path)
        if first:
            os._exit(3)
        return run.state["u"].numpy().tobytes().hex()


def supervised(folder: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = kk.run_supervised(
            dies_once,
            args=(folder,),
            checkpoint=Path(folder, "supervised.kkpt"),
            heartbeat_seconds=60,
            max_restarts=2,
        )
    print(report.restarts, report.result)


def tune(folder: str) -> None:
    """Tuning tries variants in this process where it cannot have another."""
    from kernelkeep.testing.variant_parts.common import twice

    with kk.open_device("reference", cache_dir=folder) as device, kk.ProgramCache(device, folder) as cache:
        report = twice("twice", [1, 2]).tune(cache, {"n": 64})
        assert report.failures == {}, report
        print(f"{report.measured} measured")


if __name__ == "__main__":
    {step.__name__: step for step in (imports, absent, program, clear, count, hold, advance, supervised, tune)}[
        sys.argv[1]
    ](*sys.argv[2:])
