"""Lowering a portable kernel: what the text of each language must have, and what is refused before that."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.programs.signature import declared

LANGUAGES = ["cuda", "opencl", "glsl"]
ALL = kk.Capabilities(float_atomics=True, float64=True, int64=True, int8=True)


@dataclass(frozen=True)
class Target:
    """A device as far as lowering looks at it."""

    language: str
    capabilities: kk.Capabilities = field(default=ALL)


def kernel(body: str = "y[0] = x[0];", **fields: Any) -> kk.PortableKernel:
    params = fields.pop("params", [kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4"), kk.Scalar("n", "i4")])
    return kk.PortableKernel(fields.pop("name", "f"), params=params, body=body, **fields)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_source_has_the_kernels_name_language_defines_options_and_signature(language: str) -> None:
    made = kernel(group=(8, 4), defines={"TILE": 4}, options=["-o"])
    source = made.source(Target(language))
    assert (source.name, source.language, source.options, dict(source.defines)) == ("f", language, ("-o",), {"TILE": 4})
    assert declared(source.text) == {"f": made.signature}
    assert made.signature.group == (8, 4, 1)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_body_stands_behind_line_1_as_it_was_written(language: str) -> None:
    body = "int i = 0;\n  // a comment\ny[i] = 2.0f;"
    text = kernel(body).source(Target(language)).text
    assert text.split("\n#line 1\n")[1].startswith(body)


@pytest.mark.parametrize("language", LANGUAGES)
def test_shared_arrays_keep_the_line_numbers(language: str) -> None:
    body = "int i = 0;\nkk_shared(float, tile,\n  16, 16 + 1);\ny[i] = tile[0][0];"
    text = kernel(body).source(Target(language)).text
    after = text.split("\n#line 1\n")[1].split("\n")
    assert after[3] == "y[i] = tile[0][0];"
    qualifier = {"cuda": "__shared__", "opencl": "__local", "glsl": "shared"}[language]
    assert f"{qualifier} float tile[16][16 + 1];" in text


def test_the_same_kernel_gives_the_same_text() -> None:
    for language in LANGUAGES:
        assert kernel().source(Target(language)).text == kernel().source(Target(language)).text


def test_read_only_buffers_are_declared_read_only() -> None:
    assert "const float* x, float* y" in kernel().source(Target("cuda")).text
    assert "__global const float* x, __global float* y" in kernel().source(Target("opencl")).text
    assert "readonly buffer" in kernel().source(Target("glsl")).text


def test_glsl_begins_with_its_version_line() -> None:
    assert kernel().source(Target("glsl")).text.startswith("#version 430\n")


@pytest.mark.parametrize(
    "name",
    ["in", "out", "buffer", "kernel", "global", "main", "float", "gl_x", "kk_x", "__x", "2x", "a b", "", "not", "operator",
     "typename", "register", "threadIdx", "NULL", "readonly", "flat", "mat3x4", "ivec2", "usampler2D", "uchar", "size_t", "NAN",
     "M_PI", "INT_MAX", "get_global_id"],
)  # fmt: skip
def test_parameter_names_that_a_language_reserves_are_refused(name: str) -> None:
    for made in (kk.Buffer, kk.Scalar):
        with pytest.raises(kk.ArgumentError):
            made(name, "f4")


@pytest.mark.parametrize(
    "name", ["step", "min", "length", "index", "vector", "matrix", "images", "kk", "u", "gl", "event"]
)
def test_parameter_names_that_no_language_reserves_are_accepted(name: str) -> None:
    assert kk.Buffer(name, "f4").name == kk.Scalar(name, "f4").name == name


@pytest.mark.parametrize("language", ["cuda", "opencl"])
def test_a_kernels_function_has_a_symbol_that_every_driver_accepts(language: str) -> None:
    symbols = set()
    for name in ("step", "long" * 75, "long" * 75 + "er", "größe", "gr__e"):
        text = kernel(name=name).source(Target(language)).text
        (head,) = re.findall(
            r"void (?:__launch_bounds__\(\d+\) )?(\w+)\(", text[text.index("global") :].split("#line")[0]
        )[-1:]
        assert head.isascii() and len(head) <= 80 and head != name
        assert name in declared(text)
        symbols.add(head)
    assert len(symbols) == 5


@pytest.mark.parametrize("dtype", ["f2", "half", "i3", "", "c8", None, 5])
def test_unknown_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="dtype"):
        kk.Buffer("x", dtype)


def test_an_unknown_access_is_refused() -> None:
    with pytest.raises(kk.ArgumentError, match="access"):
        kk.Buffer("x", "f4", "read")


@pytest.mark.parametrize("name", ["2f", "", "a-b", "a b", 5])
def test_kernel_names_that_are_no_identifiers_are_refused(name: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="name"):
        kernel(name=name)


@pytest.mark.parametrize("group", [0, -1, (), (1, 2, 3, 4), (8, 0), (8, 1.5), "8"])
def test_groups_that_are_not_one_to_three_positive_integers_are_refused(group: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="group"):
        kernel(group=group)


def test_two_parameters_with_one_name_are_refused() -> None:
    with pytest.raises(kk.ArgumentError, match="two parameters named x"):
        kernel(params=[kk.Buffer("x", "f4"), kk.Scalar("x", "i4")])


@pytest.mark.parametrize(
    ("dtype", "capability"), [("f8", "float64"), ("i8", "int64"), ("u8", "int64"), ("i1", "int8"), ("u2", "int8")]
)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_type_that_the_device_lacks_is_unsupported_by_name(language: str, dtype: str, capability: str) -> None:
    for param in (kk.Buffer("x", dtype), kk.Scalar("x", dtype)):
        with pytest.raises(kk.Unsupported, match=dtype) as caught:
            kernel("", params=[param]).source(Target(language, kk.Capabilities()))
        assert caught.value.capability == capability


def test_shared_doubles_are_unsupported_without_float64() -> None:
    with pytest.raises(kk.Unsupported) as caught:
        kernel("kk_shared(double, tile, 4);").source(Target("opencl", kk.Capabilities()))
    assert caught.value.capability == "float64"


@pytest.mark.parametrize("language", LANGUAGES)
def test_float_atomics_are_unsupported_where_device_or_language_lack_them(language: str) -> None:
    add = kernel("kk_atomic_add(y[0], 1.0f);")
    assert "kk_atomic_add(y[0], 1.0f);" in add.source(Target(language)).text
    with pytest.raises(kk.Unsupported, match="kk_atomic_add on float y") as caught:
        add.source(Target(language, kk.Capabilities()))
    assert caught.value.capability == "float_atomics"
    with pytest.raises(kk.Unsupported):
        kernel("kk_atomic_xor(y[0], 1.0f);").source(Target(language))
    integers = kernel("kk_atomic_xor(c[0], 1);", params=[kk.Buffer("c", "i4")])
    assert integers.source(Target(language, kk.Capabilities())).text
    with pytest.raises(kk.Unsupported):
        kernel("kk_shared(float, t, 4); kk_atomic_add(t[0], 1.0f);").source(Target(language, kk.Capabilities()))


# --- without a device


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_languages_name_gives_the_same_source_as_a_device(language: str) -> None:
    made = kernel("kk_atomic_add(y[0], x[0]);")
    assert made.source(language) is made.source(Target(language))


def test_an_unknown_language_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(kk.ArgumentError, match=r"language must be one of cuda, opencl, glsl.*, got 'hlsl'"):
        kernel().source("hlsl")


def test_without_a_device_only_what_the_language_lacks_is_refused() -> None:
    everything = kernel(
        "kk_atomic_add(y[0], 1.0f);", params=[kk.Buffer(f"x{t}", t) for t in ("f8", "i8", "u8")], group=4096
    )
    for language in LANGUAGES:
        assert everything.source(language).text
    bytes_ = kernel("", params=[kk.Buffer("x", "u1")])
    assert bytes_.source("cuda").text and bytes_.source("opencl").text
    with pytest.raises(kk.Unsupported, match="kernel f uses u1, and glsl has no 8- and 16-bit types") as caught:
        bytes_.source("glsl")
    assert caught.value.capability == "int8"
    extreme = kernel("kk_atomic_max(y[0], 1.0f);")
    assert extreme.source("cuda").text and extreme.source("opencl").text
    with pytest.raises(kk.Unsupported, match="kk_atomic_max on float y, which glsl lacks"):
        extreme.source("glsl")


def test_check_supported_raises_what_source_would() -> None:
    kernel().check_supported("cuda")
    with pytest.raises(kk.Unsupported, match="float64"):
        kernel(params=[kk.Buffer("x", "f8")]).check_supported(Target("cuda", kk.Capabilities()))


# --- generated kernels


@pytest.mark.parametrize("language", LANGUAGES)
def test_functions_stand_before_the_kernel_and_first_line_before_the_body(language: str) -> None:
    made = kernel("y[0] = SEVEN;", functions=lambda target: f"#define SEVEN 7 // {target.title}\n", first_line=501)
    text = made.source(language).text
    title = {"cuda": "CUDA C", "opencl": "OpenCL C", "glsl": "GLSL"}[language]
    assert f"#define SEVEN 7 // {title}\n" in text.split("\n#line 501\ny[0] = SEVEN;")[0]


def test_functions_take_part_in_what_a_text_needs() -> None:
    plain, vectors = kernel(), kernel(functions=lambda _: "#define LOAD kk_load4(x, 0)\n#define ADD kk_atomic_add\n")
    for language in LANGUAGES:
        assert "kk_make_float4" not in plain.source(language).text
        assert "kk_make_float4" in vectors.source(language).text
    assert "atomic_cmpxchg" not in plain.source("opencl").text
    assert "atomic_cmpxchg" in vectors.source("opencl").text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"functions": "text"}, "functions of kernel f must be called with a Language"),
        ({"first_line": 0}, "first_line of kernel f must be a positive integer, got 0"),
        ({"first_line": "1"}, "first_line of kernel f must be a positive integer, got '1'"),
    ],
)
def test_wrong_functions_and_first_lines_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(kk.ArgumentError, match=said):
        kernel(**fields)
