"""State programs whose body is a Python function: what they compute, what is known of them before, and their mistakes."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, no-any-return, name-defined"

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.cache.key import digest_of
from kernelkeep.continuous.body_writes import Keep
from kernelkeep.continuous.lowering.forms import lower
from kernelkeep.testing import open_or_skip
from kernelkeep.words import Coupling

N = 40
START = np.linspace(0, 1, N, dtype="f4") ** 2
LIMIT = 0.9
FACTOR = 2


@kk.function
def bend(u: kk.In[kk.f4], i: kk.i4) -> kk.f4:
    return u[i - 1] - 2 * u[i] + u[i + 1]


@kk.function
def counts_items(v: kk.f4) -> kk.f4:
    return v * kk.items()


def heat(u, u_next, k):
    """One step."""
    i = kk.item()
    if 0 < i < kk.items() - 1:
        u_next[i] = u[i] + k * bend(u, i)
    else:
        u_next[i] = u[i]


def grow(u, u_next, k):
    i = kk.item()
    if i >= kk.items():
        return
    k *= FACTOR
    int_, kkv = kk.iteration(), 1  # names that mean something in the text around
    u_next[i] = u[i] * (1 + k) + int_ % 3 * kkv


def until(u, u_next):
    i = kk.item()
    v = u[i] * 0.5 + kk.phase()
    u_next[i] = v
    if kk.iteration() == 3:
        kk.set_phase(1)
    if v > LIMIT and kk.iteration() > 5:
        kk.stop()


def split(low, high, leaves):
    if high - low <= 3:
        kk.atomic_add(leaves[0], 1)
        return
    middle = (low + high) // 2
    kk.push(low, middle)
    kk.push(middle, high)


C_BODIES = {
    heat: """int i = kk_item(); if (i > 0 && i < kk_items() - 1) u_next[i] = u[i] + k * (u[i - 1] - 2 * u[i] + u[i + 1]);
             else u_next[i] = u[i];""",
    grow: "int i = kk_item(); u_next[i] = u[i] * (1 + k * 2) + kk_iteration() % 3;",
    until: """int i = kk_item(); float v = u[i] * 0.5f + kk_phase(); u_next[i] = v; if (kk_iteration() == 3) kk_set_phase(1);
              if (v > 0.9f && kk_iteration() > 5) kk_stop();""",
    split: """if (high - low <= 3) { kk_atomic_add(leaves[0], 1); return; } int middle = (low + high) / 2;
              kk_push(low, middle); kk_push(middle, high);""",
}  # fmt: skip


def program(body: Any, of: Any) -> kk.StateProgram:
    name = of.__name__
    if of is split:
        tasks = {"low": np.array([0], "i4"), "high": np.array([100], "i4")}
        return kk.StateProgram(name, coupling="queue", state={"leaves": np.zeros(1, "i4")}, tasks=tasks, body=body)
    coupling: Coupling = "neighbours" if of is heat else "independent"
    scalars = {} if of is until else {"k": np.float32(0.1)}
    return kk.StateProgram(name, coupling=coupling, state={"u": START}, scalars=scalars, body=body)


@pytest.fixture(params=["reference", "opencl", "opengl"], scope="module")
def cache(
    request: pytest.FixtureRequest, pocl: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kk.ProgramCache]:
    with open_or_skip(request.param, pocl if request.param == "opencl" else None) as device:
        with kk.ProgramCache(device, cache_dir=tmp_path_factory.mktemp("cache")) as cache:
            yield cache


@pytest.mark.parametrize("body", C_BODIES, ids=lambda body: body.__name__)
def test_python_computes_what_c_computes(cache: kk.ProgramCache, body: Any) -> None:
    runs = [kk.run(cache, program(one, body), iterations=12) for one in (C_BODIES[body], body)]
    assert runs[0].report.iterations == runs[1].report.iterations
    for key, array in runs[0].state.items():
        found = runs[1].state[key].numpy()
        assert (found != program(body, body).state[key]).any()
        np.testing.assert_allclose(found, array.numpy(), rtol=1e-6)


def test_a_state_of_halves_is_rounded_after_each_operation(cache: kk.ProgramCache) -> None:
    start, k = START.astype("f2"), np.float16(0.3)
    body = "int i = kk_item(); u_next[i] = u[i] + k * (1 - u[i]);"
    program = kk.StateProgram("halves", coupling="independent", state={"u": start}, scalars={"k": k}, body=body)
    with kk.run(cache, program, iterations=5) as run:
        found = run.state["u"].numpy()
    for _ in range(5):
        start = start + k * (np.float16(1) - start)
    assert found.tolist() == start.tolist()


def test_what_a_body_writes_is_known_without_reading_it() -> None:
    assert not program(heat, heat).keeps
    assert not program(grow, grow).keeps
    assert program(until, until).steers
    assert not program(heat, heat).steers
    assert program(heat, heat).items == N

    def some(u, u_next):
        i = kk.item()
        if u[i] > 0:
            u_next[i] = 0

    def elsewhere(u, u_next):
        u_next[kk.items() - 1 - kk.item()] = u[kk.item()]

    assert program(some, until).keeps == {"u": Keep.OWN}
    made = kk.StateProgram("elsewhere", coupling="neighbours", state={"u": START}, body=elsewhere)
    assert made.keeps == {"u": Keep.WHOLE}


def test_a_body_that_cannot_work_is_refused_at_once() -> None:
    def writes_old(u):
        u[kk.item()] = 1

    def in_groups(u_next):
        u_next[kk.global_id(0)] = 1

    def unknown(u, v):
        pass

    cases = [
        (writes_old, "writes to u, which is the old state and stays as it is; write to u_next"),
        (in_groups, "uses kk_global_id, but a strategy decides which group runs an item"),
        (unknown, "takes v, and there is only u, u_next"),
        (lambda u: None, "stands before a def"),
        (bend, "must be a text in C or a plain Python function"),
        (7, "must be a text in C or a Python function, got 7"),
    ]
    for body, message in cases:
        with pytest.raises(kk.ArgumentError, match=message):
            kk.StateProgram("p", coupling="independent", state={"u": START}, body=body)  # type: ignore[arg-type]


def test_mistakes_have_the_line_of_the_file(tmp_path: Any) -> None:
    def wrong(u, u_next):
        i = kk.item()
        u_next[i] = u[i] + ii  # noqa: F821

    def in_helper(u, u_next):
        u_next[kk.item()] = counts_items(u[0])

    def forgotten(u):
        u_next[kk.item()] = u[kk.item()]  # noqa: F821

    with open_or_skip("reference") as device, kk.ProgramCache(device, cache_dir=tmp_path) as cache:
        with pytest.raises(kk.CompileError, match="unknown name u_next: it must be a parameter, beside u"):
            kk.run(cache, program(forgotten, until), iterations=1)
        with pytest.raises(kk.CompileError) as caught:
            kk.run(cache, program(wrong, until), iterations=1)
        assert caught.value.line == wrong.__code__.co_firstlineno + 2
        assert "unknown name ii; did you mean i?\n            u_next[i] = u[i] + ii  # noqa: F821\n" in str(
            caught.value
        )
        assert __file__ in str(caught.value)
        with pytest.raises(kk.CompileError, match=r"kk\.items is for the body itself: pass its value to this function"):
            kk.run(cache, program(in_helper, until), iterations=1)


def test_the_program_is_its_text_and_what_it_uses() -> None:
    def body_with(limit: float) -> Any:
        def body(u, u_next):
            u_next[kk.item()] = u[kk.item()] * limit

        return body

    digests = {program(body_with(limit), until).program_digest for limit in (0.5, 0.5, 0.25)}
    assert len(digests) == 2
    copy = pickle.loads(pickle.dumps(program(heat, heat)))
    assert copy.program_digest == program(heat, heat).program_digest


def test_the_key_of_a_kernel_is_the_same_wherever_its_body_stands(tmp_path: Any) -> None:
    body = "import kernelkeep as kk\n{}def twice(u, u_next):\n    u_next[kk.item()] = u[kk.item()] * 2\n"
    keys: dict[str, set[str]] = {"opencl": set(), "glsl": set(), "reference": set()}
    for name, before in (("first", ""), ("second", "\n\n")):
        file = tmp_path / f"{name}.py"
        file.write_text(body.format(before))
        names: dict[str, Any] = {}
        exec(compile(file.read_text(), str(file), "exec"), names)
        program = kk.StateProgram("twice", state={"u": START}, body=names["twice"], coupling="neighbours")
        for language, found in keys.items():
            found.add(digest_of(lower(program, "step").kernel.source(language), ""))
    # Errors of the reference device name the file and the line, so there they are two programs.
    assert {language: len(found) for language, found in keys.items()} == {"opencl": 1, "glsl": 1, "reference": 2}
