"""What a state may be made of: every type the device has, several dimensions, constants, and scalars of any kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.checkpoints.files import read_checkpoint
from ...continuous.program import StateProgram
from ...continuous.run import Run
from ...continuous.runner import resume, run
from ...devices.base import Device
from .common import StrategyPart

__all__ = ["LayoutTests"]

_ITEMS = 300
_Arrays = dict[str, np.ndarray[Any, Any]]


def _kinds() -> StateProgram:
    """What every device has, beside an array that is shorter and one that is longer than there are items."""
    state: _Arrays = {
        "table": np.array([3, 1, 4, 1, 5], "u4"),
        "tail": np.arange(_ITEMS + 200, dtype="i4"),
        "a": np.arange(_ITEMS, dtype="i4") - 7,
        "b": np.arange(_ITEMS, dtype="u4") * np.uint32(0x9E3779B9),
        "c": np.arange(_ITEMS, dtype="f4"),
    }
    scalars = {"p": -3, "q": 0.5, "r": np.uint32(4_000_000_000), "s": np.float32(1.0), "t": True}
    body = """int i = kk_item();
tail_next[i] = tail[i] + kk_iteration();
a_next[i] = a[i] * p + t;
b_next[i] = b[i] * 5u + table[i % 5] + r;
c_next[i] = c[i] * q + s;"""
    return StateProgram("kinds", coupling="independent", items=_ITEMS, state=state, scalars=scalars, body=body)


def _kinds_reference(program: StateProgram, iterations: int) -> _Arrays:
    now: _Arrays = {key: array.copy() for key, array in program.state.items()}
    cycle = np.resize(now["table"], _ITEMS)
    for iteration in range(iterations):
        now["tail"][:_ITEMS] += iteration
        now["a"] = now["a"] * np.int32(-3) + np.int32(1)
        now["b"] = now["b"] * np.uint32(5) + cycle + np.uint32(4_000_000_000)
        now["c"] = now["c"] * np.float32(0.5) + np.float32(1)  # exact: halves of small numbers
    return now


def _more_kinds(device: Device) -> StateProgram:
    """What only some devices have."""
    state: _Arrays = {"count": np.zeros(_ITEMS, "i4")}
    scalars: dict[str, Any] = {}
    lines = ["int i = kk_item();", "count_next[i] = count[i] + 1;"]
    if device.capabilities.int64:
        state |= {"d": np.arange(_ITEMS, dtype="i8") * -(2**33), "e": np.arange(_ITEMS, dtype="u8") << np.uint64(40)}
        scalars |= {"wide": 2**40 + 1, "wider": np.uint64(2**63)}
        lines += ["d_next[i] = d[i] * 3 + wide;", "e_next[i] = e[i] + wider;"]
    if device.capabilities.float64:
        state["f"] = np.arange(_ITEMS, dtype="f8")
        scalars["middle"] = np.float64(0.5)
        lines += ["f_next[i] = f[i] * middle + middle;"]
    if device.capabilities.int8:
        state["g"] = np.arange(_ITEMS).astype("i1")
        scalars["step"] = np.uint16(3)
        lines += ["g_next[i] = g[i] + step;"]
    body = "\n".join(lines)
    return StateProgram("more_kinds", coupling="independent", items=_ITEMS, state=state, scalars=scalars, body=body)


def _more_kinds_reference(program: StateProgram, iterations: int) -> _Arrays:
    now: _Arrays = {key: array.copy() for key, array in program.state.items()}
    for _ in range(iterations):
        now["count"] += 1
        if "d" in now:
            now["d"] = now["d"] * np.int64(3) + np.int64(2**40 + 1)
            now["e"] = now["e"] + np.uint64(2**63)
        if "f" in now:
            now["f"] = now["f"] * 0.5 + 0.5
        if "g" in now:
            now["g"] = now["g"] + np.int8(3)
    return now


_RIPPLE = """int i = kk_item();
int z = i / (height * width), y = i / width % height, x = i % width;
int up = y > 0 ? i - width : i, left = x > 0 ? i - 1 : i, above = z > 0 ? i - height * width : i;
cube_next[i] = cube[i] * 3 + cube[up] - cube[left] + cube[above] + weight[y * width + x];"""


def _late() -> StateProgram:
    """A large array that takes long to copy, and two small ones that are copied after it."""
    return StateProgram(
        "late",
        coupling="neighbours",
        items=9,
        state={"ballast": np.arange(1 << 20, dtype="u4"), "count": np.zeros(9, "u4"), "other": np.zeros(9, "u4")},
        body="int i = kk_item();\ncount_next[i] = count[i] + 1u;\nother_next[i] = count[8 - i] + 1u;",
    )


class LayoutTests(StrategyPart):
    """Arrays and scalars of every kind."""

    def test_an_item_may_write_a_row(self, device: Device, cache: ProgramCache) -> None:
        """More elements than items: a slice of many iterations must copy whole arrays, not one element an item."""
        rows = StateProgram(
            "rows",
            coupling="independent",
            items=6,
            state={"x": np.zeros((6, 4), "i4")},
            body="int r = kk_item(); for (int k = 0; k < 4; k++) x_next[r * 4 + k] = x[r * 4 + k] + 1;",
        )
        for strategy in self.strategies(device):
            for size in (2, 3):
                with run(cache, rows, 6, strategy, iterations_per_dispatch=size) as done:
                    assert (done.state["x"].numpy() == 6).all(), (strategy, size)

    def test_a_state_of_two_dimensions_has_an_item_for_every_element(self, device: Device, cache: ProgramCache) -> None:
        grid = np.arange(35, dtype="i4").reshape(5, 7)
        program = StateProgram(
            "plane",
            coupling="neighbours",
            state={"x": grid, "weight": np.array([3, 5], "i4")},
            scalars={"width": 7},
            body="""int i = kk_item();
