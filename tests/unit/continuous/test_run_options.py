"""The options of a run have one definition."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.continuous.run_options import STRATEGY_NAMES, RunKeywords, RunOptions
from kernelkeep.continuous.strategies import STRATEGIES
from kernelkeep.words import StrategyName

NAMED = {"iterations", "strategy", "resume", "initial_state"}  # that `kk.run` names itself


def test_keywords_for_type_checkers_are_those_of_the_options() -> None:
    declared = {field.name: field.type for field in fields(RunOptions)}
    keywords = {name: annotation.__forward_arg__ for name, annotation in RunKeywords.__annotations__.items()}
    assert keywords == {name: declared[name] for name in declared if name not in NAMED}


def test_the_docs_list_every_option_with_its_default() -> None:
    text = (Path(__file__).parents[3] / "docs" / "continuous.md").read_text(encoding="utf-8")
    table = text.split("## Every option of a run")[1].split("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE))
    assert listed == {field.name: repr(field.default) for field in fields(RunOptions)}


def test_every_strategy_can_be_asked_for_by_its_name() -> None:
    assert set(STRATEGY_NAMES) == set(STRATEGIES)
    assert set(get_args(StrategyName)) == {"auto", *STRATEGY_NAMES}
    for name in get_args(StrategyName):
        assert RunOptions(strategy=name).strategy == name


@pytest.mark.parametrize("name", ["ahead", "hang_seconds", "keep_checkpoints"])
def test_an_option_with_a_default_is_not_none(name: str) -> None:
    with pytest.raises(kk.ArgumentError, match=f"{name} must be a positive (number|integer), got None"):
        RunOptions.parse({"checkpoint": "run.kkpt", name: None})


@pytest.mark.parametrize("name", ["checkpoint_every", "checkpoint_iterations", "keep_checkpoints"])
def test_options_of_checkpoints_need_a_file(name: str) -> None:
    with pytest.raises(kk.ArgumentError, match=f"^{name} needs checkpoint=…"):
        RunOptions.parse({name: 3})
    # A program that has checkpoints only sometimes says so.
    assert getattr(RunOptions.parse({name: 3, "checkpoint": None}), name) == 3


@pytest.mark.parametrize("name", ["deadline", "resume", "iterations"])
def test_parse_rejects_keywords_that_are_no_options(name: str) -> None:
    with pytest.raises(
        kk.ArgumentError, match=rf"no option '{name}'( \(did you mean \w+\?\))?; it has: ahead, checkpoint"
    ):
        RunOptions.parse({name: 1})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("iterations", True),
        ("iterations", 2**31),
        ("strategy", "fastest"),
        ("resume", 1),
        ("until", "  "),
        ("until", 3),
        ("on_progress", "bar"),
        ("progress", "bar"),
        ("on_state", "frames"),
        ("checkpoint_every", float("nan")),
    ],
)
def test_a_wrong_value_is_named_with_what_was_given(option: str, value: Any) -> None:
    wrong: dict[str, Any] = {option: value}
    with pytest.raises(kk.ArgumentError, match=f"{option} must be .*, got "):
        RunOptions(**wrong)


def test_numbers_of_numpy_are_kept_as_pythons_and_endless_times_are_long_ones() -> None:
    given = {"state_iterations": np.int16(1000), "on_state": print, "deadline_seconds": np.float16(1)}
    options = RunOptions.parse(given, iterations=1)
    assert type(options.state_iterations) is int and type(options.deadline_seconds) is float
    assert options.next_stop(32_000, 10**9) == 33_000
    for endless in (float("inf"), np.float32("inf"), 10**400):
        assert RunOptions.parse({"deadline_seconds": endless}).deadline_seconds == 1e9
    with pytest.raises(kk.ArgumentError, match="deadline_seconds must be a positive number, got nan"):
        RunOptions.parse({"deadline_seconds": float("nan")})
