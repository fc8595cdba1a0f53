"""State programs without a device: what is refused, and what makes two of them the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.samples.states import HEAT, STATE_SAMPLES, TILES
from kernelkeep.testing import run_python

SAMPLES = {sample.name: sample.program(sample.size) for sample in STATE_SAMPLES}
STEERING = kk.StateProgram(
    "steering",
    coupling="independent",
    state={"x": np.zeros(9, "i4")},
    body="int i = kk_item();\nx_next[i] = x[i] + kk_phase();\nif (i == 3) kk_set_phase(2);\nif (x[i] > 9) kk_stop();",
)


def program(body: str = "x_next[kk_item()] = x[kk_item()];", **fields: Any) -> kk.StateProgram:
    fields = {"coupling": "independent", "state": {"x": np.zeros(4, "f4")}} | fields
    return kk.StateProgram(fields.pop("name", "p"), body=body, **fields)


# --- what makes two programs the same


def digests(made: kk.StateProgram) -> tuple[str, str]:
    return made.program_digest, made.layout_digest


def test_the_same_program_has_the_same_digests() -> None:
    for sample in STATE_SAMPLES:
        assert digests(sample.program(40)) == digests(sample.program(40))
    assert len({digests(made) for made in (*SAMPLES.values(), STEERING)}) == len(SAMPLES) + 1


def test_what_does_not_change_what_an_iteration_computes_changes_no_digest() -> None:
    first = digests(program())
    assert digests(program(name="other")) == first
    assert digests(program(group=32)) == first
    assert digests(program(state={"x": np.ones(4, "f4")})) == first, "a checkpoint has its own values"
    assert digests(program(state={"x": np.ones(4, ">f4")})) == first
    assert digests(program(items=4)) == first
    tasks = {"t": np.zeros(5, "i4")}
    queue = digests(program("x[0] = 0.0f;", coupling="queue", tasks=tasks))
    assert digests(program("x[0] = 0.0f;", coupling="queue", tasks={"t": np.ones(9, "i4")}, queue_capacity=7)) == queue


@pytest.mark.parametrize(
    ("change", "layout_too"),
    [
        ({"body": "x_next[kk_item()] = x[kk_item()] ;"}, False),
        ({"scalars": {"k": 2.0}}, False),
        ({"scalars": {"k": np.nextafter(np.float32(1), np.float32(2))}}, False),
        ({"scalars": {"k": 1}}, False),
        ({"scalars": {"k": np.float64(1)}}, False),
        ({"scalars": {"j": 1.0}}, False),
        ({"scalars": {}}, False),
        ({"coupling": "neighbours"}, True),
        ({"items": 3}, True),
        ({"state": {"x": np.zeros(5, "f4")}}, True),
        ({"state": {"x": np.zeros((4, 1), "f4")}}, True),
        ({"state": {"x": np.zeros(4, "i4")}}, True),
        ({"state": {"y": np.zeros(4, "f4")}}, True),
        ({"state": {"x": np.zeros(4, "f4"), "y": np.zeros(4, "f4")}}, True),
    ],
    ids=str,
)
def test_what_changes_an_iteration_changes_the_digests(change: dict[str, Any], layout_too: bool) -> None:
    first, other = program(scalars={"k": 1.0}), program(**({"scalars": {"k": 1.0}} | change))
    assert other.program_digest != first.program_digest
    assert (other.layout_digest != first.layout_digest) == layout_too


def test_fields_of_tasks_are_part_of_the_layout() -> None:
    made = [
        program("x[0] = 0.0f;", coupling="queue", tasks=tasks)
        for tasks in (
            {"t": np.zeros(5, "i4")},
            {"t": np.zeros(5, "f4")},
            {"s": np.zeros(5, "i4")},
            {"t": np.zeros(5, "i4"), "s": np.zeros(5, "i4")},
        )
    ]
    assert len({one.layout_digest for one in made}) == 4


def test_digests_are_the_same_in_every_process_and_for_good() -> None:
    """With another digest nobody could resume the checkpoints there are."""
    script = """
