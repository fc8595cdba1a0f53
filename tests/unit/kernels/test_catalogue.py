"""Tuned kernels by name, and problems as they are typed."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.kernels.catalogue import SHIPPED, find_kernel, parse_problem


def test_parse_problem_reads_names_and_values() -> None:
    assert parse_problem("m=256, n=-3,x=0.5,mode=fast") == {"m": 256, "n": -3, "x": 0.5, "mode": "fast"}
    for text in ("", "m", "m=", "=3", "m=1,,n=2", "m=1,m=2"):
        with pytest.raises(kk.ArgumentError):
            parse_problem(text)


def test_common_problems_are_complete() -> None:
    for entry in SHIPPED.values():
        assert find_kernel(entry.name) is entry and entry.problems
        assert all(entry.complete(problem) == problem for problem in entry.problems)


def test_conv2d_completes_sizes_that_were_left_out() -> None:
    whole = SHIPPED["conv2d"].complete({"c": 3, "h": 8, "w": 9, "k": 4, "r": 5, "s": 3, "stride": 2})
    assert whole == {
        "n": 1, "c": 3, "h": 8, "w": 9, "k": 4, "r": 5, "s": 3, "stride_y": 2, "stride_x": 2, "pad_y": 2, "pad_x": 1
    }  # fmt: skip
    assert SHIPPED["conv2d"].complete({**whole, "pad_x": 0})["pad_x"] == 0
    with pytest.raises(kk.ArgumentError, match="needs k, r"):
        SHIPPED["conv2d"].complete({"c": 3, "h": 8, "w": 9})


def test_a_kernel_file_may_import_modules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("NAME = 'own'\n")
    (tmp_path / "own.py").write_text(
        "import kernelkeep as kk\n"
        "from beside_it import NAME\n"
        "own = kk.Tuned(NAME, kk.Template('x[0] = 1.0f;', [kk.Buffer('x', 'f4')]), kk.VariantSpace(A=[1]))\n"
        "again = own\n"
    )
    assert find_kernel(f"{tmp_path / 'own.py'}:own").name == "own"
    assert find_kernel(str(tmp_path / "own.py")).name == "own"
