"""Bad input: one clear sentence for each, before anything runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...errors import ArgumentError, CompileError, KernelKeepError
from ...programs.languages import known_languages
from ...programs.portable import Buffer, PortableKernel, Scalar
from ...programs.source import Source
from ...resident.resident import Resident
from ...resident.task import Task
from ..skipped import open_or_skip
from .common import TIMEOUT, ResidentPart

__all__ = ["RefusalTests"]

NOTHING = {"nothing": "() { }"}
X = {"x": np.zeros(4, "f4")}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no tasks": ({"tasks": {}}, "tasks must be a mapping of names to bodies, with at least one"),
    "no mapping": ({"tasks": ["a"]}, "tasks must be a mapping of names to bodies"),
    "name": ({"tasks": {"a b": "() { }"}}, "a task's name must be a letter followed by letters, digits and _, got 'a b'"),
    "no body": ({"tasks": {"a": 5}}, "task a must be a body, a kk.Task, a kk.PortableKernel or a kk.Source, got a int"),
    "head": ({"tasks": {"a": "(int n"}}, r"task a must look like '\(float a, int n\) { … }'"),
    "argument": ({"tasks": {"a": "(int* p) { }"}}, r"task a: an argument must look like `float a`, got 'int\* p'"),
    "twice the same": ({"tasks": {"a": "(int n, int n) { }"}}, "task a has two arguments named n"),
    "arguments twice": ({"tasks": {"a": Task("(int n) { }", args={"n": "i4"})}}, "task a names its arguments twice"),
    "like an array": ({"tasks": {"a": "(int x) { }"}, "arrays": X}, "task a has an argument x, and so is an array"),
    "missing array": (
        {"tasks": {"a": PortableKernel("a", [Buffer("z", "f4")], "z[0] = 1.0f;", group=64)}, "arrays": X},
        "task a uses an array z, and the grid's arrays are: x",
    ),
    "dtype of an array": (
        {"tasks": {"a": PortableKernel("a", [Buffer("x", "i4")], "x[0] = 1;", group=64)}, "arrays": X},
        "task a takes x as i4, and the grid's array has f4",
    ),
    "groups": (
        {"tasks": {n: PortableKernel("k", [Scalar("n", "i4")], ";", group=g) for n, g in (("a", 64), ("b", 128))}},
        "groups of different sizes",
    ),
    "no arrays": ({"arrays": [1, 2]}, "arrays must be a mapping of names to arrays, got a list"),
    "name of an array": ({"arrays": {"kk_x": np.zeros(4)}}, "the name of an array must be an identifier"),
    "type of an array": ({"arrays": {"x": np.zeros(4, "c8")}}, "array x must have a dtype of"),
    "threads": ({"threads": 100}, "threads must be a multiple of 32 from 32 to .*, got 100"),
    "many threads": ({"threads": 1 << 20}, "threads must be a multiple of 32 from 32 to .*, got 1048576"),
    "blocks": ({"blocks": 0}, "blocks must be 1 to .*, got 0"),
    "many blocks": ({"blocks": 1 << 20}, "blocks must be 1 to .*, got 1048576"),
    "capacity": ({"capacity": 100}, "capacity must be a power of two from 8 to .*, got 100"),
    "no number": ({"capacity": "many"}, "capacity must be a power of two from 8 to .*, got 'many'"),
    "no integer": ({"capacity": 1024.0}, r"capacity must be a power of two from 8 to .*, got 1024\.0"),
    "a truth": ({"blocks": True}, "blocks must be 1 to .*, got True"),
    "args": ({"tasks": {"a": Task("", args=5)}}, "args of task a must be a mapping of names to dtypes, got 5"),  # type: ignore[arg-type]
    "wide": ({"tasks": {"a": Task("", whole_grid=1)}}, "whole_grid of task a must be True or False, got 1"),  # type: ignore[arg-type]
    "argument_bytes": ({"argument_bytes": -1}, "argument_bytes must be 0 to .*, got -1"),
    "silence": ({"silence_seconds": 0}, "silence_seconds must be a number above 0, got 0"),
    "timeline": ({"timeline": -1}, "timeline must be 0 to .*, got -1"),
    "sms": ({"sms": 0}, "sms must be"),
}  # fmt: skip


class RefusalTests(ResidentPart):
    @pytest.mark.parametrize("which", BAD)
    def test_what_cannot_be_is_refused(self, cache: ProgramCache, which: str) -> None:
        given, said = BAD[which]
        options = {"tasks": NOTHING, "arrays": {}, **given}
        with pytest.raises(ArgumentError, match=said):
            self.make(cache, options.pop("tasks"), options.pop("arrays"), **options)

    def test_a_source_in_another_language(self, cache: ProgramCache) -> None:
        other = next(name for name in known_languages() if name != cache.device.language)
        with pytest.raises(ArgumentError, match=f"task a must be in .* or portable, got {other}"):
            self.make(cache, {"a": Source("", "a", language=other)}, {})

    def test_the_cache_must_be_one(self) -> None:
        with pytest.raises(ArgumentError, match=r"cache must be a kk\.ProgramCache, got a str"):
            self.make("cache")  # type: ignore[arg-type]

    def test_an_array_of_another_device(self, cache: ProgramCache) -> None:
        with open_or_skip(cache.device.backend, cache.device.spec) as other:
            array = other.array(np.zeros(4, "f4"))
            with pytest.raises(ArgumentError, match="array x must be on"):
                self.make(cache, NOTHING, {"x": array})

    @pytest.mark.parametrize(
        ("name", "args", "said"),
        [
            ("twice", (), r"task twice takes 1 argument \(v\), got 0"),
            ("twice", (1, 2), r"task twice takes 1 argument \(v\), got 2"),
            ("twice", ("a",), "task twice: argument v must be an integer, got 'a'"),
            ("twice", (1.5,), "task twice: argument v must be an integer, got 1.5"),
            ("twice", (2**31,), "task twice: argument v must be -2147483648 to 2147483647, got 2147483648"),
            ("tell", (-1,), "task tell: argument v must be 0 to 4294967295, got -1"),
            ("fill", (0, 1, None), "task fill: argument value must be a number, got None"),
            ("fill", (0, 1, 1e39), "task fill: argument value is too large for type 'f'"),
            ("missing", (), "there is no task 'missing'; the tasks are: count, note"),
            (["list"], (), "there is no task"),
        ],
    )
    def test_arguments_that_do_not_fit(self, resident: Resident, name: Any, args: Any, said: str) -> None:
        with pytest.raises(ArgumentError, match=said):
            resident.submit(name, *args)
        assert resident.submit("twice", 1).result(TIMEOUT) == 2

    @pytest.mark.parametrize("timeout", ["5", float("nan"), [1]])
    def test_timeouts_are_numbers(self, resident: Resident, timeout: Any) -> None:
        for wait in (resident.submit_many("twice", [1]).wait_for_result, resident.drain, resident.stop):
            with pytest.raises(ArgumentError, match="timeout must be a number of seconds or None, got"):
                wait(timeout)
        assert resident.submit("twice", 1).result(float("inf")) == 2

    def test_a_body_with_a_mistake_names_the_line(self, cache: ProgramCache) -> None:
        with pytest.raises(CompileError, match="missing") as caught:
            self.make(cache, {"good": "() { }", "bad": "(int n) {\n  int i = 0;\n  i = missing + n;\n}"}, {})
        assert caught.value.line == 3

    def test_no_timeline_without_the_option(self, resident: Resident) -> None:
        with pytest.raises(KernelKeepError, match="pass timeline=4096"):
            _ = resident.timeline
