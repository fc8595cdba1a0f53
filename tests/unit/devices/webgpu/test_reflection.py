"""What WGSL texts take, without any driver."""

from __future__ import annotations

import pytest

import kernelkeep as kk
from kernelkeep.devices.webgpu.reflection import reflect, with_writable_buffers

KERNEL = "@compute @workgroup_size(64)\nfn scale(@builtin(global_invocation_id) id: vec3<u32>) { }\n"


def test_buffers_come_by_binding_and_scalars_by_offset() -> None:
    text = """
        struct Scalars { a: f32, n: i32 }
        @group(0) @binding(3) var<uniform> scalars: Scalars;
        @group(0) @binding(2) var<storage, read_write> y: array<atomic<u32>>;
        @binding(0) @group(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage> z: array<vec4<f32>>;
        @group(0) @binding(4) var<uniform> last: u32;
        var<workgroup> tile: array<f32, 64>;
    """
    (signature,) = reflect(text + KERNEL, "test")
    assert signature.params is not None
    assert [(p.name, p.kind, p.dtype, p.access, p.slot, p.place) for p in signature.params] == [
        ("x", "buffer", "f4", "r", 0, ""),
        ("z", "buffer", None, "r", 1, ""),
        ("y", "buffer", "u4", "rw", 2, ""),
        ("a", "scalar", "f4", "r", 0, "3"),
        ("n", "scalar", "i4", "r", 4, "3"),
        ("last", "scalar", "u4", "r", 0, "4"),
    ]
    assert signature.group == (64, 1, 1)


def test_aliases_comments_and_constants_are_understood() -> None:
    text = """
        alias real = f32;
        alias reals = array<real>;
        // @group(0) @binding(7) var<storage, read> old: array<f32>;
        /* @compute @workgroup_size(1) fn gone() { } */
        const WIDE = 8u;
        @group(0) @binding(0) var<storage, read> x: reals;
        @workgroup_size(WIDE, 4i) @compute fn first() { }
        fn helper(v: f32) -> f32 { return v; }
        @compute @workgroup_size(2, 3, 4) fn second() { }
    """
    one, two = reflect(text, "test")
    assert (one.name, one.group, two.name, two.group) == ("first", (8, 4, 1), "second", (2, 3, 4))
    assert one.params is not None and [(p.name, p.dtype) for p in one.params] == [("x", "f4")]
    assert one.params == two.params


def test_a_declaration_names_and_orders_the_arguments() -> None:
    text = """//kk: kernel scale group(64,1,1) count:scalar:u1 values:buffer:i2:rw
        struct S { n: i32 }
        @group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @group(0) @binding(1) var<uniform> s: S;
    """
    (signature,) = reflect(text + KERNEL, "test")
    assert signature.params is not None
    assert [(p.name, p.dtype, p.slot, p.place) for p in signature.params] == [
        ("count", "u1", 0, "1"),
        ("values", "i2", 0, ""),
    ]


@pytest.mark.parametrize("declared", ["x:buffer:f4:r y:buffer:f4:r", ""], ids=["more", "fewer"])
def test_a_declaration_that_does_not_fit_is_an_error(declared: str) -> None:
    text = f"//kk: kernel scale {declared}\n@group(0) @binding(0) var<storage, read> x: array<f32>;\n"
    with pytest.raises(kk.CompileError, match="scale"):
        reflect(text + KERNEL, "test")


@pytest.mark.parametrize(
    "line",
    [
        "@group(1) @binding(0) var<storage, read> odd: array<f32>;",
        "@group(0) @binding(0) var odd: texture_2d<f32>;",
        "@group(0) @binding(0) var<uniform> odd: mat4x4<f32>;",
        "struct S { v: vec2<f32> }\n@group(0) @binding(0) var<uniform> odd: S;",
        "struct S { @size(16) v: f32 }\n@group(0) @binding(0) var<uniform> odd: S;",
    ],
    ids=["group", "texture", "matrix", "vector", "attribute"],
)
def test_arguments_that_cannot_be_passed_are_unsupported(line: str) -> None:
    with pytest.raises(kk.Unsupported, match="odd"):
        reflect(f"{line}\n{KERNEL}", "test")


def test_a_text_without_a_kernel_is_an_error() -> None:
    with pytest.raises(kk.CompileError, match="no kernel"):
        reflect("fn scale() { }", "test")


def test_read_only_buffers_become_writable_and_keep_their_lines() -> None:
    text = "var<storage, read> x: array<f32>;\nvar<storage> y: array<f32>;\nvar< storage,read_write > z: array<f32>;"
    written = with_writable_buffers(text)
    assert written.count("var<storage, read_write>") == 2
    assert written.split("\n")[2] == text.split("\n")[2]
