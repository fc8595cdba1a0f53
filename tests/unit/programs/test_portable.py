"""A portable kernel as a source: what the text of each language must have, what is in the key, and what is refused."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.cache.key import digest_of, key_of
from kernelkeep.programs import portable_source
from kernelkeep.programs.signature import declared
from kernelkeep.programs.translation_unit import translation_unit

LANGUAGES = ["cuda", "opencl", "glsl"]
ALL = kk.Capabilities(float_atomics=True, float64=True, int64=True, int8=True)


@dataclass(frozen=True)
class Target:
    """A device as far as a portable kernel looks at it."""

    language: str
    capabilities: kk.Capabilities = field(default=ALL)
    writer_assumes: tuple[str, ...] = ()


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
def test_a_compilers_line_is_told_as_the_line_of_the_body(language: str) -> None:
    body = "int i = 0;\n  // a comment\nkk_shared(float, tile,\n  16, 16 + 1);\ny[i] = 2.0f;"
    source = kernel(body).source(Target(language))
    lines = source.text.split("\n")
    (written,) = (number for number, line in enumerate(lines, 1) if "y[i] = 2.0" in line)
    assert source.place(written) == (5, "y[i] = 2.0f;")
    assert source.place(1) == (None, lines[0]), "a line that nobody wrote is shown as it is"
    qualifier = {"cuda": "__shared__", "opencl": "__local", "glsl": "shared"}[language]
    assert f"{qualifier} float tile[16][17];" in source.text


def test_defines_and_options_that_define_are_macros_of_the_body() -> None:
    made = kernel("y[0] = TWO * THREE * FOUR;", defines={"TWO": 2}, options=["-DTHREE=3", "-D", "FOUR=(2 + 2)"])
    assert "y[0] = (float)24;" in made.source("opencl").text
    assert translation_unit(made.source("opencl")) == made.source("opencl").text, "they are not defined again"


def test_the_same_kernel_gives_the_same_text() -> None:
    for language in LANGUAGES:
        assert kernel().source(Target(language)).text == kernel().source(Target(language)).text


def test_read_only_buffers_are_declared_read_only() -> None:
    assert "const float* x, float* y" in kernel().source(Target("cuda")).text
    assert "__global const float* x, __global float* y" in kernel().source(Target("opencl")).text
    assert "readonly buffer" in kernel().source(Target("glsl")).text


def test_glsl_begins_with_its_version_line() -> None:
    assert kernel().source(Target("glsl")).text.startswith("#version 430\n")


@pytest.mark.parametrize("name", ["float", "for", "register", "struct", "true", "kk_x", "__x", "2x", "a b", ""])
def test_parameter_names_that_a_body_could_not_use_are_refused(name: str) -> None:
    for made in (kk.Buffer, kk.Scalar):
        with pytest.raises(kk.ArgumentError):
            made(name, "f4")


@pytest.mark.parametrize("language", LANGUAGES)
def test_names_that_only_a_target_reserves_are_renamed_there(language: str) -> None:
    names = ["in", "out", "buffer", "kernel", "global", "main", "gl_x", "not", "operator", "typename", "threadIdx", "NULL",
             "readonly", "flat", "mat3x4", "ivec2", "usampler2D", "uchar", "size_t", "get_global_id", "step", "half",
             "sample"]  # fmt: skip
    params = [kk.Buffer("y", "f4"), *(kk.Scalar(name, "f4") for name in names)]
    text = kernel(f"float filter = {' + '.join(names)}; y[0] = filter;", params=params).source(language).text
    assert [param.name for param in declared(text)["f"].params or ()] == ["y", *names], (
        "the user's names stay the user's"
    )
    words = set(re.findall(r"\w+", text.split("\n", 2)[2]))
    assert (
        not words & {"cuda": {"operator", "typename", "not"}, "opencl": {"kernel"}, "glsl": {"out", "flat"}}[language]
    )


@pytest.mark.parametrize("language", ["cuda", "opencl"])
def test_a_kernels_function_has_a_symbol_that_every_driver_accepts(language: str) -> None:
    symbols = set()
    for name in ("step", "long" * 75, "long" * 75 + "er", "größe", "gr__e"):
        text = kernel(name=name).source(Target(language)).text
        (head,) = re.findall(r"(kk_entry_\w+)\(", text)
        assert head.isascii() and len(head) <= 80 and head != name
        assert name in declared(text)
        symbols.add(head)
    assert len(symbols) == 5


@pytest.mark.parametrize("dtype", ["f16", "i3", "", "c8", None, 5])
def test_unknown_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="dtype"):
        kk.Buffer("x", dtype)


@pytest.mark.parametrize("dtype", ["float", "int", "uint", float, int])
def test_dtypes_that_c_and_numpy_take_for_different_sizes_are_refused(dtype: Any) -> None:
    with pytest.raises(kk.ArgumentError, match=r"dtype of parameter x must say its size: write '.4' or '.8'"):
        kk.Scalar("x", dtype)


def test_an_unknown_access_is_refused() -> None:
    with pytest.raises(kk.ArgumentError, match="access"):
        kk.Buffer("x", "f4", "read")  # type: ignore[arg-type]


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
        assert kernel("kk_shared(double, tile, 4);").source(Target("opencl", kk.Capabilities())).text
    assert caught.value.capability == "float64"


def test_what_is_unsupported_is_shown_with_its_line() -> None:
    body = "int i = kk_global_id(0);\n\tdouble z = 1.0;\n\ty[i] = z;"
    picture = "\n    \tdouble z = 1.0;\n    \t       ^"
    with pytest.raises(kk.Unsupported) as by_target:
        assert kernel(body).source("wgsl").text
    assert str(by_target.value) == f"kernel f, line 2: WGSL has no type double{picture}"
    with pytest.raises(kk.Unsupported) as by_device:
        assert kernel(body).source(Target("opencl", kk.Capabilities())).text
    assert str(by_device.value) == f"kernel f uses f8, and this device has no float64; line 2:{picture}"
    assert (by_device.value.capability, by_device.value.line, by_device.value.column) == ("float64", 2, 9)


@pytest.mark.parametrize("language", LANGUAGES)
def test_float_atomics_are_unsupported_where_the_device_lacks_them(language: str) -> None:
    for operation in ("add", "sub", "min", "max", "exchange"):
        made = kernel(f"kk_atomic_{operation}(y[0], 1.0f);")
        assert "tomic" in made.source(Target(language)).text
        with pytest.raises(kk.Unsupported, match="atomics on floats") as caught:
            assert made.source(Target(language, kk.Capabilities())).text
        assert caught.value.capability == "float_atomics"
    with pytest.raises(kk.CompileError, match="kk_atomic_xor"):
        assert kernel("kk_atomic_xor(y[0], 1.0f);").source(Target(language)).text
    integers = kernel("kk_atomic_xor(c[0], 1);", params=[kk.Buffer("c", "i4")])
    assert integers.source(Target(language, kk.Capabilities())).text


def test_a_device_may_say_what_the_writer_can_rely_on() -> None:
    made = kernel("kk_atomic_add(y[0], 1.0f);")
    able = made.source(Target("glsl", writer_assumes=("native_float_atomics",)))
    assert "atomicCompSwap" in made.source("glsl").text and "atomicCompSwap" not in able.text
    assert digest_of(able, "") != digest_of(made.source("glsl"), ""), "they are two programs"


# --- the key


@pytest.mark.parametrize("language", [*LANGUAGES, "reference"])
def test_the_key_is_made_without_writing_and_changes_with_all_that_matters(language: str) -> None:
    def digest(**fields: Any) -> str:
        source = kernel(**fields).source(language)
        found = digest_of(source, "")
        assert "text" not in vars(source), "nothing was written"
        return found

    same = digest()
    assert digest() == same
    # Errors of the reference device name the line, so there a body that has moved is another program.
    assert (digest(first_line=7) == same) is (language != "reference")
    others = [
        digest(body="y[0] = x[1];"),
        digest(name="g"),
        digest(group=32),
        digest(defines={"A": 1}),
        digest(options=["-O1"]),
        digest(params=[kk.Buffer("x", "f4", "rw"), kk.Buffer("y", "f4"), kk.Scalar("n", "i4")]),
        digest(functions=lambda _: "#define SEVEN 7\n"),
        digest(nonnegative_remainders=True),
    ]
    assert len({same, *others}) == 1 + len(others)


def test_a_new_version_of_the_writers_is_a_new_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(kernel().source("opencl"), "")
    monkeypatch.setattr(portable_source, "WRITERS_VERSION", 0)
    after = key_of(kernel().source("opencl"), "")
    assert before.digest != after.digest
    assert (after.fields["writer"], before.fields["source"]) == ("opencl 0", after.fields["source"])


def test_a_source_travels_to_another_process() -> None:
    source = kernel(defines={"A": 1}, functions=lambda _: "#define SEVEN 7\n").source("glsl")
    other = pickle.loads(pickle.dumps(source))
    assert (other.text, digest_of(other, "")) == (source.text, digest_of(source, ""))


# --- without a device


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_languages_name_gives_the_same_source_as_a_device(language: str) -> None:
    made = kernel("kk_atomic_add(y[0], x[0]);")
    assert made.source(language) is made.source(Target(language))


def test_an_unknown_language_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(kk.ArgumentError, match=r"language must be one of cuda, opencl, glsl.*, got 'hlsl'"):
        kernel().source("hlsl")


def test_without_a_device_everything_is_written_that_the_language_can_say() -> None:
    everything = kernel(
        "kk_atomic_max(y[0], 1.0f); xu1[1] = xi2[3];",
        params=[kk.Buffer("y", "f4"), *(kk.Buffer(f"x{t}", t) for t in ("f8", "i8", "u8", "u1", "i2"))],
        group=4096,
    )
    for language in LANGUAGES:
        assert everything.source(language).text


def test_check_supported_raises_what_source_would() -> None:
    kernel().check_supported("cuda")
    with pytest.raises(kk.Unsupported, match="float64"):
        kernel(params=[kk.Buffer("x", "f8")]).check_supported(Target("cuda", kk.Capabilities()))


def test_a_device_with_smaller_groups_is_unsupported() -> None:
    made = kernel(group=(64, 32))
    made.source(Target("cuda", kk.Capabilities(max_group_items=2048)))
    with pytest.raises(
        kk.Unsupported, match=r"kernel f has groups of 2,048 work-items, and this device takes at most 1,024"
    ) as raised:
        made.source(Target("cuda", kk.Capabilities(max_group_items=1024)))
    assert raised.value.capability == "max_group_items"


def test_what_is_no_device_is_named() -> None:
    with pytest.raises(kk.ArgumentError, match="device must be a device, or the name of a language, got 7"):
        kernel().source(7)  # type: ignore[arg-type]


# --- generated kernels


@pytest.mark.parametrize("language", LANGUAGES)
def test_functions_stand_before_the_body_and_first_line_numbers_it(language: str) -> None:
    functions = "float seven() {\n  return 7.0f;\n}\n"
    made = kernel("y[0] = seven();", functions=lambda target: functions + f"// {target.title}\n", first_line=501)
    source = made.source(language)
    lines = source.text.split("\n")
    (written,) = (number for number, line in enumerate(lines, 1) if "y[0] =" in line)
    assert source.place(written) == (501, "y[0] = seven();")
    (written,) = (number for number, line in enumerate(lines, 1) if "return 7.0" in line)
    assert source.place(written) == (2, "  return 7.0f;")
    assert {"cuda": "CUDA C", "opencl": "OpenCL C", "glsl": "GLSL"}[language] in source.key_text


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
