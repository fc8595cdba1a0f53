"""The registry of languages, and a language that comes from outside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.key import digest_of
from kernelkeep.programs import languages
from kernelkeep.programs.kernel_parts import UnwrittenKernel, Written
from kernelkeep.programs.languages import Language, find_language, known_languages, register_language
from kernelkeep.programs.translation_unit import compile_error, translation_unit
from kernelkeep.testing import run_python

PARAMS: list[kk.Buffer | kk.Scalar] = [kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4"), kk.Scalar("n", "i4")]


class Toy(Language):
    name = "toy"
    title = "Toy"
    suffixes = (".toy",)
    source_names_kernel = True
    parameter_types = frozenset(("f4", "i4"))

    def line_marker(self, line: int, file: str) -> str:
        return f"// {file}:{line}"

    def write(self, kernel: UnwrittenKernel) -> Written:
        params = ", ".join(f"{p.name}: {p.dtype}" for p in kernel.signature.params or ())
        return Written(
            f"fn {kernel.signature.name}({params}) {{ {kernel.parts.functions}{kernel.parts.body} }}", (1, 1)
        )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Language:
    monkeypatch.setattr(languages, "_loaded", dict(languages._loaded))
    language = Toy()
    register_language(language)
    return language


def test_every_shipped_language_says_what_portable_kernels_and_tests_need() -> None:
    shipped = known_languages()[:3]  # behind them those that tests have registered
    assert shipped == ("cuda", "opencl", "glsl")
    for name in shipped:
        language = find_language(name)
        assert language.name == name and language.title and language.suffixes
        assert {"i4", "u4", "f4"} <= language.parameter_types
        assert "{statement}" in language.handwritten_kernel and "KK_READ" in language.state_helpers


@pytest.mark.parametrize("wrong", ["hlsl", "", None, 5, ["opencl"]])
def test_an_unknown_language_is_an_error_that_lists_the_known_ones(wrong: object) -> None:
    with pytest.raises(kk.ArgumentError, match=r"language must be one of cuda, opencl, glsl.*, got"):
        kk.Source("text", language=wrong)  # type: ignore[arg-type]


def test_wgsl_can_be_asked_for_although_no_device_takes_it(tmp_path: Path) -> None:
    kernel = kk.PortableKernel("f", [*PARAMS, kk.Buffer("b", "u1", "r")], "if (n > 0) y[0] = x[0] + b[0];", 64)
    text = kernel.source("wgsl").text
    assert "@compute @workgroup_size(64, 1, 1)" in text and "array<f32>" in text
    with pytest.raises(kk.Unsupported, match="kernel f uses i8, and WGSL has no int64"):
        kk.PortableKernel("f", [kk.Scalar("n", "i8")], "").source("wgsl")

    (tmp_path / "a.wgsl").write_text("enable f16;\nconst b = 2 * A;\n")
    source = kk.Source.from_file(tmp_path / "a.wgsl", defines={"A": 3})
    assert translation_unit(source) == "enable f16;\nconst b = 2 * A;\n\nconst A = 3;\n"
    with pytest.raises(kk.Unsupported, match="WGSL has no macros"):
        translation_unit(kk.Source("", language="wgsl", defines={"A": None}))


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
    assert kernel.source("toy").text == "fn f(x: f4, y: f4, n: i4) { // Toy\ny = x; }"


def test_a_type_that_the_language_lacks_is_unsupported(toy: Language) -> None:
    with pytest.raises(kk.Unsupported, match="kernel f uses f8, and Toy has no float64") as caught:
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
        assert kk.PortableKernel("f", [], "").source("plain").text


def test_a_source_is_made_and_identified_without_loading_other_languages() -> None:
    said = run_python(
        "import sys, kernelkeep as kk\n"
        "from kernelkeep.cache.program_cache import ProgramCache\n"
        "from kernelkeep.cache.key import digest_of\n"
        "digest_of(kk.Source('__kernel void f() {\\n}', language='opencl'), '')\n"
        "print(*sorted(name.split('.', 2)[2] for name in sys.modules if name.startswith('kernelkeep.programs.')))\n"
    )
    loaded = said.stdout.split()
    assert "languages.opencl" in loaded
    for module in ("languages.cuda", "languages.glsl", "translation_unit"):
        assert module not in loaded


def test_wgsl_gets_no_constant_expression_that_is_not_finite() -> None:
    """It refuses these: the bits are in a variable instead."""
    kernel = kk.PortableKernel("f", PARAMS, "y[0] = 1.0f / 0.0f; y[1] = 3e38f * 10.0f; y[2] = 1.0f / 4.0f;")
    text = kernel.source("wgsl").text
    assert "y[0] = kk_infinity();" in text and "y[1] = kk_infinity();" in text and "/ 0.0" not in text


@pytest.mark.parametrize("written", ["cuda", "opencl", "glsl", "wgsl"])
def test_a_compile_error_names_the_language_of_a_text_that_is_given_as_another(written: str) -> None:
    text = find_language(written).handwritten("y[i] = x[i];", name="f", kind="float", before="")
    for claimed in ("cuda", "opencl", "glsl", "wgsl"):
        said = str(compile_error(kk.Source(text, name="f", language=claimed), "unexpected token"))
        expected = f"(this looks like {find_language(written).title}, and the source has language={claimed!r}"
        assert (expected in said) == (claimed != written), said
    portable = kk.PortableKernel("f", params=PARAMS, body="y[0] = x[0];").source(written)
    assert "this looks like" not in str(compile_error(portable, "unexpected token"))
