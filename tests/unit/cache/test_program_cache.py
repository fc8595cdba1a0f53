"""What the program cache decides, on a device that fails at exactly the moment a test wants."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.cache.tiers.disk import DiskTier
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.warned import one_warning

THREADS = 8


def adder(term: int, name: str = "adder") -> kk.Source:
    text = f'def {name}(y: "i4[]", n: "i4"):\n    y[:n] += {term}\n'
    return kk.Source(text, name=f"{name}{term}", language="python")


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


@pytest.fixture
def cache(device: FakeDevice, tmp_path: Path) -> Iterator[kk.ProgramCache]:
    with kk.ProgramCache(device, tmp_path / "cache") as opened:
        yield opened


def check(device: FakeDevice, lease: kk.Lease, term: int) -> None:
    y = device.array(np.zeros(5, "i4"))
    lease.kernel().launch(1, (y, 5), 1)
    assert y.numpy().tolist() == [term] * 5


def origin(cache: kk.ProgramCache, source: kk.Source) -> str:
    with cache.get(source) as lease:
        return lease.origin


# --- one compile for all


def test_all_threads_wait_for_one_compile_that_hangs(device: FakeDevice, cache: kk.ProgramCache) -> None:
    hang = device.faults.hang("compile")
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(cache.get, adder(1)) for _ in range(THREADS)]
        hang.wait_until_reached()
        assert not any(future.done() for future in futures)
        hang.release()
        leases = [future.result(30) for future in futures]
    assert device.faults.counts["compile"] == 1
    assert [lease.origin for lease in leases].count("compiled") >= 1
    check(device, leases[0], 1)
    for lease in leases:
        lease.release()
    assert cache.stats().compiles == 1


def test_all_threads_get_the_error_of_one_compile(device: FakeDevice, cache: kk.ProgramCache) -> None:
    hang = device.faults.hang("compile")
    device.faults.fail("compile")
    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(cache.get, adder(1)) for _ in range(THREADS)]
        hang.wait_until_reached()
        hang.release()
        errors = [future.exception(30) for future in futures]
    assert any(isinstance(error, kk.CompileError) for error in errors)
    # Whoever came after the compile had failed compiled anew, which succeeds.
    assert all(error is None or isinstance(error, kk.CompileError) for error in errors)
    for future, error in zip(futures, errors, strict=True):
        if error is None:
            future.result().release()
    assert origin(cache, adder(1)) in ("compiled", "memory"), "a failed compile leaves nothing behind"


def test_a_compile_that_hangs_does_not_hold_up_others(device: FakeDevice, cache: kk.ProgramCache) -> None:
    cache.get(adder(1)).release()
    hang = device.faults.hang("compile")
    with ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(cache.get, adder(2))
        hang.wait_until_reached()
        assert origin(cache, adder(1)) == "memory"
        assert origin(cache, adder(3)) == "compiled"
        hang.release()
        stuck.result(30).release()


# --- what the driver refuses


def test_a_binary_that_the_driver_refuses_is_compiled_again(device: FakeDevice, tmp_path: Path) -> None:
    for expected, corrupt in (("compiled", 0), ("compiled", 1), ("disk", 0)):
        with kk.ProgramCache(device, tmp_path / "cache") as cache:
            if corrupt:
                device.faults.fail("load")
            assert origin(cache, adder(1)) == expected
            assert cache.stats().corrupt_entries == corrupt


def test_a_device_that_fails_to_load_is_no_reason_to_compile(device: FakeDevice, tmp_path: Path) -> None:
    """Only a refused binary is compiled again: a device in trouble would refuse the new one, too."""
    with kk.ProgramCache(device, tmp_path / "cache") as cache:
        cache.get(adder(1)).release()
    with kk.ProgramCache(device, tmp_path / "cache") as cache:
        device.faults.fail("load", kk.DeviceError("the bus fell over"))
        with pytest.raises(kk.DeviceError, match="the bus fell over"):
            cache.get(adder(1))
        assert device.faults.counts["compile"] == 1
        assert origin(cache, adder(1)) == "disk"


# --- eviction


def test_the_least_recently_used_program_goes_first(device: FakeDevice, tmp_path: Path) -> None:
    with kk.ProgramCache(device, tmp_path / "cache", max_programs=3) as cache:
        for term in (1, 2, 3):
            cache.get(adder(term)).release()
        cache.get(adder(1)).release()
        cache.get(adder(4)).release()  # 2 goes
        assert [origin(cache, adder(term)) for term in (1, 3, 4)] == ["memory"] * 3
        assert origin(cache, adder(2)) == "disk"
        assert cache.stats().evictions == 2  # 2, and 1 for it: the order is that of the last uses


def test_out_of_memory_evicts_what_nobody_uses_and_tries_again(device: FakeDevice, cache: kk.ProgramCache) -> None:
    held = cache.get(adder(1))
    for term in (2, 3):
        cache.get(adder(term)).release()
    device.faults.fail("load", kk.OutOfMemory("full"))
    with cache.get(adder(4)) as lease:
        check(device, lease, 4)
    assert cache.stats().evictions == 2
    assert origin(cache, adder(1)) == "memory", "a program that is leased stays"
    check(device, held, 1)
    held.release()


def test_out_of_memory_with_nothing_to_evict_is_raised(device: FakeDevice, cache: kk.ProgramCache) -> None:
    held = cache.get(adder(1))
    device.faults.fail("load", kk.OutOfMemory("full"))
    with pytest.raises(kk.OutOfMemory, match="full"):
        cache.get(adder(2))
    assert device.faults.counts["load"] == 2, "no second try where nothing was freed"
    assert origin(cache, adder(2)) == "compiled"
    held.release()


def test_an_array_that_does_not_fit_evicts_programs(tmp_path: Path) -> None:
    with FakeDevice(memory_bytes=1 << 16) as device, kk.ProgramCache(device, tmp_path / "cache") as cache:
        cache.get(adder(1)).release()
        device.faults.fail("allocate")
        assert device.empty(1000).nbytes == 4000
        assert cache.stats().evictions == 1
        with pytest.raises(kk.OutOfMemory, match="in use"):
            device.empty(1 << 16)


def test_a_program_evicted_while_its_launch_runs_finishes(device: FakeDevice, tmp_path: Path) -> None:
    y = device.array(np.zeros(5, "i4"))
    with kk.ProgramCache(device, tmp_path / "cache", max_programs=1) as cache:
        hang = device.faults.hang("run")
        with cache.get(adder(7)) as lease:
            lease.kernel().launch(1, (y, 5), 1)
        hang.wait_until_reached()
        cache.get(adder(8)).release()
        assert cache.stats().evictions == 1
        hang.release()
        assert y.numpy().tolist() == [7] * 5


def test_origins_of_one_program(device: FakeDevice, tmp_path: Path) -> None:
    found: list[Any] = []
    for _ in range(2):
        with kk.ProgramCache(device, tmp_path / "cache") as cache:
            found += [origin(cache, adder(1)), origin(cache, adder(1))]
    assert found == ["compiled", "memory", "disk", "memory"]


# --- a folder that cannot be used at first


def test_a_folder_that_can_be_used_later_is_opened_without_a_lookup(
    device: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "cache"
    with kk.ProgramCache(device, root) as cache:
        cache.get(adder(1)).release()
    root.rename(tmp_path / "away")
    root.write_text("in the way")
    monkeypatch.setattr(DiskTier, "retry_seconds", (0.0, 0.0))
    with one_warning("memory only"), kk.ProgramCache(device, root) as cache:
        assert cache.stats().on_disk == 0
        root.unlink()
        (tmp_path / "away").rename(root)
        assert cache.preload(["adder1"]).disk == 1
    root.rename(tmp_path / "away")
    root.write_text("in the way")
    with one_warning("memory only"), kk.ProgramCache(device, root) as cache:
        root.unlink()
        (tmp_path / "away").rename(root)
        assert cache.stats().on_disk == 1


# --- a cache that is dropped


def test_a_dropped_cache_is_freed_at_once_and_its_counts_are_kept(device: FakeDevice, tmp_path: Path) -> None:
    dropped = kk.ProgramCache(device, tmp_path / "cache", auto_save=False)
    dropped.get(adder(1)).release()
    dropped.get(adder(1)).release()
    freed = weakref.ref(dropped)
    gc.disable()
    try:
        del dropped
        assert freed() is None
    finally:
        gc.enable()
    with kk.ProgramCache(device, tmp_path / "cache") as cache:
        assert cache.lifetime_stats().hits_memory == 1


# --- what is refused says what to do


def test_what_is_no_source_for_the_device_is_told_what_to_do(cache: kk.ProgramCache) -> None:
    with pytest.raises(kk.ArgumentError, match=r"got a str: wrap it, as in kk\.Source\(text, name=…, language=…\)"):
        cache.get("int x;")  # type: ignore[arg-type]
    with pytest.raises(kk.ArgumentError, match=r"got a int$"):
        cache.get(3)  # type: ignore[arg-type]
    with pytest.raises(kk.ArgumentError, match=r"got a function: write @kk\.kernel above it$"):
        cache.get(lambda x: x)  # type: ignore[arg-type]
    source = kk.Source("__global__ void f() {}", name="f", language="cuda")
    said = (
        f"source f is cuda, and {cache.device.spec} takes python: open a device that takes cuda, or write it with @kk"
    )
    for refused in (lambda: cache.get(source), lambda: cache.device.build(source)):
        with pytest.raises(kk.ArgumentError, match=said):
            refused()


def test_what_is_closed_says_which_and_where_to_use_it(device: FakeDevice, tmp_path: Path) -> None:
    with kk.ProgramCache(device, tmp_path / "mine") as cache:
        with cache.get(adder(1)) as lease:
            pass
        for use in (lambda: lease.kernel(), lambda: lease.program, lambda: lease.loaded):
            with pytest.raises(kk.DeviceError, match=r"released: use it inside its with block, or get another"):
                use()
    with pytest.raises(kk.DeviceError, match=r"the cache for .* in .*mine is closed: use it inside its with block"):
        cache.get(adder(1))
    array = device.array(np.zeros((2, 3), "i4"))
    array.close()
    with pytest.raises(kk.DeviceError, match=rf"array \(2 × 3, int32, on {device.spec}\) is closed: use it before"):
        array.numpy()
