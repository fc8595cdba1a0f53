"""`Source`: what may be said about a program, and what is refused."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.cache.key import digest_of


def test_a_source_has_defaults() -> None:
    source = kk.Source("text")
    assert (source.name, source.language, source.options, dict(source.defines), source.include_dirs) == (
        "program", "opencl", (), {}, (),
    )  # fmt: skip


def test_options_and_include_dirs_become_tuples(tmp_path: Path) -> None:
    source = kk.Source("", options=["-a", "-b"], include_dirs=[str(tmp_path), tmp_path])
    assert source.options == ("-a", "-b")
    assert source.include_dirs == (tmp_path, tmp_path)
    assert kk.Source("", include_dirs=str(tmp_path)).include_dirs == (tmp_path,)


def test_macros_are_sorted_and_written_as_text() -> None:
    source = kk.Source("", defines={"B": 2, "A": 1.5, "ON": True, "OFF": False, "BARE": None, "TEXT": "float4"})
    assert list(source.macros.items()) == [("A", "1.5"), ("B", "2"), ("BARE", ""), ("ON", "1"), ("TEXT", "float4")]


def test_a_source_cannot_be_changed() -> None:
    defines = {"A": 1}
    source = kk.Source("", defines=defines)
    defines["A"] = 2
    assert source.defines["A"] == 1
    with pytest.raises(TypeError):
        source.defines["A"] = 3  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        source.text = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"text": b"bytes"}, "str"),
        ({"language": "hlsl"}, "hlsl"),
        ({"name": ""}, "name"),
        ({"options": "-a -b"}, "sequence"),
        ({"options": [1]}, "option"),
        ({"defines": {"2X": 1}}, "2X"),
        ({"defines": {"A B": 1}}, "A B"),
        ({"defines": {"A": "1\n#error"}}, "line break"),
    ],
)
def test_wrong_arguments_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(kk.ArgumentError, match=said):
        kk.Source(**{"text": "", **fields})


@pytest.mark.parametrize(
    ("suffix", "language"), [(".cl", "opencl"), (".cu", "cuda"), (".comp", "glsl"), (".glsl", "glsl")]
)
def test_from_file_reads_the_text_and_takes_name_and_language_from_the_path(
    tmp_path: Path, suffix: str, language: str
) -> None:
    path = tmp_path / f"blur{suffix}"
    path.write_text("text — with ünicode", encoding="utf-8")
    source = kk.Source.from_file(path, defines={"A": 1})
    assert (source.text, source.name, source.language) == ("text — with ünicode", "blur", language)
    assert source.include_dirs == (tmp_path,)


def test_from_file_refuses_what_it_cannot_read_or_place(tmp_path: Path) -> None:
    with pytest.raises(kk.ArgumentError, match="nowhere"):
        kk.Source.from_file(tmp_path / "nowhere.cl")
    (tmp_path / "kernel.txt").write_text("")
    with pytest.raises(kk.ArgumentError, match="language"):
        kk.Source.from_file(tmp_path / "kernel.txt")
    assert kk.Source.from_file(tmp_path / "kernel.txt", language="cuda").language == "cuda"
    (tmp_path / "binary.cl").write_bytes(b"\xff\xfe\0")
    with pytest.raises(kk.ArgumentError, match="binary"):
        kk.Source.from_file(tmp_path / "binary.cl")


def test_repr_is_short() -> None:
    assert repr(kk.Source("x" * 10_000, name="long")) == "Source('long', language='opencl', 10000 characters)"


def test_a_source_is_pickled_with_everything_that_is_part_of_its_key(tmp_path):
    (tmp_path / "factor.h").write_text("#define FACTOR 3\n")
    (tmp_path / "k.cl").write_text('#include "factor.h"\n__kernel void k() {}\n')
    source = kk.Source.from_file(tmp_path / "k.cl", defines={"A": 1, "B": None}, options=["-cl-mad-enable"])
    again = pickle.loads(pickle.dumps(source))
    assert digest_of(again, "f") == digest_of(source, "f")
    assert (again.text, again.name, dict(again.defines)) == (source.text, source.name, {"A": 1, "B": None})
