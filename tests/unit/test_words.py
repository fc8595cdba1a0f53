"""The fixed words of calls are types.

A wrong word is an error of the type checker, which `make check` proves: without the error, mypy would complain of an unused
`type: ignore` here. It is an error at run time as well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep import words
from kernelkeep.continuous.program import COUPLINGS

STATE = {"u": np.zeros(4, "f4")}
BODY = "u_next[kk_item()] = u[kk_item()] + 1;"


def count(coupling: words.Coupling) -> kk.StateProgram:
    return kk.StateProgram("count", coupling=coupling, state=STATE, body=BODY)


def test_a_misspelt_strategy_is_refused(tmp_path: Path) -> None:
    program = count("independent")
    with kk.open_device("reference") as device, kk.ProgramCache(device, cache_dir=tmp_path) as cache:
        with pytest.raises(kk.ArgumentError, match=r"got 'bufered' \(did you mean buffered\?\)"):
            kk.run(cache, program, iterations=1, strategy="bufered")  # type: ignore[arg-type]
        with pytest.raises(kk.ArgumentError, match="'bufered'"):
            kk.resume(tmp_path / "x.kkpt", cache, program, iterations=1, strategy="bufered")  # type: ignore[arg-type]
        with kk.run(cache, program, iterations=1, strategy="buffered") as run:
            assert run.report.stopped == "done"
        with cache.get(kk.PortableKernel("empty", params=[], body="")) as lease:
            assert lease.origin in get_args(words.ProgramOrigin)


def test_a_misspelt_option_of_a_run_is_answered_with_every_option(tmp_path: Path) -> None:
    program = count("independent")
    with kk.open_device("reference") as device, kk.ProgramCache(device, cache_dir=tmp_path) as cache:
        with pytest.raises(kk.ArgumentError, match=r"no option 'iteration' \(did you mean iterations\?\)") as caught:
            kk.run(cache, program, iteration=3)  # type: ignore[call-arg]
        options = str(caught.value).partition("it has: ")[2].split(", ")
        assert {"iterations", "strategy", "resume", "initial_state", "until", "ahead"} <= set(options)
        with pytest.raises(kk.ArgumentError) as caught:
            kk.resume(tmp_path / "x.kkpt", cache, program, iteration=3)  # type: ignore[call-arg]
        options = str(caught.value).partition("it has: ")[2].split(", ")
        assert "iterations" in options and "initial_state" not in options, "resume takes none"


def test_only_a_word_that_is_near_is_suggested() -> None:
    assert words.did_you_mean("Bufered", ("buffered", "mega")) == " (did you mean buffered?)"
    assert words.did_you_mean("xyz", ("buffered", "mega")) == words.did_you_mean(3, ()) == ""


WRONG: list[Callable[[], object]] = [
    lambda: count("neighbors"),  # type: ignore[arg-type]
    lambda: kk.Buffer("x", "f4", "read"),  # type: ignore[arg-type]
    lambda: kk.Template("text", [kk.Buffer("x", "f4")], engine="mako"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("wrong", WRONG)
def test_another_word_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(kk.ArgumentError, match=r"neighbors|read|mako"):
        wrong()


def test_the_types_are_what_is_accepted() -> None:
    assert get_args(words.Coupling) == COUPLINGS
    for access in get_args(words.Access):
        assert kk.Buffer("x", "f4", access).access == access
    assert all(kind in (kk.KernelFault.__doc__ or "") for kind in get_args(words.FaultKind))
    assert all(basis in (kk.Selection.__doc__ or "") for basis in get_args(words.SelectionBasis))
