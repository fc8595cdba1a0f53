"""The registry of languages, and a language that comes from outside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.key import digest_of
from kernelkeep.programs import languages
from kernelkeep.programs.languages import Language, find_language, known_languages, register_language
from kernelkeep.programs.lowering import KernelParts
from kernelkeep.programs.translation_unit import translation_unit
from kernelkeep.testing import run_python

PARAMS: list[kk.Buffer | kk.Scalar] = [kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4"), kk.Scalar("n", "i4")]


class Toy(Language):
    name = "toy"
    title = "Toy"
    suffixes = (".toy",)
    source_names_kernel = True
    types = {"f4": "f32", "i4": "i32"}  # noqa: RUF012
    reserved_words = frozenset(("fn",))

    def line_marker(self, line: int, file: str) -> str:
        return f"// {file}:{line}"

    def write(self, kernel: KernelParts) -> kk.Source:
        params = ", ".join(f"{p.name}: {self.types[p.dtype or '']}" for p in kernel.params)
        return replace(
            kernel.source, text=f"fn {kernel.signature.name}({params}) {{ {kernel.functions}{kernel.body} }}"
        )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Language]:
    monkeypatch.setattr(languages, "_loaded", dict(languages._loaded))
    language = Toy()
    register_language(language)
    yield language
    languages.reserved_in.cache_clear()


def test_every_shipped_language_says_what_portable_kernels_and_tests_need() -> None:
    shipped = known_languages()[:3]  # behind them those that tests have registered
    assert shipped == ("cuda", "opencl", "glsl")
    for name in shipped:
        language = find_language(name)
        assert language.name == name and language.title and language.suffixes
        assert {"i4", "u4", "f4"} <= language.types.keys()
        assert language.block_helpers <= language.helper_functions.keys()
        assert "{statement}" in language.handwritten_kernel and "KK_READ" in language.state_helpers


@pytest.mark.parametrize("wrong", ["hlsl", "", None, 5, ["opencl"]])
def test_an_unknown_language_is_an_error_that_lists_the_known_ones(wrong: object) -> None:
    with pytest.raises(kk.ArgumentError, match=r"language must be one of cuda, opencl, glsl.*, got"):
        kk.Source("text", language=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, "toy", Language, Language()])
def test_what_is_not_a_language_with_a_name_is_not_registered(wrong: object) -> None:
    with pytest.raises(kk.ArgumentError, match="language must be an instance"):
        register_language(wrong)  # type: ignore[arg-type]


def test_a_registered_language_is_known_to_sources_keys_and_portable_kernels(toy: Language, tmp_path: Path) -> None:
    assert known_languages()[-1] == "toy"
    with pytest.raises(kk.ArgumentError, match=r"cuda, opencl, glsl.*, toy"):
        find_language("hlsl")
    (tmp_path / "a.toy").write_text('#include "b.toy"\n')
    (tmp_path / "b.toy").write_text("inner\n")
    source = kk.Source.from_file(tmp_path / "a.toy")
    assert source.language == "toy"
    assert translation_unit(source).startswith("// b.toy:1\ninner\n")
    assert digest_of(source, "") != digest_of(replace(source, name="other"), ""), "its name is the kernel's name"

    kernel = kk.PortableKernel("f", PARAMS, "y = x;", functions=lambda language: f"// {language.title}\n")
    assert kernel.source("toy").text == "fn f(x: f32, y: f32, n: i32) { // Toy\ny = x; }"
    with pytest.raises(kk.ArgumentError, match="the parameter name fn is reserved in Toy"):
        kk.Buffer("fn", "f4")


def test_a_type_that_the_language_lacks_is_unsupported(toy: Language) -> None:
    with pytest.raises(kk.Unsupported, match="kernel f uses f8, and toy has no float64") as caught:
        kk.PortableKernel("f", [kk.Buffer("x", "f8")], "").source("toy")
    assert caught.value.capability == "float64"


def test_a_language_without_a_writer_takes_sources_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(Language):
        name = "plain"
        title = "Plain"

    monkeypatch.setattr(languages, "_loaded", dict(languages._loaded))
    register_language(Plain())
    assert translation_unit(kk.Source("text", language="plain")) == "text"
    with pytest.raises(kk.Unsupported, match="Plain has no writer for portable kernels"):
        kk.PortableKernel("f", [], "").source("plain")


def test_a_source_is_made_and_identified_without_loading_lowering_or_other_languages() -> None:
    said = run_python(
        "import sys, kernelkeep as kk\n"
        "from kernelkeep.cache.program_cache import ProgramCache\n"
        "from kernelkeep.cache.key import digest_of\n"
        "digest_of(kk.Source('__kernel void f() {\\n}', language='opencl'), '')\n"
        "print(*sorted(name.split('.', 2)[2] for name in sys.modules if name.startswith('kernelkeep.programs.')))\n"
    )
    loaded = said.stdout.split()
    assert "languages.opencl" in loaded
    for module in ("lowering", "helper_calls", "remainders", "languages.cuda", "languages.glsl", "translation_unit"):
        assert module not in loaded
