"""Templates: how a text, a variant and a problem become a source and a launch. No device needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.cache.key import digest_of
from kernelkeep.testing import run_python
from kernelkeep.variants.template import Launch, plain_problem

PARAMS = (kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "w"), kk.Scalar("n", "i4"))
BODY = "int i = kk_global_id(0);\nif (i < n) y[i] = x[i] * TIMES;"
JINJA = "int i = kk_global_id(0);\nif (i < n) y[i] = x[i] * {{ TIMES }};"
RAW = "__kernel void scale(__global const float* x, __global float* y, int n) { y[get_global_id(0)] = TIMES; }"


def target(language: str = "opencl", max_group_items: int = 1024) -> Any:
    """What lowering needs to know of a device."""
    capabilities = SimpleNamespace(
        float_atomics=True, float64=True, int64=True, int8=True, max_group_items=max_group_items
    )
    return SimpleNamespace(language=language, capabilities=capabilities)


def launch(
    template: kk.Template, problem: Any = None, device: Any = None, name: str = "scale", **variant: Any
) -> Launch:
    values = template.values({"n": 1000} if problem is None else problem)
    return template.launch(name, device or target(), values, variant)


def digest(made: Launch) -> str:
    return digest_of(made.source, "")


# --- texts


@pytest.mark.parametrize("language", ["opencl", "cuda", "glsl"])
def test_a_variant_is_written_as_macros_or_by_jinja(language: str) -> None:
    made = launch(kk.Template(BODY, PARAMS), device=target(language), TIMES=3)
    assert made.source.defines["TIMES"] == 3 and "x[i] * TIMES" in made.source.key_text
    assert made.source.language == language and made.kernel == "scale"
    made = launch(kk.Template(JINJA, PARAMS), device=target(language), TIMES=3)
    assert "TIMES" not in made.source.defines and "x[i] * 3;" in made.source.key_text


def test_each_variant_is_a_source_of_its_own() -> None:
    for text in (BODY, JINJA, kk.Source(RAW, name="scale", language="opencl")):
        template = kk.Template(text, None if isinstance(text, kk.Source) else PARAMS, grid=1)
        assert len({digest(launch(template, TIMES=times)) for times in (1, 2, 3)}) == 3
        assert digest(launch(template, TIMES=1)) == digest(launch(template, TIMES=1))


def test_variants_that_differ_only_in_their_launch_have_different_sources() -> None:
    """What is measured is remembered by its source."""
    template = kk.Template(kk.Source(RAW + "{# jinja #}"), grid=1, group="GROUP")
    one, other = launch(template, GROUP=64, TIMES=1), launch(template, GROUP=128, TIMES=1)
    assert (one.group, other.group) == ((64,), (128,)) and digest(one) != digest(other)


def test_the_text_decides_the_engine_unless_it_is_given() -> None:
    matrix = "float m[2][2] = {{1.0f, 2.0f}, {3.0f, 4.0f}};\n" + BODY
    assert matrix in launch(kk.Template(matrix, PARAMS), TIMES=3).source.key_text
    odd = "float m[1][1] = {{n}};\n" + BODY
    assert odd in launch(kk.Template(odd, PARAMS, engine="defines"), TIMES=3).source.key_text
    plain = "y[0] = 1.0f;"
    assert "TIMES" not in launch(kk.Template(plain, PARAMS, engine="jinja"), TIMES=3).source.defines


def test_jinja_writes_loops_and_conditions() -> None:
    text = "{% for i in range(UNROLL) %}y[{{ i }}] = x[{{ i }}];\n{% endfor %}{%- if FAST %}// fast{% endif %}"
    made = launch(kk.Template(text, PARAMS), UNROLL=3, FAST=True).source.key_text
    assert "y[2] = x[2];" in made and "y[3]" not in made and "// fast" in made


def test_a_false_value_is_the_macro_0() -> None:
    """Left undefined it would be an error in GLSL."""
    made = launch(kk.Template("#if WIDE\n#endif\n" + BODY, PARAMS), WIDE=False, TIMES=1)
    assert made.source.defines["WIDE"] == 0 and made.source.defines["WIDE"] is not False


def test_a_portable_kernel_and_a_source_keep_their_own_settings() -> None:
    kernel = kk.PortableKernel("portable", PARAMS, BODY, group=32, defines={"OTHER": 7}, options=["-DX"])
    made = launch(kk.Template(kernel, options=["-DY"]), TIMES=3)
    assert dict(made.source.defines) == {"OTHER": 7, "TIMES": 3} and made.source.options == ("-DX", "-DY")
    assert made.kernel == "portable" and made.group == (32,) and made.grid == (32,)
    source = kk.Source(RAW, name="raw", language="opencl", defines={"OTHER": 7}, options=("-DX",))
    made = launch(kk.Template(source, grid=4, options=["-DY"]), TIMES=3)
    assert made.source.name == "raw" and dict(made.source.defines) == {"OTHER": 7, "TIMES": 3}
    assert made.source.options == ("-DX", "-DY") and made.group is None and made.grid == (4,)


def test_a_template_may_have_a_text_for_each_language() -> None:
    template = kk.Template({"opencl": BODY, "cuda": BODY.replace("TIMES", "TIMES * 1.0f")}, PARAMS)
    assert "1.0f" in launch(template, device=target("cuda"), TIMES=1).source.key_text
    assert "1.0f" not in launch(template, device=target("opencl"), TIMES=1).source.key_text
    with pytest.raises(kk.Unsupported, match="no text for glsl; it has: opencl, cuda"):
        launch(template, device=target("glsl"), TIMES=1)


def test_a_source_is_unsupported_in_other_languages() -> None:
    template = kk.Template(kk.Source(RAW, language="opencl"), grid=1)
    for language in ("cuda", "glsl"):
        with pytest.raises(kk.Unsupported, match=f"no text for {language}; it has: opencl"):
            launch(template, device=target(language), TIMES=1)
    cuda = 'extern "C" __global__ void k(float* y, int n) { y[0] = n; }'
    assert (
        kk.Tuned("k", kk.Template(kk.Source(cuda, language="cuda"), grid=1), kk.VariantSpace()).definition.dtype == "f4"
    )


def test_parameters_are_read_from_a_raw_source_or_asked_for() -> None:
    params = kk.Template(kk.Source(RAW, language="opencl")).params("opencl")
    assert [(p.name, p.kind, p.dtype, p.access) for p in params] == [
        ("x", "buffer", "f4", "r"),
        ("y", "buffer", "f4", "rw"),
        ("n", "scalar", "i4", "r"),
    ]
    two = kk.Source(RAW + RAW.replace("scale", "other"), language="opencl")
    with pytest.raises(kk.ArgumentError, match="give params="):
        kk.Template(two).params("opencl")
    assert len(kk.Template(two, kernel="other").params("opencl")) == 3
    with pytest.raises(kk.ArgumentError, match="give params="):
        kk.Template(two, kernel="third").params("opencl")


# --- problems


def test_shapes_grids_and_groups_from_numbers_names_and_functions() -> None:
    template = kk.Template(
        BODY,
        PARAMS,
        arrays={"x": ("m", 4), "y": lambda v: (v["m"], v["half"])},
        derived=lambda problem: {"half": problem["m"] // 2},
        grid=("m", lambda v: v["half"] // v["TILE"]),
        group=lambda v: (v["TILE"], 2),
    )
    values = template.values({"m": 10, "n": 5})
    assert values == {"m": 10, "n": 5, "half": 5}
    assert template.shape("x", values) == (10, 4) and template.shape("y", values) == (10, 5)
    made = template.launch("scale", target(), values, {"TILE": 2, "TIMES": 1})
    assert made.grid == (10, 2) and made.group == (2, 2)


def test_by_default_the_only_size_is_the_shape_and_the_grid_covers_it() -> None:
    template = kk.Template(BODY, PARAMS)
    assert template.shape("y", {"n": 1000}) == (1000,)
    assert launch(template, TIMES=1)[2:4] == ((4,), (256,))
    # Neither a variant's numbers nor what is compiled in is a size.
    assert launch(kk.Template(BODY, PARAMS, group=64, constants=["c"]), {"n": 65, "c": 9}, TIMES=1)[2:4] == (
        (2,),
        (64,),
    )
    assert launch(template, {"n": 0}, TIMES=1).grid == (1,)


def test_dynamic_shared_memory_follows_the_variant() -> None:
    assert launch(kk.Template(BODY, PARAMS), TIMES=1).shared_bytes == 0
    template = kk.Template(BODY, PARAMS, shared_bytes=lambda v: v["TIMES"] * 1024)
    assert launch(template, TIMES=3).shared_bytes == 3072


def test_scalars_come_from_the_problem_or_from_scalars() -> None:
    template = kk.Template(BODY, [*PARAMS, kk.Scalar("a", "f4"), kk.Scalar("b", "f4")],
                           scalars={"a": 2.0, "b": lambda v: v["n"] / 2})  # fmt: skip
    values = template.values({"n": 10})
    assert [template.scalar(name, values) for name in ("n", "a", "b")] == [10, 2.0, 5.0]
    with pytest.raises(kk.ArgumentError, match="scalar c has no value"):
        template.scalar("c", values)


def test_constants_are_compiled_in() -> None:
    template = kk.Template(BODY, PARAMS, arrays={"x": "n", "y": "n"}, constants=["TAPS"],
                           derived=lambda p: {"TAPS": p["r"] ** 2})  # fmt: skip
    assert launch(template, {"n": 10, "r": 3}, TIMES=1).source.defines == {"TAPS": 9, "TIMES": 1}
    assert template.compiled_in(template.values({"n": 10, "r": 5})) == {"TAPS": 25}
    lacking = kk.Template(BODY, PARAMS, constants=["TAPS"])
    with pytest.raises(kk.ArgumentError, match="lacks TAPS"):
        launch(lacking, TIMES=1)


def test_numpy_numbers_in_a_problem_are_pythons() -> None:
    plain = plain_problem({"n": np.int64(7), "a": np.float32(0.5), "kind": "wide", "m": np.array(3)})
    assert plain == {"n": 7, "a": 0.5, "kind": "wide", "m": 3}
    assert [type(value) for value in plain.values()] == [int, float, str, int]


@pytest.mark.parametrize("problem", [None, 7, "n", [("n", 7)], {7: 7}, {"n": None}, {"n": [7]}, {"n": np.zeros(2)}])
def test_plain_problem_rejects_what_is_not_a_problem(problem: Any) -> None:
    with pytest.raises(kk.ArgumentError, match=r"problem must be a dict|a problem's values must be"):
        plain_problem(problem)


# --- wrong use


def test_template_rejects_wrong_arguments() -> None:
    with pytest.raises(kk.ArgumentError, match="needs params"):
        kk.Template(BODY)
    with pytest.raises(kk.ArgumentError, match="'jinja' or 'defines', got 'mako'"):
        kk.Template(BODY, PARAMS, engine="mako")  # type: ignore[arg-type]
    with pytest.raises(kk.ArgumentError, match="text must be a str"):
        kk.Template(7, PARAMS)  # type: ignore[arg-type]
    with pytest.raises(kk.ArgumentError, match="constants must be a list of names"):
        kk.Template(BODY, PARAMS, constants="TAPS")


def test_unknown_names_are_argument_errors() -> None:
    with pytest.raises(
        kk.ArgumentError, match="the template cannot be filled in: 'TIEMS' is undefined; it may use: TIMES"
    ):
        launch(kk.Template(JINJA.replace("TIMES", "TIEMS"), PARAMS), TIMES=3)
    with pytest.raises(kk.ArgumentError, match="line 2, is not jinja2"):
        launch(kk.Template("int i;\n{% if %}", PARAMS), TIMES=3)
    with pytest.raises(kk.ArgumentError, match="arrays= names z, which is no buffer"):
        launch(kk.Template(BODY, PARAMS, arrays={"z": "n"}), TIMES=3)
    with pytest.raises(kk.ArgumentError, match="scalars= names z, which is no scalar"):
        launch(kk.Template(BODY, PARAMS, scalars={"z": 1}), TIMES=3)
    with pytest.raises(kk.ArgumentError, match="the problem needs m, which the shape of y names; it has n"):
        launch(kk.Template(BODY, PARAMS, arrays={"y": "m"}), TIMES=3)
    with pytest.raises(kk.ArgumentError, match="the problem needs m, which grid names; it has n, TIMES"):
        launch(kk.Template(BODY, PARAMS, grid="m"), TIMES=3)
    with pytest.raises(kk.ArgumentError, match="the problem needs 'm', which grid uses; it has n, TIMES"):
        launch(kk.Template(BODY, PARAMS, grid=lambda v: v["m"]), TIMES=3)
    with pytest.raises(kk.ArgumentError, match="the problem needs 'm', which derived uses; it has n"):
        launch(kk.Template(BODY, PARAMS, derived=lambda p: {"k": p["m"]}), TIMES=3)


def test_sizes_that_cannot_be_computed_are_argument_errors() -> None:
    with pytest.raises(kk.ArgumentError, match=r"grid must be integers, got 0\.5"):
        launch(kk.Template(BODY, PARAMS, grid=0.5), TIMES=3)  # type: ignore[arg-type]
    with pytest.raises(kk.ArgumentError, match="the shape of buffer y is not known"):
        launch(kk.Template(BODY, PARAMS), {"n": 1, "m": 2}, TIMES=3)
    with pytest.raises(kk.ArgumentError, match="give grid=, or group="):
        launch(kk.Template(kk.Source(RAW, language="opencl")), TIMES=3)
    with pytest.raises(kk.ArgumentError, match="writes nothing"):
        launch(kk.Template("int i;", [kk.Buffer("x", "f4", "r")], group=64), TIMES=3)


def test_jinja_that_is_not_installed_is_unsupported() -> None:
    script = """
import sys
sys.modules["jinja2"] = None
from types import SimpleNamespace as N
import kernelkeep as kk
template = kk.Template("y[0] = {{ A }};", [kk.Buffer("y", "f4")], arrays={"y": 1}, grid=1)
device = N(language="opencl", capabilities=N(max_group_items=1024))
try:
    template.launch("k", device, {}, {"A": 1})
except kk.Unsupported as error:
    print(error)
"""
    assert "[tune]'" in run_python(script).stdout
