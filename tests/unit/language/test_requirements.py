"""What a kernel needs of a target."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from kernelkeep.language.requirements import requirements


def test_types_atomics_and_shared_memory_are_named(read: Any) -> None:
    body = (
        "kk_shared(float3, t, 4, 2);\nlong v = 1;\nkk_atomic_max(y[0], 1); kk_atomic_add(z[0], (int)v); kk_barrier();"
    )
    needs = requirements(read(body).module)
    assert needs.types == {"f4", "i4", "u4", "i8", "f8", "u1"}
    assert needs.atomics == {("max", "f4"), ("add", "i4")}
    assert needs.builtins == {"kk_atomic_max", "kk_atomic_add", "kk_barrier"}
    assert needs.shared_bytes == 4 * 2 * 16


def test_arrays_with_atomics_are_found_through_helper_functions(read: Any) -> None:
    body = """void count(int to[], int other[], int i) { kk_atomic_add(to[i], 1); other[i] = 1; }
void twice(int to[], int other[]) { count(to, other, 0); count(to, other, 1); }
kk_shared(int, t, 4, 4); kk_shared(int, s, 8);
twice(z + 2, s); kk_atomic_store(t[0][n], kk_atomic_load(t[n][0]) + 1);"""
    found = requirements(read(body).module).atomic_variables
    assert sorted(variable.name for variable in found) == ["t", "to", "to", "z"]


def test_what_a_helper_function_uses_counts_and_literals_without_suffix_need_no_double(read: Any) -> None:
    body = "half f(half v) { return v * 0.5; }\ny[0] = f(0.25) * 0.1;"
    needs = requirements(read(body, parameters=read.__defaults__[0][:2]).module)
    assert needs.types == {"f2", "f4", "i4"}


def test_the_language_is_not_imported_by_the_package_or_a_kernel() -> None:
    code = """import sys, kernelkeep as kk
kk.PortableKernel("k", [kk.Buffer("x", "f4")], "x[0] = 1.0f;").source("glsl")
print([name for name in sys.modules if name.startswith("kernelkeep.language")])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
