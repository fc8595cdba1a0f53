"""What an iteration does not write keeps its old value: every strategy against NumPy, with random states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelkeep as kk
from kernelkeep.continuous.body_writes import Keep
from kernelkeep.testing.strategy_parts.common import StrategyPart
from kernelkeep.words import Coupling

Arrays = dict[str, np.ndarray[Any, Any]]
ITEMS = 37
_A, _C = np.uint32(1664525), np.uint32(1013904223)


class Shape:
    """A body that skips writes, what must be carried over for it, and the same in NumPy."""

    def __init__(
        self,
        name: str,
        coupling: Coupling,
        sizes: dict[str, int],
        body: str,
        keeps: dict[str, Keep],
        step: Callable[[Arrays, int, np.uint32], Arrays],
        group: int = 16,
    ) -> None:
        self.group = group
        self.name, self.coupling, self.sizes, self.body, self.keeps, self.step = (
            name,
            coupling,
            sizes,
            body,
            keeps,
            step,
        )

    def program(self, seed: int, mask: int) -> kk.StateProgram:
        dice = np.random.default_rng(seed)
        state = {key: dice.integers(0, 2**32, size, dtype="u4") for key, size in self.sizes.items()}
        return kk.StateProgram(
            self.name,
            coupling=self.coupling,
            items=ITEMS,
            state=state,
            scalars={"mask": np.uint32(mask)},
            body=self.body,
            group=self.group,
        )


def _sometimes(old: Arrays, iteration: int, mask: np.uint32) -> Arrays:
    u, v = old["u"], old["v"]
    left = np.roll(u, 1)
    new = {"u": u.copy(), "v": v.copy()}
    hit = ((u + left + np.uint32(iteration)) & mask) == 0
    new["u"][hit] = (u * np.uint32(5) + left + np.uint32(1))[hit]
    goes_on = (u & np.uint32(4)) == 0
    new["v"][:ITEMS][goes_on] = (v[:ITEMS] + left)[goes_on]
    return new


def _alone(old: Arrays, iteration: int, mask: np.uint32) -> Arrays:
    a, b, c = old["a"], old["b"], old["c"]
    new = {"a": a.copy(), "b": b.copy(), "c": c.copy()}
    hit = ((a >> np.uint32(iteration % 7)) & mask) == 0
    new["a"][hit] = (a * _A + _C)[hit]
    odd = ~hit & ((a & np.uint32(1)) != 0)
    new["b"][~odd] = (b + a)[~odd]
    short = (~odd & ((a & np.uint32(2)) != 0))[:5]
    new["c"][short] += np.uint32(1)
    return new


def _scattered(old: Arrays, iteration: int, mask: np.uint32) -> Arrays:
    x = old["x"]
    new = {"x": x.copy()}
    even = 2 * np.arange(ITEMS)
    target = even + ((x[even] >> np.uint32(3)) & np.uint32(1)).astype(int)
    goes = ((x[even] + np.uint32(iteration)) & mask) == 0
    new["x"][target[goes]] = (x[even] * np.uint32(3) + x[even + 1] + _C)[goes]
    return new


def _phased(old: Arrays, iteration: int, mask: np.uint32) -> Arrays:
    u, w = old["u"], old["w"]
    phase = (iteration + 2) // 4  # a new one holds from the iterations 2, 6, … on
    new = {"u": u + np.uint32(1 + 100 * phase), "w": w.copy()}
    at = iteration * 7 % 11
    new["w"][at : at + 1] += (u[5:6] & mask) + np.uint32(1)
    return new


SHAPES = (
    Shape(
        "sometimes",
        "neighbours",
        {"u": ITEMS, "v": ITEMS + 13},
        """int i = kk_item();
        int l = i > 0 ? i - 1 : kk_items() - 1;
        if (((u[i] + u[l] + kk_uint(kk_iteration())) & mask) == 0u) u_next[i] = u[i] * 5u + u[l] + 1u;
        if ((u[i] & 4u) != 0u) return;
        v_next[i] = v[i] + u[l];""",
        {"u": Keep.OWN, "v": Keep.OWN},
        _sometimes,
    ),
    Shape(
        "alone",
        "independent",
        {"a": ITEMS, "b": ITEMS, "c": 5},
        """int i = kk_item();
        if (((a[i] >> kk_uint(kk_iteration() % 7)) & mask) == 0u) a_next[i] = a[i] * 1664525u + 1013904223u;
        else if ((a[i] & 1u) != 0u) return;
        b_next[i] = b[i] + a[i];
        if (i < 5 && (a[i] & 2u) != 0u) c_next[i] = c[i] + 1u;""",
        {"a": Keep.OWN, "b": Keep.OWN, "c": Keep.OWN},
        _alone,
    ),
    Shape(
        "scattered",
        "neighbours",
        {"x": 2 * ITEMS + 3},
        """int e = 2 * kk_item();
        if (((x[e] + kk_uint(kk_iteration())) & mask) == 0u)
            x_next[e + kk_int((x[e] >> 3) & 1u)] = x[e] * 3u + x[e + 1] + 1013904223u;""",
        {"x": Keep.WHOLE},
        _scattered,
    ),
    Shape(
        "phased",
        "neighbours",
        {"u": ITEMS, "w": 11},
        """int i = kk_item();
        u_next[i] = u[i] + kk_uint(1 + kk_phase() * 100);
        if (i == 3 && kk_iteration() % 4 == 1) kk_set_phase(kk_phase() + 1);
        if (i == 5) w_next[kk_iteration() * 7 % 11] += (u[i] & mask) + 1u;""",
        {"w": Keep.WHOLE},
        _phased,
        group=128,  # PoCL lost iterations of larger groups
    ),
)


class PartialWrites(StrategyPart):
    @pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape.name))
    @given(
        seed=st.integers(0, 2**20),
        mask=st.sampled_from([0, 1, 3, 7, 0x30, 0xFFFFFFFF]),
        iterations=st.integers(1, 9),
        size=st.sampled_from([None, 2, 3, 4]),
        in_place=st.booleans(),
    )
    @settings(max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def test_what_is_not_written_keeps_its_old_value(
        self,
        device: kk.Device,
        cache: kk.ProgramCache,
        shape: Shape,
        seed: int,
        mask: int,
        iterations: int,
        size: int | None,
        in_place: bool,
    ) -> None:
        program = shape.program(seed, mask)
        assert dict(program.keeps) == shape.keeps
        expected: Arrays = dict(program.state)
        for iteration in range(iterations):
            expected = shape.step(expected, iteration, np.uint32(mask))
        for strategy in self.strategies(device):
            with kk.run(cache, program, iterations, strategy, iterations_per_dispatch=size, in_place=in_place) as done:
                for key, array in expected.items():
                    np.testing.assert_array_equal(done.state[key].numpy(), array, err_msg=f"{key} by {strategy}")


@pytest.mark.opencl
class TestOpenCL(PartialWrites):
    backend = "opencl"


@pytest.mark.opengl
class TestOpenGL(PartialWrites):
    backend = "opengl"


@pytest.mark.cuda
class TestCUDA(PartialWrites):
    backend = "cuda"
