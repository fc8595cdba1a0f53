"""Kernels with one bug each: what it is, and the line it is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelkeep as kk

__all__ = ["BUGS", "Bug"]


@dataclass(frozen=True)
class Bug:
    """A kernel, how it is launched, and what is found. `args`: an array is uploaded, a shape is an array never written."""

    name: str
    kind: str
    line: int
    body: str
    params: Sequence[kk.Buffer | kk.Scalar]
    args: Sequence[Any]
    group: int | tuple[int, ...] = 8
    grid: int | tuple[int, ...] = 1
    array: str = ""
    index: int | None = None
    item: tuple[int, int, int] | None = None

    @property
    def kernel(self) -> kk.PortableKernel:
        """As a user would write it."""
        return kk.PortableKernel(self.name, params=self.params, body=self.body, group=self.group)


def _floats(count: int) -> np.ndarray[Any, Any]:
    return np.arange(count, dtype="f4")


def _ints(count: int) -> np.ndarray[Any, Any]:
    return np.arange(count, dtype="i4")


X, Y = kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw")
OUT, XI, N = kk.Buffer("y", "f4", "w"), kk.Buffer("x", "i4", "rw"), kk.Scalar("n", "i4")

BUGS = [
    # --- out of bounds
    Bug("no_guard", "out of bounds", 2, "int i = kk_global_id(0);\ny[i] = 1.0f;", [Y], [_floats(10)], grid=2,
        array="y", index=10, item=(10, 0, 0)),
    Bug("off_by_one", "out of bounds", 3, "int i = kk_global_id(0);\nif (i <= n)\n  y[i] += x[i];", [X, Y, N],
        [_floats(7), _floats(7), 7], array="y", index=7),
    Bug("negative", "out of bounds", 3, "int i = kk_global_id(0);\nif (i < n)\n  y[i] = x[i - 1];", [X, Y, N],
        [_floats(8), _floats(8), 8], array="x", index=-1, item=(0, 0, 0)),
    Bug("neighbour", "out of bounds", 2, "int i = kk_global_id(0);\nfloat d = x[i + 1] - x[i];\ny[i] = d;", [X, Y],
        [_floats(8), _floats(8)], array="x", index=8, item=(7, 0, 0)),
    Bug("shared_end", "out of bounds", 3,
        "kk_shared(float, tile, 8);\nint l = kk_local_id(0);\ntile[l + 1] = 1.0f;\nkk_barrier();\ny[l] = tile[l];",
        [Y], [_floats(8)], array="tile", index=8),
    Bug("shared_row", "out of bounds", 3,
        "kk_shared(float, tile, 4, 5);\nint l = kk_local_id(0);\ntile[0][l] = 1.0f;\nkk_barrier();\ny[l] = 0.0f;",
        [Y], [_floats(8)], array="tile", index=5),
    Bug("local_array", "out of bounds", 3, "float a[4];\nfor (int k = 0; k <= 4; k++)\n  a[k] = 0.0f;\ny[0] = a[0];",
        [Y], [_floats(1)], group=1, array="a", index=4),
    Bug("from_data", "out of bounds", 2, "int i = kk_global_id(0);\ny[x[i]] = 2.0f;",
        [kk.Buffer("x", "i4", "r"), OUT], [np.array([3, 2, 1, 0, 4, 5, 6, 99], "i4"), _floats(8)], array="y", index=99),
    Bug("in_helper", "out of bounds", 1, "float last(const float a[], int n) { return a[n]; }\ny[0] = last(x, n);",
        [X, Y, N], [_floats(4), _floats(1), 4], group=1, array="x", index=4),
    Bug("store4_end", "out of bounds", 2,
        "int i = 4 * kk_global_id(0);\nkk_store4(y, i, kk_make_float4(1.0f, 2.0f, 3.0f, 4.0f));",
        [OUT], [_floats(30)], array="y", index=28),
    Bug("wrong_width", "out of bounds", 2, "int c = kk_global_id(0), r = kk_global_id(1);\ny[r * (n + 1) + c] = 1.0f;",
        [OUT, N], [_floats(64), 8], group=(8, 8), array="y"),
    # --- never written
    Bug("sum_unset", "uninitialised", 2, "float s;\nfor (int k = 0; k < 4; k++) s += x[k];\ny[0] = s;", [X, Y],
        [_floats(4), _floats(1)], group=1, array="s"),
    Bug("one_branch", "uninitialised", 4, "int i = kk_global_id(0);\nfloat v;\nif (i > 0) v = 1.0f;\ny[i] = v;", [Y],
        [_floats(8)], array="v", item=(0, 0, 0)),
    Bug("array_unset", "uninitialised", 3, "float a[4];\na[0] = 1.0f; a[1] = 2.0f;\ny[0] = a[0] + a[2];", [Y], [_floats(1)],
        group=1),
    Bug("field_unset", "uninitialised", 3,
        "struct pair { float a, b; };\nstruct pair p; p.a = 1.0f;\ny[0] = p.a + p.b;", [Y], [_floats(1)],
        group=1),
    Bug("vector_unset", "uninitialised", 3, "float4 v;\nv.x = 1.0f; v.y = 2.0f;\ny[0] = v.x + v.z;", [Y], [_floats(1)],
        group=1),
    Bug("shared_unset", "uninitialised", 4,
        "kk_shared(float, tile, 8);\nint l = kk_local_id(0);\nif (l < 7) tile[l] = 1.0f; kk_barrier();\ny[l] = tile[l];",
        [Y], [_floats(8)], array="tile", index=7),
    Bug("read_of_w", "uninitialised", 2, "int i = kk_global_id(0);\ny[i] += x[i];", [X, OUT], [_floats(8), _floats(8)],
        array="y", index=0),
    Bug("empty_input", "uninitialised", 2, "int i = kk_global_id(0);\ny[i] = x[i];", [X, OUT], [(8,), _floats(8)],
        array="x", index=0),
    # --- races
    Bug("no_barrier", "race", 3,
        "kk_shared(float, tile, 8);\nint l = kk_local_id(0);\ntile[l] = x[l];\ny[l] = tile[7 - l];", [X, Y],
        [_floats(8), _floats(8)], array="tile"),
    Bug("reduction", "race", 6,
        "kk_shared(float, s, 8);\nint l = kk_local_id(0);\ns[l] = x[l];\nkk_barrier();\n"
        "for (int k = 4; k > 0; k /= 2)\n  if (l < k) s[l] += s[l + k];\nkk_barrier();\nif (l == 0) y[0] = s[0];",
        [X, Y], [_floats(8), _floats(1)], array="s"),
    Bug("in_place", "race", 2, "int i = kk_global_id(0);\ny[i] = y[(i + 1) % n];", [Y, N], [_floats(8), 8], array="y"),
    Bug("between_groups", "race", 2, "int i = kk_global_id(0);\ny[i / 16] = kk_float(i);", [OUT], [_floats(2)], grid=4,
        array="y", index=0),
    Bug("counter", "race", 1, "x[0] += 1;", [XI], [_ints(1)], array="x", index=0, item=(1, 0, 0)),
    Bug("mixed_atomic", "race", 2, "int i = kk_global_id(0);\nif (i < 4) kk_atomic_add(x[0], 1); else x[0] = 7;", [XI],
        [_ints(1)], array="x", index=0, item=(4, 0, 0)),
    Bug("read_too_early", "race", 3,
        "kk_shared(int, h, 8);\nint l = kk_local_id(0);\nh[l] = 0; kk_barrier(); kk_atomic_add(h[l / 2], 1);\nx[l] = h[l];",
        [XI], [_ints(8)], array="h"),
    # --- barriers
    Bug("in_branch", "barrier", 2, "int l = kk_local_id(0);\nif (l < 4) kk_barrier();\ny[l] = 1.0f;", [Y], [_floats(8)]),
    Bug("in_loop", "barrier", 3, "int l = kk_local_id(0);\nfor (int k = 0; k <= l; k++) {\n  kk_barrier();\n}\ny[l] = 1.0f;",
        [Y], [_floats(8)]),
    Bug("two_barriers", "barrier", 2, "int l = kk_local_id(0);\nif (l < 4) kk_barrier();\nelse kk_barrier();\ny[l] = 1.0f;",
        [Y], [_floats(8)]),
    # --- overflow into an index
    Bug("product", "overflow", 2, "int i = kk_global_id(0);\ny[i * n * n] = 1.0f;", [OUT, N], [_floats(8), 65536],
        array="y", index=1 << 32, item=(1, 0, 0)),
    Bug("stored_product", "overflow", 2, "int i = kk_global_id(0) + 1;\nint k = i * n;\ny[k - k + i - 1] = 1.0f;", [OUT, N],
        [_floats(8), 0x7FFFFFFF], item=(1, 0, 0)),
    Bug("unsigned_product", "overflow", 2, "uint w = 65536u;\ny[w * w] = 1.0f;", [OUT], [_floats(8)], group=1, array="y"),
    # --- division by zero
    Bug("divided", "division by zero", 2, "int i = kk_global_id(0);\nx[i] = n / (i - 3);", [XI, N], [_ints(8), 10],
        item=(3, 0, 0)),
    Bug("remainder", "division by zero", 2, "int i = kk_global_id(0);\nx[i] = i % n;", [XI, N], [_ints(8), 0]),
    Bug("divided_in_place", "division by zero", 2, "int i = kk_global_id(0);\nx[i] /= n;", [XI, N], [_ints(8), 0]),
    # --- loops without an end
    Bug("never_ends", "endless loop", 2, "int k = 0;\nwhile (k < n) { x[0] = k; }", [XI, N], [_ints(1), 3], group=1),
    Bug("unsigned_down", "endless loop", 2, "int s = 0;\nfor (uint k = 3u; k >= 0u; k--) s += 1;\nx[0] = s;", [XI], [_ints(1)],
        group=1),
    Bug("waits_for_group", "endless loop", 3,
        "if (kk_group_id(0) == 1) kk_atomic_exchange(x[0], 1);\n"
        "int seen = 0;\ndo { seen = kk_atomic_or(x[0], 0); } while (seen == 0);",
        [XI], [_ints(1)], group=1, grid=2),
    # --- four at once
    Bug("misaligned", "misaligned", 1, "kk_float4 v = kk_load4(x, n);\ny[0] = v.x;", [X, Y, N], [_floats(8), _floats(1), 2],
        group=1, array="x", index=2),
]  # fmt: skip
