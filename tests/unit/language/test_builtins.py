"""The table of built-ins: every spelling can be called, and nothing else can."""

from __future__ import annotations

from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.language import tree
from kernelkeep.language.builtins import BUILTINS, CONSTANTS, CONSTRUCTORS, CONVERSIONS, state_builtins
from kernelkeep.language.guarantees import violations
from kernelkeep.language.types import F4, I4

ARGUMENTS = {
    "position": ["0"],
    "fixed": [],
    "atomic": ["z[0]", "1", "2"],
    "load4": ["y", "n"],
    "store4": ["y", "n", "kk_load4(x, 0)"],
    "float": ["a", "x[0]", "y[0]"],
    "test": ["a"],
    "number": ["n", "3", "z[0]"],
    "integer": ["n"],
    "bits": ["a"],
    "reduce": ["v", "v"],
    "direction": ["v", "v"],
    "print": [],
}


@pytest.mark.parametrize("name", BUILTINS)
def test_every_spelling_can_be_called(read: Any, name: str) -> None:
    builtin = BUILTINS[name].builtin
    arguments = ", ".join(ARGUMENTS[builtin.rule][: builtin.count])
    if name == "as_float" or name.endswith("ToFloat") or name.endswith("as_float"):
        arguments = "n"
    module = read(f"float3 v = {{1, 2, 3}};\n{name}({arguments});").module
    called = module.kernel.body.statements[-1].expression
    assert isinstance(called, tree.BuiltinCall)
    assert called.builtin is builtin
    assert violations(module) == []


@pytest.mark.parametrize("name", BUILTINS)
def test_a_wrong_number_of_arguments_is_a_mistake(read: Any, name: str) -> None:
    builtin = BUILTINS[name].builtin
    if builtin.rule == "print" or name in ("barrier", "work_group_barrier", "mem_fence"):
        return
    arguments = ", ".join(["n"] * (builtin.count + 1))
    with pytest.raises(kk.CompileError, match=f"{name} takes {builtin.count} argument"):
        read(f"{name}({arguments});")


def test_the_built_ins_of_portable_kernels_are_there() -> None:
    names = "global_id local_id group_id group_size group_count global_size barrier fence load4 store4 print".split()
    names += [f"atomic_{name}" for name in "add sub min max and or xor exchange cas load store".split()]
    assert all(f"kk_{name}" in BUILTINS for name in names)
    assert {"kk_int", "kk_uint", "kk_float", "kk_double"} <= CONVERSIONS.keys()
    assert {"kk_make_float4", "make_float4", "make_int2", "make_uint3"} <= CONSTRUCTORS.keys()
    for name in "sqrt exp log pow sin cos tanh floor fabs fmin fmax fma".split():
        assert BUILTINS[f"{name}f"].builtin is BUILTINS[name].builtin
        assert BUILTINS[f"{name}f"].precision is F4


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_are_literals(read: Any, shown: Any, name: str) -> None:
    (statement,) = read(f"d[0] = {name};").module.kernel.body.statements
    assert isinstance(statement.expression.value, tree.Literal)


def test_built_ins_of_state_programs_are_extra(read: Any, shown: Any) -> None:
    body = "kk_push(kk_item(), 0.5);\nif (kk_iteration() > 3) kk_stop();\nkk_set_phase(kk_phase() + kk_items());"
    with pytest.raises(kk.CompileError, match="unknown function kk_item"):
        read(body)
    module = read(body, extra=state_builtins([I4, F4])).module
    assert shown(module.kernel.body.statements[0]) == "kk_push(kk_item(), 0.5:float)"
    with pytest.raises(kk.CompileError, match="kk_push takes 1 argument, got 2"):
        read(body, extra=state_builtins([I4]))
