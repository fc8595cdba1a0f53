"""What goes in: host arrays of every kind, device arrays, scalars, and batches that change their shape."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.array import Array
from ...devices.base import Device
from ...devices.registry import open_device
from ...execution.executor import Executor
from ...execution.job import Job
from ...programs.portable import Buffer, PortableKernel, Scalar
from ..device_parts.common import GROUP, SAXPY, groups, handwritten_saxpy
from .common import ITEMS, TIMEOUT, ExecutorPart, saxpy_batch, saxpy_result, stalled

__all__ = ["InputTests"]


INVERT = PortableKernel(
    "invert",
    params=[Buffer("image", "u1", "r"), Buffer("result", "u1", "w"), Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) result[i] = 255 - image[i];",
    group=GROUP,
)
DARKEN = PortableKernel(
    "darken",
    params=[Buffer("image", "u1", "rw"), Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) image[i] = image[i] / 2;",
    group=GROUP,
)


class InputTests(ExecutorPart):
    """A batch is what it was when it was submitted."""

    @pytest.mark.parametrize("items", [1, 63, 65, 1001, 100_003])
    def test_results_of_odd_sizes_equal_numpy(self, executor: Executor, job: Job, items: int) -> None:
        result = executor.submit(job, **saxpy_batch(7, items)).result(TIMEOUT)
        assert list(result) == ["y"]
        assert (result["y"].shape, result["y"].dtype) == ((items,), np.float32)
        np.testing.assert_array_equal(result["y"], saxpy_result(7, items))

    @pytest.mark.parametrize("depth", [1, 2, 3, 8])
    def test_every_depth_gives_the_results_of_a_loop(
        self, device: Device, cache: ProgramCache, job: Job, depth: int
    ) -> None:
        rng = np.random.default_rng(depth)
        batches: list[dict[str, Any]] = [
            {"x": rng.random(n, "f4"), "y": rng.random(n, "f4"), "a": float(n), "n": n}
            for n in (500, 64, 500, 1, 2000) * 4
        ]
        expected = []
        with cache.get(SAXPY) as lease:
            for batch in batches:
                y = device.array(batch["y"])
                args = (device.array(batch["x"]), y, batch["a"], batch["n"])
                lease.kernel("saxpy").launch(groups(batch["n"]), args)
                expected.append(y.numpy())
        with Executor(device, depth) as executor:
            futures = [executor.submit(job, **batch) for batch in batches]
            results = [future.result(TIMEOUT)["y"] for future in futures]
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, right)

    def test_jobs_and_programs_can_alternate(self, executor: Executor, job: Job, ramp: Job, tally: Job) -> None:
        futures = []
        for number in range(40):
            futures.append(executor.submit(job, **saxpy_batch(number)))
            futures.append(executor.submit(ramp, start=number, n=ITEMS))
            futures.append(executor.submit(tally, by=number, n=GROUP))
        for number, (first, second, third) in enumerate(_threes(futures)):
            np.testing.assert_array_equal(first.result(TIMEOUT)["y"], saxpy_result(number))
            np.testing.assert_array_equal(second.result(TIMEOUT)["numbers"], number + np.arange(ITEMS))
            assert (third.result(TIMEOUT)["total"] == number).all()

    def test_two_executors_share_a_job(self, device: Device, job: Job) -> None:
        with Executor(device) as one, Executor(device, 2) as two:
            futures = [(one if n % 2 else two).submit(job, **saxpy_batch(n)) for n in range(30)]
            for number, future in enumerate(futures):
                np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(number))

    def test_views_of_device_arrays_go_in_and_come_out(self, device: Device, executor: Executor, job: Job) -> None:
        alignment = device.capabilities.view_alignment
        if not alignment:
            pytest.skip(f"{device.spec} has no views of parts of arrays")
        n = max(alignment // 4, 16)
        host = np.arange(4 * n, dtype="f4")
        whole = device.array(host)
        futures = [executor.submit(job, x=whole[:n], y=whole[2 * n : 3 * n], a=1, n=n) for _ in range(3)]
        for future in futures:
            host[2 * n : 3 * n] += host[:n]
            np.testing.assert_array_equal(future.result(TIMEOUT)["y"], host[2 * n : 3 * n])
        np.testing.assert_array_equal(whole.numpy(), host)

    @pytest.mark.parametrize("items", [1, 3])
    def test_the_memory_of_a_small_view_may_end_with_it(
        self, device: Device, executor: Executor, job: Job, items: int
    ) -> None:
        alignment = device.capabilities.view_alignment
        if not alignment:
            pytest.skip(f"{device.spec} has no views of parts of arrays")
        n = max(alignment // 4, 16)
        whole = device.full(n + items, 1.0)
        result = executor.submit(job, x=np.ones(items, "f4"), y=whole[n:], a=2, n=items).result(TIMEOUT)["y"]
        np.testing.assert_array_equal(result, np.full(items, 3, "f4"))

    def test_lists_get_the_dtype_of_the_parameter(self, executor: Executor, job: Job) -> None:
        result = executor.submit(job, x=[1, 2, 3], y=[0.5, 0, 0], a=2, n=3).result(TIMEOUT)
        np.testing.assert_array_equal(result["y"], np.array([2.5, 4, 6], "f4"))

    @pytest.mark.parametrize("shape", [(37, 53, 3), (1, 1), (7, 2), (480, 640)])
    def test_images_of_bytes_go_in_and_come_out(
        self, executor: Executor, cache: ProgramCache, shape: tuple[int, ...]
    ) -> None:
        rng = np.random.default_rng(7)
        images = [rng.integers(0, 256, shape, "u1") for _ in range(5)]
        n = images[0].size
        into = Job(cache, INVERT, grid=groups(n), outputs={"result": (shape, "u1")})
        changed = Job(cache, DARKEN, grid=groups(n), outputs=["image"])
        batches = [{"image": image} for image in images]
        for image, result in zip(images, executor.map(into, batches, n=n), strict=True):
            np.testing.assert_array_equal(result["result"], 255 - image)
        for image, result in zip(images, executor.map(changed, batches, n=n), strict=True):
            np.testing.assert_array_equal(result["image"], image // 2)

    # --- host arrays

    @pytest.mark.parametrize("kind", ["strided", "reversed", "transposed", "big-endian", "read-only", "matrix", "0-d"])
    @pytest.mark.parametrize("copy", [True, False], ids=["copied", "borrowed"])
    def test_submit_takes_host_arrays_of_every_kind(
        self, executor: Executor, cache: ProgramCache, kind: str, copy: bool
    ) -> None:
        x = _host(kind)
        job = Job(cache, SAXPY, grid=groups(max(x.size, 1)), outputs=["y"], copy=copy)
        y = np.ones(x.shape, "f4")
        result = executor.submit(job, x=x, y=y, a=2.0, n=x.size).result(TIMEOUT)["y"]
        assert result.shape == x.shape and result.dtype == np.float32
        np.testing.assert_array_equal(result, 2 * x.astype("f4") + 1)
        assert (y == 1).all(), "the caller's own array is left alone"

    def test_submit_takes_host_arrays_of_other_libraries(self, executor: Executor, job: Job) -> None:
        batch = saxpy_batch(3)
        futures = [executor.submit(job, **batch | {"x": _OnHost(batch["x"])}) for _ in range(6)]
        for future in futures:
            np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(3))

    def test_submit_takes_a_list(self, device: Device, executor: Executor, cache: ProgramCache) -> None:
        doubled = PortableKernel(
            "doubled", params=[Buffer("y", "f8", "rw")], body="int i = kk_global_id(0);\ny[i] = y[i] * 2.0;", group=2
        )
        if not device.capabilities.float64:
            pytest.skip("this device has no float64, which a list of floats is")
        job = Job(cache, doubled, grid=2, outputs=["y"])
        assert executor.submit(job, y=[1.0, 2.0, 3.5, -1.0]).result(TIMEOUT)["y"].tolist() == [2.0, 4.0, 7.0, -2.0]

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2)])
    def test_submit_takes_empty_arrays(self, executor: Executor, job: Job, shape: tuple[int, ...]) -> None:
        empty = np.empty(shape, "f4")
        result = executor.submit(job, x=empty, y=empty, a=1.0, n=0).result(TIMEOUT)["y"]
        assert result.shape == shape and result.dtype == np.float32

    def test_an_array_may_change_right_after_submit(self, device: Device, job: Job) -> None:
        x = np.arange(ITEMS, dtype="f4")
        with Executor(device, 2) as executor:
            with stalled(executor, job, **saxpy_batch(0)):
                futures = []
                for number in range(3):  # two of them on the device, and one in the backlog
                    y = np.full(ITEMS, number, "f4")
                    futures.append(executor.submit(job, x=x, y=y, a=2.0, n=ITEMS))
                    y[:] = -1
                    x[:] = -1
                    x = np.arange(ITEMS, dtype="f4")
            for number, future in enumerate(futures):
                np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(number))

    @pytest.mark.parametrize("pinned", [False, True], ids=["ordinary", "pinned"])
    @pytest.mark.parametrize("items", [1024, 1 << 19])
    def test_the_same_array_may_be_filled_again_and_again(
        self, device: Device, cache: ProgramCache, items: int, pinned: bool
    ) -> None:
        """Alike batches of one array that changes right after each `submit`, also where it is read where it is."""
        job = Job(cache, SAXPY, grid=groups(items), outputs=["y"])
        x, y = np.arange(items, dtype="f4"), np.empty(items, "f4")
        if pinned:
            x, y = device.pinned_empty(items, "f4"), device.pinned_empty(items, "f4")
            x[:] = np.arange(items)
        a, n = np.float32(2), np.int32(items)
        with Executor(device, page_lock=True) as executor:
            futures = []
            for number in range(20):
                y[:] = number
                futures.append(executor.submit(job, x=x, y=y, a=a, n=n))
                y[:] = -1
            for number, future in enumerate(futures):
                np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(number, items))
            for number in range(20):
                y[:] = number
                result = executor.submit(job, x=x, y=y, a=a, n=n).result(TIMEOUT)["y"]
                np.testing.assert_array_equal(result, saxpy_result(number, items))

    def test_large_arrays_are_copied_by_several_threads(
        self, device: Device, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: 8)  # they are copied in pieces then
        with Executor(device) as executor:
            for number, items in enumerate((1_300_001, 600_000, 2_000_003)):
                result = executor.submit(job, **saxpy_batch(number, items)).result(TIMEOUT)["y"]
                np.testing.assert_array_equal(result, saxpy_result(number, items))

    def test_copy_false_reads_the_callers_arrays(self, device: Device, executor: Executor, cache: ProgramCache) -> None:
        borrowing = Job(cache, SAXPY, grid=lambda batch: groups(batch["n"]), outputs=["y"], copy=False)
        sets = [(device.pinned_empty(50_000, "f4"), device.pinned_empty(50_000, "f4")) for _ in range(8)]
        for turn in range(3):
            futures = []
            for number, (x, y) in enumerate(sets):
                x[:], y[:] = np.arange(50_000), number + turn
                futures.append(executor.submit(borrowing, x=x, y=y, a=2.0, n=50_000))
            for number, future in enumerate(futures):
                np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(number + turn, 50_000))
                assert (sets[number][1] == number + turn).all(), "the result is not written into what was passed in"

    # --- device arrays

    def test_device_arrays_are_used_in_place(self, device: Device, executor: Executor, job: Job) -> None:
        x, y = device.array(np.ones(ITEMS, "f4")), device.array(np.zeros(ITEMS, "f4"))
        futures = [executor.submit(job, x=x, y=y, a=2.0, n=ITEMS) for _ in range(10)]
        seen = [float(future.result(TIMEOUT)["y"][-1]) for future in futures]
        assert seen == [2.0 * n for n in range(1, 11)], "each batch goes on from the one before"
        assert (y.numpy() == 20).all()
        assert (x.numpy() == 1).all()

    def test_device_and_host_arrays_can_be_mixed(self, device: Device, executor: Executor, job: Job) -> None:
        x = device.array(np.arange(ITEMS, dtype="f4"))
        futures = [executor.submit(job, **saxpy_batch(n) | ({"x": x} if n % 2 else {})) for n in range(12)]
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(number))

    def test_a_device_array_that_is_still_computed_is_waited_for(
        self, device: Device, executor: Executor, chain: Job, cache: ProgramCache
    ) -> None:
        host = np.arange(4096, dtype="u4")
        expected = executor.submit(chain, y=host, steps=30_001).result(TIMEOUT)["y"]
        with cache.get(chain.source) as lease:
            y = device.array(host)
            lease.kernel().launch(groups(4096), (y, 30_000))  # nobody waits for it
            result = executor.submit(chain, y=y, steps=1).result(TIMEOUT)["y"]
        np.testing.assert_array_equal(result, expected)

    def test_a_device_array_that_the_caller_drops_stays_alive(
        self, device: Device, executor: Executor, job: Job
    ) -> None:
        with stalled(executor, job, **saxpy_batch(0)):
            futures = [
                executor.submit(job, **saxpy_batch(n) | {"x": device.array(np.arange(ITEMS, dtype="f4"))})
                for n in range(4)
            ]
            others = [device.array(np.full(ITEMS, 99, "f4")) for _ in range(8)]  # would lie in freed memory
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(number))
        assert all((other.numpy() == 99).all() for other in others)

    def test_batches_that_write_one_device_array_get_their_own_results(
        self, device: Device, cache: ProgramCache
    ) -> None:
        """A download must not see what the kernel of the next batch writes to the same array."""
        items = 1 << 20
        more = PortableKernel(
            "one_more",
            params=[Buffer("y", "i4", "rw"), Scalar("n", "i4")],
            body="int i = kk_global_id(0); if (i < n) y[i] += 1;",
        )
        job = Job(cache, more, grid=groups(items, 256), outputs=["y"])
        state = device.array(np.zeros(items, "i4"))
        with Executor(device) as executor:
            futures = [executor.submit(job, y=state, n=items) for _ in range(20)]
            for turn, future in enumerate(futures, start=1):
                assert (future.result(TIMEOUT)["y"] == turn).all()
        assert (state.numpy() == 20).all()

    def test_closing_a_device_array_harms_no_later_batch(self, device: Device, executor: Executor, job: Job) -> None:
        for number in range(3):  # the first of them is what the launch was bound with
            x = device.array(np.arange(ITEMS, dtype="f4"))
            result = executor.submit(job, **saxpy_batch(number) | {"x": x}).result(TIMEOUT)
            x.close()
            np.testing.assert_array_equal(result["y"], saxpy_result(number))
        np.testing.assert_array_equal(executor.submit(job, **saxpy_batch(5)).result(TIMEOUT)["y"], saxpy_result(5))

    def test_submit_takes_device_arrays_of_other_libraries(self, device: Device, executor: Executor, job: Job) -> None:
        y = device.array(np.zeros(ITEMS, "f4"))
        if not device.guests.supported:
            pytest.skip("memory of this device cannot be shared")
        for _ in range(2):
            executor.submit(job, **saxpy_batch(0) | {"y": _Lent(y)}).result(TIMEOUT)
        np.testing.assert_array_equal(y.numpy(), 2 * saxpy_result(0))

    # --- scalars and shapes

    def test_submit_takes_scalars_of_every_kind(self, device: Device, executor: Executor, cache: ProgramCache) -> None:
        kinds = ["i4", "f4", "u4"]
        kinds += ["f8"] if device.capabilities.float64 else []
        kinds += ["i8", "u8"] if device.capabilities.int64 else []
        kinds += ["i1", "u1", "i2", "u2"] if device.capabilities.int8 else []
        params: list[Buffer | Scalar] = [Scalar(f"s{n}", kind) for n, kind in enumerate(kinds)]
        body = "".join(f"y[{n}] = kk_float(s{n});\n" for n in range(len(kinds)))
        several = PortableKernel("several", params=[*params, Buffer("y", "f4", "w")], body=body, group=1)
        job = Job(cache, several, grid=1, outputs={"y": (len(kinds), "f4")})
        for base in (0, 3, 90):
            # Python's numbers and NumPy's, with and without dimensions.
            makers: list[Any] = [int, lambda v: np.dtype("f4").type(v), lambda v: np.array(v, "u4")]
            values = [makers[n](base + n) if n < 3 else np.dtype(kinds[n]).type(base + n) for n in range(len(kinds))]
            defaults = [np.float64(base + n) if kind[0] == "f" else np.int64(base + n) for n, kind in enumerate(kinds)]
            for each in (values, defaults):
                passed = {f"s{n}": value for n, value in enumerate(each)}
                result = executor.submit(job, **passed).result(TIMEOUT)["y"]
                assert result.tolist() == [base + n for n in range(len(kinds))]

    def test_shapes_may_change_between_batches(self, executor: Executor, job: Job, ramp: Job) -> None:
        sizes = [5, 5, 1001, 5, 70_000, 1, 1001, 300_000, 64, 65, 5] * 3
        futures = [
            executor.submit(job, **saxpy_batch(k, n)) if k % 2 else executor.submit(ramp, start=k, n=n)
            for k, n in enumerate(sizes)
        ]
        for k, (n, future) in enumerate(zip(sizes, futures, strict=True)):
            result = future.result(TIMEOUT)
            if k % 2:
                np.testing.assert_array_equal(result["y"], saxpy_result(k, n))
            else:
                np.testing.assert_array_equal(result["numbers"], k + np.arange(n))

    def test_more_grids_than_are_kept_still_work(self, executor: Executor, ramp: Job) -> None:
        sizes = [1 + GROUP * (k * 7 % 40) for k in range(100)]
        futures = [executor.submit(ramp, start=k, n=n) for k, n in enumerate(sizes)]
        for k, (n, future) in enumerate(zip(sizes, futures, strict=True)):
            np.testing.assert_array_equal(future.result(TIMEOUT)["numbers"], k + np.arange(n))

    @pytest.mark.parametrize("grid", [16, (16,), (16, 1, 1), [16], np.int64(16), lambda batch: [np.int32(16), 1]])
    def test_a_grid_may_have_every_form(self, executor: Executor, cache: ProgramCache, grid: Any) -> None:
        job = Job(cache, SAXPY, grid=grid, outputs="y")
        np.testing.assert_array_equal(executor.submit(job, **saxpy_batch(3)).result(TIMEOUT)["y"], saxpy_result(3))

    def test_a_job_runs_a_handwritten_kernel(self, device: Device, executor: Executor, cache: ProgramCache) -> None:
        source = handwritten_saxpy(device.language)
        job = Job(cache, source, grid=groups(ITEMS), outputs=["y"], kernel="saxpy", group=GROUP, name="by hand")
        assert "by hand" in repr(job)
        for number in range(3):
            batch = saxpy_batch(number) | {"a": np.float32(2), "n": np.int32(ITEMS)}
            np.testing.assert_array_equal(executor.submit(job, **batch).result(TIMEOUT)["y"], saxpy_result(number))

    def test_submit_rejects_a_job_of_another_device(self, device: Device, job: Job) -> None:
        with open_device(device.spec) as other, Executor(other) as executor:
            problem = executor.submit(job, **saxpy_batch(0)).exception(TIMEOUT)
            assert isinstance(problem, ValueError) and "cache" in str(problem)


class _Lent:
    """Another library's array in this device's memory, as CuPy and PyTorch show theirs."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._array.__cuda_array_interface__


class _OnHost:
    """An array of another library in host memory, which has DLPack alone."""

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self._host = host

    def __dlpack__(self, **wishes: Any) -> Any:
        return self._host.__dlpack__(**wishes)

    def __dlpack_device__(self) -> Any:
        return self._host.__dlpack_device__()


def _threes(futures: list[Any]) -> Any:
    return zip(futures[::3], futures[1::3], futures[2::3], strict=True)


def _host(kind: str) -> np.ndarray[Any, Any]:
    """x in a form that is not contiguous or not native."""
    x = np.arange(600, dtype="f4")
    if kind == "strided":
        return x[::3]
    if kind == "reversed":
        return x[::-1]
    if kind == "transposed":
        return x.reshape(20, 30).T
    if kind == "big-endian":
        return x.astype(">f4")
    if kind == "matrix":
        return x.reshape(2, 3, 100)
    if kind == "0-d":
        return np.array(5.0, "f4")
    x.flags.writeable = False
    return x
