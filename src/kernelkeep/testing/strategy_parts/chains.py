"""Chains: iterations that a driver takes as one launch, and that are committed together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.initial_state import InitialState
from ...continuous.program import StateProgram
from ...continuous.run import Run
from ...continuous.run_options import RunOptions
from ...continuous.runner import resume, run
from ...continuous.session import Session
from ...devices.base import Device
from .common import StrategyPart

__all__ = ["ChainTests"]

_Words = np.ndarray[Any, Any]


def _mixing(items: int) -> StateProgram:
    """Integers that mix with their neighbours, with the iteration, and with an array that no item writes."""
    return StateProgram(
        "mixing",
        coupling="neighbours",
        state={"x": np.arange(items, dtype="u4"), "salt": np.full(1, 5, "u4")},
        body="int i = kk_item(); x_next[i] = x[i] * 3u + x[(i + 1) % kk_items()] + salt[0] + kk_uint(kk_iteration());",
        items=items,
    )


def _expected(of: Session | StateProgram, salts: list[int]) -> _Words:
    """The state after as many iterations as there are salts."""
    program = of.program if isinstance(of, Session) else of
    x = np.arange(program.items, dtype="u4")
    for iteration, salt in enumerate(salts):
        x = x * np.uint32(3) + np.roll(x, -1) + np.uint32(salt + iteration)
    return x


class ChainTests(StrategyPart):
    """Where a driver takes many launches as one, single iterations become links of a chain."""

    @pytest.fixture(autouse=True)
    def _needs_chains(self, request: pytest.FixtureRequest, device: Device) -> None:
        if request.function.__name__ in vars(ChainTests) and not device.replays_whole:
            pytest.skip(f"{device.spec} takes launches one by one")

    @pytest.fixture
    def session(self, cache: ProgramCache) -> Iterator[Session]:
        """Of a state with more than one group."""
        program = _mixing(5_000)
        opened = Session(cache, program, InitialState.of(program), RunOptions())
        yield opened
        opened.close()

    def test_chains_and_other_slices_follow_each_other(self, session: Session) -> None:
        done = 0
        for kind, count in (
            ("chain", 2), ("chain", 4), ("step", 1), ("chain", 6), ("grid", 4), ("chain", 10), ("block", 5), ("step", 1),
            ("chain", 4), ("block", 6), ("grid", 3), ("chain", 2),
        ):  # fmt: skip
            if kind == "chain":
                session.chain(count)
            else:
                session.slice(kind, count)
            done += count
            session.synchronize()
            assert session.iteration == done
            np.testing.assert_array_equal(
                session.state.copy(0)["x"].numpy(), _expected(session, [5] * done), err_msg=f"{kind} {count} to {done}"
            )

    def test_a_chain_commits_twice_and_what_it_read_stays_until_then(self, session: Session) -> None:
        session.slice("step")
        session.synchronize()
        before = session.generation
        session.chain(8)
        session.chain(8)
        session.synchronize()
        assert session.generation == before + 4 and session.iteration == 17
        half = session.state.arrays[1 - session.state.current]["x"].numpy()  # what the last commit began with
        np.testing.assert_array_equal(half, _expected(session, [5] * 13))

    def test_what_is_steered_reaches_every_copy(self, session: Session) -> None:
        session.chain(6)
        session.synchronize()
        session.state.write({"salt": [9]})
        session.chain(10)
        session.synchronize()
        expected = _expected(session, [5] * 6 + [9] * 10)
        np.testing.assert_array_equal(session.state.copy(0)["x"].numpy(), expected)

    def test_a_long_run_is_exact_wherever_it_must_stop(self, cache: ProgramCache, tmp_path: Path) -> None:
        """Chains end where a state or the end is due."""
        program, shown = _mixing(60), dict[int, _Words]()
        path = tmp_path / "mixing.kkpt"

        def steer(going: Run) -> bool:
            going.steer(salt=[5 + going.iteration // 1000])
            return False

        options: dict[str, Any] = {"until": steer, "state_iterations": 1000, "checkpoint": path}
        options["on_state"] = lambda iteration, state: shown.__setitem__(iteration, state["x"])
        run(cache, program, 2500, "buffered", checkpoint_iterations=100, **options).close()
        with resume(
            path, cache, program, 4321, "auto", **{k: v for k, v in options.items() if k != "checkpoint"}
        ) as done:
            salts = [5 + iteration // 1000 for iteration in range(4321)]
            np.testing.assert_array_equal(done.state["x"].numpy(), _expected(program, salts))
        assert list(shown) == [1000, 2000, 3000, 4000]
        for iteration, x in shown.items():
            np.testing.assert_array_equal(x, _expected(program, salts[:iteration]))

    @pytest.mark.parametrize("items", [140_000, 300_000])
    def test_links_of_large_and_of_small_groups_compute_the_same(self, cache: ProgramCache, items: int) -> None:
        """What fits on the device in large groups has them."""
        program = _mixing(items)
        opened = Session(cache, program, InitialState.of(program), RunOptions())
        try:
            opened.chain(4)
            opened.synchronize()
            np.testing.assert_array_equal(opened.state.copy(0)["x"].numpy(), _expected(opened, [5] * 4))
        finally:
            opened.close()

    def test_auto_measures_chains_in_a_long_run(self, cache: ProgramCache) -> None:
        program = _mixing(60)
        with run(cache, program, 25_001) as done:
            np.testing.assert_array_equal(done.state["x"].numpy(), _expected(program, [5] * 25_001))
            told = ("µs in a chain of dispatches", "ms, beside which a dispatch costs nothing")  # a machine may be busy
            assert any(one in done.report.reason for one in told)