int row = i / width, column = i % width;
int above = row > 0 ? i - width : i, left = column > 0 ? i - 1 : i;
x_next[i] = x[i] + x[above] * weight[0] - x[left] * weight[1];""",
        )
        assert program.items == 35
        expected = grid
        for _ in range(5):
            above, left = expected.copy(), expected.copy()
            above[1:], left[:, 1:] = expected[:-1], expected[:, :-1]
            expected = expected + above * np.int32(3) - left * np.int32(5)
        for strategy in self.strategies(device):
            with run(cache, program, 5, strategy) as done:
                np.testing.assert_array_equal(done.state["x"].numpy(), expected, err_msg=strategy)

    @pytest.mark.parametrize("common", [True, False])
    def test_states_of_every_type_that_the_device_has(
        self, device: Device, cache: ProgramCache, tmp_path: Path, common: bool
    ) -> None:
        program = _kinds() if common else _more_kinds(device)
        iterations = 12
        expected = (_kinds_reference if common else _more_kinds_reference)(program, iterations)
        for strategy in self.strategies(device):
            for size in (None, 2, 3) if strategy in ("mega", "buffered") else (None,):
                for in_place in (False, True):
                    with run(
                        cache, program, iterations, strategy, iterations_per_dispatch=size, in_place=in_place
                    ) as done:
                        for key, array in expected.items():
                            found = done.state[key].numpy()
                            assert found.dtype == array.dtype
                            np.testing.assert_array_equal(found, array, err_msg=f"{key} by {strategy}, {size}")
        path = tmp_path / "kinds.kkpt"
        with self.run_in_two(cache, program, path, 5, iterations, "mega", "redispatch") as resumed:
            for key, array in expected.items():
                np.testing.assert_array_equal(resumed.state[key].numpy(), array, err_msg=key)

    def test_a_body_may_use_what_kernels_may(self, device: Device, cache: ProgramCache) -> None:
        """Remainders are C's, in a condition too; four floats at a time; a program may be called like a function."""
        signed = StateProgram(
            "step",
            coupling="independent",
            state={"u": np.arange(-32, 32, dtype="i4")},
            body="int v = u[kk_item()] * 3 - kk_iteration();\nu_next[kk_item()] = v % -7 + v / 5 % 3;",
        )
        expected = signed.state["u"]
        for iteration in range(5):
            v = expected * 3 - iteration
            expected = np.fmod(v, -7) + np.fmod(np.trunc(v / 5).astype("i4"), 3)
        turned = StateProgram(
            "mix",
            coupling="neighbours",
            items=16,
            state={"u": np.arange(64, dtype="f4")},
            body="""int k = 4 * kk_item();
kk_float4 v = kk_load4(u, k);
kk_store4(u_next, k, kk_make_float4(v.w, v.z, v.y, v.x));""",
        )
        for strategy in ("redispatch", "mega"):
            with run(cache, signed, 5, strategy) as done:
                np.testing.assert_array_equal(done.state["u"].numpy(), expected)
            with run(cache, turned, 3, strategy) as done:
                np.testing.assert_array_equal(done.state["u"].numpy(), np.arange(64).reshape(16, 4)[:, ::-1].ravel())
        with run(cache, signed, 100, until="u_next[kk_item()] % 50 == -8") as done:
            assert done.report.iterations == 1

    def test_states_of_several_dimensions_and_constants_equal_numpy(
        self, device: Device, cache: ProgramCache, tmp_path: Path
    ) -> None:
        shape = (3, 5, 17)
        start = np.random.default_rng(3).integers(-99, 99, shape, dtype="i4")
        weight = np.arange(5 * 17, dtype="i4").reshape(5, 17)
        program = StateProgram(
            "ripple",
            coupling="neighbours",
            items=start.size,
            state={"cube": start, "weight": weight},
            scalars={"height": 5, "width": 17},
            body=_RIPPLE,
        )
        expected = start
        for _ in range(11):
            up, left, above = expected.copy(), expected.copy(), expected.copy()
            up[:, 1:], left[:, :, 1:], above[1:] = expected[:, :-1], expected[:, :, :-1], expected[:-1]
            expected = expected * np.int32(3) + up - left + above + weight
        for strategy in self.strategies(device):
            for in_place in (False, True):
                path = tmp_path / f"{strategy}.kkpt"
                with self.run_in_two(cache, program, path, 4, 11, strategy, strategy, in_place=in_place) as done:
                    np.testing.assert_array_equal(done.state["cube"].numpy(), expected, err_msg=strategy)
                    np.testing.assert_array_equal(done.state["weight"].numpy(), weight, err_msg=strategy)
                    assert done.state["cube"].shape == shape

    def test_late_copies_do_not_overwrite_what_a_slice_wrote(self, device: Device, cache: ProgramCache) -> None:
        """A large array is copied before the small ones: a copy that is late would come in the middle of the work."""
        # One queue has one order: nothing can be late there.
        iterations, times = (60_001, 30) if device.capabilities.queues else (5_001, 1)
        program = _late()
        for _ in range(times):
            with run(cache, program, iterations, "mega", iterations_per_dispatch=iterations) as done:
                for key in ("count", "other"):
                    np.testing.assert_array_equal(done.state[key].numpy(), np.full(9, iterations, "u4"), err_msg=key)
                np.testing.assert_array_equal(done.state["ballast"].numpy(), program.state["ballast"])

    def test_all_arrays_of_a_checkpoint_are_of_one_iteration(
        self, device: Device, cache: ProgramCache, tmp_path: Path
    ) -> None:
        """While the large array is downloaded, iterations change the small ones that are downloaded after it."""
        program = _late()
        for strategy in self.strategies(device):
            path = tmp_path / f"{strategy}.kkpt"

            def several_are_written(_: Run, pattern: str = f"{strategy}.kkpt*") -> bool:
                return len(list(tmp_path.glob(pattern))) >= 5

            with run(
                cache,
                program,
                None,
                strategy,
                until=several_are_written,
                checkpoint=path,
                checkpoint_iterations=1,
                keep_checkpoints=9,
            ) as done:
                assert done.report.checkpoints >= 5
            for file in tmp_path.glob(f"{strategy}.kkpt*"):
                found = read_checkpoint(file)
                for key in ("count", "other"):
                    assert set(found.arrays[key].tolist()) == {found.header.iteration}, strategy
                np.testing.assert_array_equal(found.arrays["ballast"], program.state["ballast"])

    def test_a_run_leaves_the_arrays_of_its_program_unchanged(self, cache: ProgramCache) -> None:
        """Neither a run nor the caller's own array changes what the next run begins with."""
        mine = np.arange(40, dtype="i4")
        program = StateProgram(
            "twice", coupling="independent", state={"x": mine}, body="x_next[kk_item()] = x[kk_item()] * 2;"
        )
        mine[:] = -1
        for _ in range(2):
            with run(cache, program, 3, "mega") as done:
                np.testing.assert_array_equal(done.state["x"].numpy(), np.arange(40) * 8)

    def test_a_result_outlives_its_cache_and_other_runs(
        self, device: Device, cache: ProgramCache, tmp_path: Path
    ) -> None:
        program = StateProgram(
            "twice",
            coupling="independent",
            state={"x": np.arange(40, dtype="i4")},
            body="x_next[kk_item()] = x[kk_item()] * 2;",
        )
        path = tmp_path / "twice.kkpt"
        with ProgramCache(device, cache.cache_dir) as other:
            first = run(other, program, 3, "redispatch", checkpoint=path)
        second = resume(path, cache, program, 5, "redispatch")
        np.testing.assert_array_equal(first.state["x"].numpy(), np.arange(40) * 8)
        np.testing.assert_array_equal(second.state["x"].numpy(), np.arange(40) * 32)
        first.close()
        second.close()
        second.close()