from kernelkeep.samples.states import HEAT
print(HEAT.program(23).program_digest)
"""
    said = {run_python(script, environment={"PYTHONHASHSEED": seed}).stdout.strip() for seed in ("1", "2")}
    assert said == {HEAT.program(23).program_digest}
    made = kk.StateProgram(
        "pinned",
        coupling="neighbours",
        state={"u": np.zeros(5, "f4")},
        scalars={"k": np.float32(0.5)},
        body="u_next[kk_item()] = k * u[kk_item()];",
    )
    assert made.layout_digest == "65e0b09149d0b7acbfa725b81d266fb0393756b27a0bbd9edb76881c532dd8a8"
    assert made.program_digest == "f176f15bd20aa8df8679dfe31018cceb405630cd24b19c4b844b991716c2953e"


# --- what a program says of itself


def test_items_are_the_elements_unless_given() -> None:
    assert program().items == 4
    assert program(state={"x": np.zeros((6, 3), "f4")}).items == 18
    assert program(state={"x": np.zeros((6, 3), "f4")}, items=18).items == 18
    assert program(items=np.int64(3)).items == 3
    assert repr(program()) == "<StateProgram p, independent, 4 items: x>"
    assert repr(TILES.program(75)) == "<StateProgram tiles, queue, 9 tasks: rounds, tally>"


def test_a_queue_has_room_for_twice_its_first_tasks() -> None:
    tasks = {"t": np.zeros(50, "i4")}
    assert program(coupling="queue", tasks=tasks, queue_capacity=10).queue_capacity == 100
    assert program(coupling="queue", tasks=tasks, queue_capacity=1000).queue_capacity == 1000


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, "i4"),
        (-(2**31), "i4"),
        (2**31, "i8"),
        (True, "i4"),
        (1.5, "f4"),
        (np.float64(1.5), "f8"),
        (np.uint32(7), "u4"),
        (np.int8(7), "i1"),
        (np.array(3, "u2"), "u2"),
    ],
)
def test_scalars_have_a_type(value: Any, dtype: str) -> None:
    made = program(scalars={"k": value}).scalars["k"]
    assert made.dtype == np.dtype(dtype) and made == value and made.shape == ()


def test_steering_is_found_in_the_body() -> None:
    assert STEERING.steers
    assert not any(made.steers for made in SAMPLES.values())
    for call in ("kk_stop();", "kk_set_phase(1);", "x_next[0] = kk_float(kk_phase ());"):
        assert program(call).steers


def test_a_program_keeps_its_own_arrays() -> None:
    mine = np.zeros(4, "f4")
    made = program(state={"x": mine})
    mine[:] = 5
    assert (made.state["x"] == 0).all()


# --- what is refused

QUEUE = {"coupling": "queue", "tasks": {"t": np.zeros(3, "i4")}}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"coupling": "neighbors"}, r"got 'neighbors' \(did you mean neighbours\?\)"),
        ({"coupling": "alone"}, "coupling must be one of independent, neighbours, queue"),
        ({"body": ""}, "body of p must be a text"),
        ({"body": " \n "}, "body of p must be a text"),
        ({"body": None}, "body of p must be a text"),
        ({"body": "kk_barrier();"}, "kk_barrier.*kk_item"),
        ({"body": "int i = kk_global_id(0);"}, "kk_global_id"),
        ({"body": "int i = kk_local_id(0);"}, "kk_local_id"),
        ({"body": "int i = kk_group_id(0);"}, "kk_group_id"),
        ({"body": "kk_shared(float, tile, 8);"}, "kk_shared"),
        ({"state": {}}, "state of p must be a mapping"),
        ({"state": [1, 2]}, "state of p must be a mapping"),
        ({"state": {"x": []}}, "empty"),
        ({"state": {"x": 1.0}}, "single number"),
        ({"state": {"x": [[1], [1, 2]]}}, "cannot be an array"),
        ({"state": {"x": ["a"]}}, "numbers"),
        ({"state": {"x": [None]}}, "numbers"),
        ({"state": {"x": [True]}}, "integers or floats"),
        ({"state": {"x": [1j]}}, "integers or floats"),
        ({"state": {"x": np.zeros(4, np.longdouble)}}, "f16"),
        ({"scalars": [1]}, "mapping"),
        ({"scalars": {"k": "x"}}, "single number"),
        ({"scalars": {"k": None}}, "single number"),
        ({"scalars": {"k": [1, 2]}}, "single number"),
        ({"scalars": {"k": 1j}}, "single number"),
        ({"scalars": {"k": 2**70}}, "single number"),
        ({"scalars": {"k": np.longdouble(1)}}, "f16"),
        ({"items": 0}, "items"),
        ({"items": -4}, "items"),
        ({"items": 1.5}, "items"),
        ({"items": True}, "items"),
        ({"items": 2**31}, "items"),
        ({"group": 0}, "group"),
        ({"group": 1.5}, "group"),
        ({"group": (8, 8)}, "group"),
        ({"name": "a b"}, "'a b'"),
        ({"name": 5}, "5"),
        ({"tasks": {"t": [1]}}, "tasks of p must be left out"),
        ({"coupling": "queue"}, "first tasks"),
        ({"coupling": "queue", "tasks": {}}, "first tasks"),
        ({"coupling": "queue", "tasks": [1]}, "first tasks"),
        ({"coupling": "queue", "tasks": {"t": []}}, "empty"),
        ({"coupling": "queue", "tasks": {"t": [1], "s": [1, 2]}}, "one length"),
        ({"coupling": "queue", "tasks": {"t": [[1]]}}, "one dimension"),
        ({**QUEUE, "items": 4}, "items are the tasks in the queue"),
        ({**QUEUE, "queue_capacity": 0}, "queue_capacity"),
        ({**QUEUE, "queue_capacity": 1.5}, "queue_capacity"),
        # names
        ({"scalars": {"x": 1}}, "two things named x"),
        ({**QUEUE, "scalars": {"t": 1}}, "two things named t"),
        ({"coupling": "queue", "tasks": {"x": [1]}}, "two things named x"),
        ({"scalars": {"x_next": 1}}, "x_next"),
        ({"state": {"x": [1], "x_next": [1]}}, "x_next"),
        ({"state": {"x": [1], "x_s1": [1]}}, "x_s1"),
        ({"scalars": {"x_s0": 1}}, "x_s0"),
        ({**QUEUE, "scalars": {"t_t2": 1}}, "t_t2"),
        ({"state": {"kkcontrol": [1]}}, "kkcontrol"),
        ({"scalars": {"kkbudget": 1}}, "kkbudget"),
        ({"state": {"kk_x": [1]}}, "kk_x"),
        ({"scalars": {"float": 1}}, "name float is a word of C"),
        ({"state": {"2x": [1]}}, "2x"),
        ({"state": {5: [1]}}, "5"),
    ],
    ids=str,
)
def test_a_state_program_rejects_wrong_arguments(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(kk.ArgumentError, match=said):
        program(**fields)


def test_items_are_the_elements_of_what_the_body_writes() -> None:
    plane, table = np.zeros((4, 6), "f4"), np.zeros(3, "f4")
    body = "int i = kk_item(); x_next[i] = x[i] + t[i % 3];"
    made = kk.StateProgram("plane", coupling="neighbours", state={"t": table, "x": plane}, body=body)
    assert made.items == 24
    with pytest.raises(kk.ArgumentError, match=r"items of plane must be given.*t 3, x 24.*pass items="):
        kk.StateProgram("plane", coupling="neighbours", state={"t": table, "x": plane}, body=body + "t_next[i] = 0.0f;")


def test_a_python_float_that_does_not_fit_is_refused() -> None:
    body = "int i = kk_item(); u_next[i] = u[i] + k;"
    for value in (1e300, -1e300):
        with pytest.raises(kk.ArgumentError, match="does not fit"):
            kk.StateProgram("p", coupling="independent", state={"u": np.ones(4, "f4")}, scalars={"k": value}, body=body)
    infinite = kk.StateProgram(
        "p", coupling="independent", state={"u": np.ones(4, "f4")}, scalars={"k": float("inf")}, body=body
    )
    assert np.isinf(infinite.scalars["k"])


def test_more_items_than_elements_are_refused_where_each_writes_its_own() -> None:
    state = {"u": np.ones(4, "f4")}
    with pytest.raises(kk.ArgumentError, match="at most 4, the number of elements of u, got 100"):
        kk.StateProgram(
            "p", coupling="independent", items=100, state=state, body="int i = kk_item(); u_next[i] = u[i];"
        )
    guarded = "int i = kk_item(); if (i < 4) u_next[i] = u[i];"
    assert kk.StateProgram("p", coupling="independent", items=100, state=state, body=guarded).items == 100


def _shifted(u: kk.In[kk.f4], u_next: kk.Out[kk.f4]) -> None:
    i = kk.item()
    u_next[i] = u[i + 1]


def _shifted_to_the_end(u: kk.In[kk.f4], u_next: kk.Out[kk.f4]) -> None:
    i = kk.item()
    u_next[i] = u[min(i + 1, kk.items() - 1)]


@pytest.mark.parametrize(
    "body",
    [
        "int i = kk_item(); u_next[i] = u[ i+1 ];",
        "int i = kk_item(); u_next[i] = u[min(i + 1, kk_items() - 1)];",
        "int i = kk_item(); u_next[i] = u[(i + 1) % kk_items()];",
        _shifted,
        _shifted_to_the_end,
    ],
)
def test_independent_items_that_read_their_neighbours_are_refused(body: Any) -> None:
    state = {"u": np.zeros(4, "f4")}
    with pytest.raises(kk.ArgumentError, match=r'uses u at i \+ 1, .*pass coupling="neighbours"'):
        kk.StateProgram("shifted", coupling="independent", state=state, body=body)
    assert kk.StateProgram("shifted", coupling="neighbours", state=state, body=body)


@pytest.mark.parametrize(
    "body",
    [
        "int i = kk_item(); u_next[i] = u[i] + table[i + 1];",  # nothing writes the table
        "int i = kk_item() / 2; u_next[kk_item()] = u[i - 1];",  # unclear
        "int i = kk_item(); u_next[i] = u[i + 0];",
        "int i = kk_item(); u_next[i] = u[table[i + 1] > 0.0f ? i : i];",
        "int i = kk_item(); pair_next[2 * i] = pair[2 * i + 1]; pair_next[2 * i + 1] = u[i];",
    ],
)
def test_independent_items_may_read_what_does_not_change(body: str) -> None:
    state = {"u": np.zeros(4, "f4"), "table": np.zeros(9, "f4"), "pair": np.zeros(8, "f4")}
    assert kk.StateProgram("looked_up", coupling="independent", items=4, state=state, body=body)
