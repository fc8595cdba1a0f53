"""Helper functions, structs, constants and macros in the body of a state program."""

from __future__ import annotations

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.program import StateProgram
from ...continuous.runner import run
from ...devices.base import Device
from ...errors import CompileError
from .common import StrategyPart

__all__ = ["HelperFunctionTests"]

_HELPERS = """struct ends { int left, right; };
const int HALF = 2;
#define CLAMPED(i, n) ((i) < 0 ? 0 : (i) >= (n) ? (n) - 1 : (i))
struct ends around(int i, int n)
{
    struct ends found = {CLAMPED(i - 1, n), CLAMPED(i + 1, n)};
    return found;
}
int mean(const int* u, struct ends at) { return (u[at.left] + u[at.right]) / HALF; }
"""
_BODY = _HELPERS + "int i = kk_item();\nu_next[i] = mean(u, around(i, kk_items()));"


class HelperFunctionTests(StrategyPart):
    """What stands before the body is the same on every device, and keeps its lines."""

    def test_a_body_may_begin_with_helper_functions(self, device: Device, cache: ProgramCache) -> None:
        values = np.random.default_rng(3).integers(-1000, 1000, 200, dtype="i4")
        program = StateProgram("smooth", coupling="neighbours", state={"u": values}, body=_BODY)
        for _ in range(4):
            total = np.concatenate([values[:1], values[:-1]]) + np.concatenate([values[1:], values[-1:]])
            values = np.trunc(total / 2).astype("i4")
        for strategy in ("redispatch", "mega"):
            with run(cache, program, 4, strategy) as done:
                np.testing.assert_array_equal(done.state["u"].numpy(), values)

    def test_tasks_may_call_helper_functions(self, device: Device, cache: ProgramCache) -> None:
        body = """void add(int* total, int value) { kk_atomic_add(total[0], value); }
add(total, t);
if (t > 0) kk_push(t - 1);"""
        tasks = {"t": np.array([3, 4], "i4")}
        program = StateProgram("count", coupling="queue", state={"total": np.zeros(1, "i4")}, tasks=tasks, body=body)
        with run(cache, program) as done:
            assert done.state["total"].numpy().tolist() == [6 + 10]

    @pytest.mark.parametrize(
        ("old", "new", "line"),
        [("left, right", "left", 6), ("return found", "return fond", 7), ("mean(u", "men(u", 11)],
    )
    def test_mistakes_have_the_lines_of_the_body(
        self, device: Device, cache: ProgramCache, old: str, new: str, line: int
    ) -> None:
        body = new.join(_BODY.rsplit(old, 1))
        program = StateProgram("smooth", coupling="neighbours", state={"u": np.zeros(8, "i4")}, body=body)
        with pytest.raises(CompileError) as caught:
            run(cache, program, 1, "redispatch")
        assert caught.value.line == line
