"""Compiling, loading (here and in a fresh process), reflection, defines and headers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ...devices.base import Device
from ...errors import ArgumentError, CompileError
from ...programs.languages import find_language
from ...programs.portable import Buffer, PortableKernel, Scalar
from ...programs.source import Source
from ..process import run_python
from .common import GROUP, SAXPY, DevicePart, groups, handwritten, handwritten_saxpy

__all__ = ["ProgramTests"]

# The child is given bytes and no source, and its compiler is taken away: what runs there was compiled here.
_FRESH_PROCESS = """
import sys
from pathlib import Path
import numpy as np
import kernelkeep as kk
from kernelkeep.devices.base import Device

def refuse(self, source):
    raise SystemExit("the fresh process compiled something")
Device.compile = refuse

spec, path, group = sys.argv[1], sys.argv[2], int(sys.argv[3])
with kk.open_device(spec) as device:
    program = device.load(Path(path).read_bytes())
    assert program.kernel_names == ("saxpy",), program.kernel_names
    kernel = program.kernel("saxpy")
    kinds = [(p.kind, p.dtype) for p in kernel.params]
    assert kinds == [("buffer", "f4"), ("buffer", "f4"), ("scalar", "f4"), ("scalar", "i4")], kinds
    x, y = device.array(np.arange(1001, dtype="f4")), device.array(np.ones(1001, "f4"))
    kernel.launch(-(-1001 // group), (x, y, 3.0, 1001), group)
    assert (y.numpy() == 3 * np.arange(1001, dtype="f4") + 1).all(), y.numpy()
    try:
        kernel.launch(1, (x, y, 3.0, 2.5), group)
    except kk.ArgumentError:
        print("right")
"""


class ProgramTests(DevicePart):
    """From a source to a kernel that computes."""

    def test_a_device_describes_itself(self, device: Device) -> None:
        info = device.info
        assert (info.backend, device.backend, device.spec) == (self.backend, self.backend, info.spec)
        assert info.spec == f"{self.backend}:{info.index}"
        assert info.name and info.vendor and info.driver
        assert info.spec in repr(device)
        assert device.fingerprint.backend == self.backend
        assert device.fingerprint.folder.endswith(device.fingerprint.digest[:12])
        assert Path(device.fingerprint.folder).name == device.fingerprint.folder

    def test_a_device_is_listed_as_it_opens(self, device: Device) -> None:
        from ...devices.registry import list_devices

        assert device.info in list_devices()

    def test_a_compiled_program_loads_and_launches(self, device: Device) -> None:
        binary = device.compile(SAXPY.source(device))
        assert isinstance(binary, bytes)
        with device.load(binary) as program:
            self.check_saxpy(device, program.kernel("saxpy"))
            self.check_saxpy(device, program.kernel())
            assert program.nbytes > 0

    def test_a_loaded_program_gives_its_binary_again(self, device: Device) -> None:
        program = device.load(device.compile(SAXPY.source(device)))
        self.check_saxpy(device, program.kernel())
        binary = program.binary()
        if binary is not None:
            self.check_saxpy(device, device.load(binary).kernel("saxpy"))

    def test_one_binary_loads_many_times(self, device: Device) -> None:
        binary = device.compile(SAXPY.source(device))
        programs = [device.load(binary) for _ in range(5)]
        programs[0].close()
        for program in programs[1:]:
            self.check_saxpy(device, program.kernel(), 65)

    @pytest.mark.parametrize("written", ["portable", "handwritten"])
    def test_a_binary_loads_in_another_process(self, device: Device, tmp_path: Path, written: str) -> None:
        source = SAXPY.source(device) if written == "portable" else handwritten_saxpy(device.language)
        path = tmp_path / "saxpy.image"
        path.write_bytes(device.compile(source))
        assert run_python(_FRESH_PROCESS, device.spec, path, GROUP).stdout.strip() == "right"

    def test_parameters_of_a_portable_kernel_are_known(self, device: Device) -> None:
        kernel = PortableKernel(
            "mixed",
            params=[Scalar("first", "u4"), Buffer("i", "i4", "r"), Scalar("k", "i4"), Buffer("u", "u4", "w")],
            body="int g = kk_global_id(0); u[g] = first + kk_uint(i[g]) + kk_uint(k);",
            group=(8, 2, 1),
        )
        program = device.load(device.compile(kernel.source(device)))
        assert program.kernel_names == ("mixed",)
        loaded = program.kernel("mixed")
        assert loaded.group == (8, 2, 1)
        assert loaded.params is not None
        assert [(p.name, p.kind, p.dtype) for p in loaded.params] == [
            ("first", "scalar", "u4"),
            ("i", "buffer", "i4"),
            ("k", "scalar", "i4"),
            ("u", "buffer", "u4"),
        ]
        u = device.empty(8, "u4")
        loaded.launch(1, (np.uint32(5), device.array(np.arange(8, dtype="i4")), 7, u))
        assert (u.numpy() == np.arange(8) + 12).all()

    def test_parameters_of_a_handwritten_source_are_known(self, device: Device) -> None:
        kernel = device.load(device.compile(handwritten_saxpy(device.language))).kernel("saxpy")
        assert kernel.params is not None
        # GLSL has two names for a buffer, the block's and the array's; both are "x" but for the case.
        seen = [(p.name.lower(), p.kind, p.dtype) for p in kernel.params]
        assert seen == [("x", "buffer", "f4"), ("y", "buffer", "f4"), ("a", "scalar", "f4"), ("n", "scalar", "i4")]
        assert kernel.group == ((64, 1, 1) if find_language(device.language).fixes_group else None)
        self.check_saxpy(device, kernel, 257, GROUP)
        if kernel.group is None:
            with pytest.raises(ArgumentError, match="group"):
                kernel.launch(1, (device.empty(1), device.empty(1), 1.0, 1))

    def test_a_name_is_only_a_label(self, device: Device) -> None:
        wild = 'my "kernel" {n} \\ ünï'
        kernel_name = wild if find_language(device.language).source_names_kernel else "byhand"
        text = handwritten(device.language, "if (i < n) y[i] = x[i] + a;")
        program = device.load(device.compile(Source(text, name=wild, language=device.language)))
        assert program.kernel_names == (kernel_name,)
        x, y = device.array(np.arange(9, dtype="i4")), device.empty(9, "i4")
        program.kernel(kernel_name).launch(1, (x, y, 5, 9), GROUP)
        assert (y.numpy() == np.arange(9) + 5).all()
        names = [param.name for param in program.kernel().params or ()]
        with pytest.raises(ArgumentError) as caught:
            program.kernel().launch(1, (x, y, 5), GROUP)
        assert str(caught.value) == (
            f"{kernel_name} takes 4 arguments, got 3: pass args=({', '.join(names)}); {names[3]} is missing"
        )

    @pytest.mark.parametrize(
        "name",
        ["step", "mix", "clamp", "dot", "min", "select", "main", "kernel", "float", "half", "NAN", "printf", "kk_x", "long" * 75],
        ids=lambda name: name[:8],
    )  # fmt: skip
    def test_a_portable_kernel_may_have_any_name(self, device: Device, name: str) -> None:
        kernel = PortableKernel(
            name,
            params=[Buffer("y", "f4"), Scalar("step", "f4"), Scalar("min", "f4")],
            body="y[0] = y[0] + step; y[1] = fmax(y[1], 2.5f) + min;",
            group=1,
        )
        program = device.load(device.compile(kernel.source(device)))
        assert program.kernel_names == (name,)
        y = device.array(np.zeros(2, "f4"))
        found = program.kernel(name)
        assert found.name == name
        found.launch(1, (y, 1.5, 1.0))
        found.prepare(1, (y, 2.0, -1.0))()
        assert y.numpy().tolist() == [3.5, 2.5]
        with pytest.raises(ArgumentError, match="kk_entry_other"):
            program.kernel("kk_entry_other")

    def test_several_kernels_in_one_program(self, device: Device) -> None:
        if find_language(device.language).source_names_kernel:
            pytest.skip(f"a source in {device.language} has one kernel")
        one = handwritten(device.language, "if (i < n) y[i] = x[i] + a;", name="plus")
        two = handwritten(device.language, "if (i < n) y[i] = x[i] * a;", name="times")
        both = find_language(device.language).joined((one, two))
        program = device.load(device.compile(Source(both, name="both", language=device.language)))
        assert sorted(program.kernel_names) == ["plus", "times"]
        x, y = device.array(np.arange(9, dtype="i4")), device.empty(9, "i4")
        program.kernel("plus").launch(1, (x, y, 5, 9), GROUP)
        assert (y.numpy() == np.arange(9) + 5).all()
        program.kernel("times").launch(1, (x, y, 5, 9), GROUP)
        assert (y.numpy() == np.arange(9) * 5).all()
        with pytest.raises(ArgumentError, match="has no kernel None"):
            program.kernel()

    def test_defines_reach_a_portable_kernel(self, device: Device) -> None:
        kernel = PortableKernel(
            "defined",
            params=[Buffer("y", "i4", "w")],
            body="int i = kk_global_id(0);\n#ifdef OFF\ny[i] = 0;\n#else\ny[i] = i * FACTOR + ON;\n#endif",
            group=8,
            defines={"FACTOR": 3, "OFF": False, "ON": True},
        )
        (y,) = self.run(device, kernel, 1, np.zeros(8, "i4"))
        assert (y == np.arange(8) * 3 + 1).all()

    def test_defines_reach_a_handwritten_source(self, device: Device) -> None:
        text = handwritten(device.language, "if (i < n) y[i] = x[i] * FACTOR;")
        source = Source(text, name="byhand", language=device.language, defines={"FACTOR": "(2 + 3)"})
        assert (self.run_byhand(device, source) == np.arange(9) * 5).all()

    def test_nested_headers_are_found(self, device: Device, tmp_path: Path) -> None:
        if not find_language(device.language).has_preprocessor:
            pytest.skip(f"the language {device.language} has no preprocessor")
        (tmp_path / "inner").mkdir()
        outer = '#ifndef OUTER\n#define OUTER\n#include "inner/base.h"\n#define SCALE (BASE + 1)\n#endif\n'
        (tmp_path / "outer.h").write_text(outer)
        (tmp_path / "inner" / "base.h").write_text('#pragma once\n#include "more.h"\n#define BASE (MORE * 10)\n')
        (tmp_path / "inner" / "more.h").write_text("#define MORE 4\n")
        text = handwritten(device.language, "if (i < n) y[i] = x[i] * SCALE;", before='#include "outer.h"\n' * 2)
        source = Source(text, name="byhand", language=device.language, include_dirs=(tmp_path,))
        assert (self.run_byhand(device, source) == np.arange(9) * 41).all()
        assert sorted(header.path.name for header in source.headers) == ["base.h", "more.h", "outer.h"]

    def test_a_missing_header_is_named(self, device: Device, tmp_path: Path) -> None:
        text = handwritten(device.language, "y[i] = 1;", before='#include "nowhere.h"\n')
        source = Source(text, name="byhand", language=device.language, include_dirs=(tmp_path,))
        with pytest.raises(CompileError, match=r"nowhere\.h") as caught:
            device.compile(source)
        assert caught.value.line == text.split("\n").index('#include "nowhere.h"') + 1

    @staticmethod
    def run_byhand(device: Device, source: Source) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        """Compile, load and launch `byhand(x, y, a, n)` over x = 0..8."""
        x, y = device.array(np.arange(9, dtype="i4")), device.array(np.full(9, -1, "i4"))
        device.load(device.compile(source)).kernel("byhand").launch(groups(9), (x, y, 0, 9), GROUP)
        return y.numpy()
