"""Errors: each is one of ours, says what is wrong, and leaves the device usable."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from ...devices.base import Device, Kernel
from ...devices.binary import Binary
from ...devices.registry import backend_names
from ...errors import ArgumentError, BinaryRejected, CompileError, DeviceError, OutOfMemory
from ...programs.languages import find_language, known_languages
from ...programs.portable import Buffer, PortableKernel
from ...programs.source import Source
from .common import GROUP, SAXPY, DevicePart, handwritten, handwritten_saxpy

__all__ = ["ErrorTests"]


class ErrorTests(DevicePart):
    """Wrong use is refused before anything runs."""

    # --- compiling

    @pytest.mark.parametrize("defines", [{}, {"A": 1, "B": 2}])
    def test_syntax_error_names_the_line_of_the_body(self, device: Device, defines: dict[str, int]) -> None:
        kernel = PortableKernel(
            "broken",
            params=[Buffer("y", "f4", "rw")],
            body="int i = kk_global_id(0);\ny[i] = 1.0f;\ny[i] = no_such_thing;\ny[i] = 2.0f;",
            group=8,
            defines=defines,
        )
        with pytest.raises(CompileError, match="broken, line 3") as caught:
            device.compile(kernel.source(device))
        error = caught.value
        assert (error.line, error.name) == (3, "broken")
        assert "no_such_thing" in error.log
        assert "y[i] = no_such_thing;" in str(error)

    def test_the_line_survives_shared_arrays(self, device: Device) -> None:
        body = "kk_shared(float,\n          tile, 8);\nint i = kk_local_id(0);\ntile[i] = 1.0f;\ny[i] = missing;"
        kernel = PortableKernel("broken", params=[Buffer("y", "f4", "rw")], body=body, group=8)
        with pytest.raises(CompileError) as caught:
            device.compile(kernel.source(device))
        assert caught.value.line == 5

    @pytest.mark.parametrize("defines", [{}, {"A": 1, "B": 2}])
    def test_syntax_error_names_the_line_of_the_text(self, device: Device, defines: dict[str, int]) -> None:
        text = handwritten(device.language, "y[i] = 1;\ny[i] = no_such_thing;\ny[i] = 2;", before="\n\n")
        source = Source(text, name="byhand", language=device.language, defines=defines)
        with pytest.raises(CompileError, match="byhand") as caught:
            device.compile(source)
        assert caught.value.line == text.split("\n").index("y[i] = no_such_thing;") + 1
        assert "no_such_thing" in caught.value.log

    def test_compiling_works_after_an_error(self, device: Device) -> None:
        for _ in range(3):
            with pytest.raises(CompileError):
                device.compile(Source("this is no program", name="prose", language=device.language))
            self.check_saxpy(device, self.build(device, SAXPY), 65)

    def test_a_source_in_another_language_is_rejected(self, device: Device) -> None:
        for language in known_languages():
            if language != device.language:
                with pytest.raises(ArgumentError, match=language):
                    device.compile(handwritten_saxpy(language))

    # --- loading

    def test_a_damaged_binary_is_rejected(self, device: Device) -> None:
        binary = device.compile(SAXPY.source(device))
        for length in (0, 1, 3, 4, 5, 40, len(binary) // 2, len(binary) - 1):
            with pytest.raises(BinaryRejected):
                device.load(binary[:length])
        for wrong in (b"XXXX" + binary[4:], b"\0" * 200, b"#include <x>", binary[4:], binary + b"more"):
            with pytest.raises(BinaryRejected):
                device.load(wrong)
        self.check_saxpy(device, device.load(binary).kernel(), 65)

    def test_a_binary_of_another_backend_is_rejected(self, device: Device) -> None:
        image = Binary.decode(device.compile(SAXPY.source(device)), device.backend)
        for other in {*backend_names(), "vulkan"} - {device.backend}:
            with pytest.raises(BinaryRejected, match=other):
                device.load(msgspec.structs.replace(image, backend=other).encode())

    @pytest.mark.parametrize(
        "payload", [b"", b"garbage" * 100, b"\0" * 4096, b"\x7fELF"], ids=["none", "text", "0", "ELF"]
    )
    def test_a_binary_with_a_damaged_payload_is_rejected(self, device: Device, payload: bytes) -> None:
        binary = device.compile(SAXPY.source(device))
        image = msgspec.structs.replace(Binary.decode(binary, device.backend), payload=payload)
        with pytest.raises(BinaryRejected, match="saxpy"):
            device.load(image.encode())
        self.check_saxpy(device, device.load(binary).kernel(), 65)

    # --- launching

    def test_an_unknown_kernel_is_rejected_with_the_known_ones(self, device: Device, saxpy: Kernel) -> None:
        with pytest.raises(ArgumentError, match=r"no kernel 'daxpy'.*saxpy"):
            saxpy.program.kernel("daxpy")

    def test_launch_rejects_a_wrong_number_of_arguments(self, device: Device, saxpy: Kernel) -> None:
        x = device.array(np.ones(4, "f4"))
        for args in ((), (x,), (x, x, 1.0), (x, x, 1.0, 4, 5)):
            with pytest.raises(ArgumentError, match=f"saxpy takes 4 arguments, got {len(args)}"):
                saxpy.launch(1, args)

    def test_launch_rejects_arguments_of_wrong_types(self, device: Device, saxpy: Kernel) -> None:
        x, y = device.array(np.ones(4, "f4")), device.array(np.zeros(4, "f4"))
        wrong: list[tuple[int, Any]] = [
            (0, np.ones(4, "f4")), (0, 1.0), (0, None), (0, [1.0]), (0, device.array(np.ones(4, "f8"))),
            (1, device.array(np.ones(4, "i4"))), (1, "y"), (2, x), (2, "1"), (3, 1.5), (3, y),
        ]  # fmt: skip
        for position, value in wrong:
            args: list[Any] = [x, y, 2.0, 4]
            args[position] = value
            with pytest.raises(ArgumentError, match=rf"argument {position} \({'xyan'[position]}\) of saxpy"):
                saxpy.launch(1, tuple(args))
        assert (y.numpy() == 0).all(), "a refused launch must not run"

    def test_launch_says_that_a_numpy_array_is_in_host_memory(self, device: Device, saxpy: Kernel) -> None:
        with pytest.raises(ArgumentError, match=r"device\.array"):
            saxpy.launch(1, (np.ones(4, "f4"), device.empty(4), 1.0, 4))

    @pytest.mark.parametrize("grid", [0, -1, (1, 0), (1, 1, -3), (1, 1, 1, 1), (), 1.0, (2.5, 1), "1", None, 2**40])
    def test_launch_rejects_wrong_grids(self, device: Device, saxpy: Kernel, grid: Any) -> None:
        y = device.array(np.zeros(4, "f4"))
        with pytest.raises(ArgumentError, match="grid"):
            saxpy.launch(grid, (y, y, 1.0, 4))

    @pytest.mark.parametrize("group", [0, -64, 32, (64, 2), (64, 1, 1, 1), 64.0, "64"])
    def test_launch_rejects_wrong_groups(self, device: Device, saxpy: Kernel, group: Any) -> None:
        y = device.array(np.zeros(4, "f4"))
        with pytest.raises(ArgumentError, match="group"):
            saxpy.launch(1, (y, y, 1.0, 4), group)

    def test_launch_rejects_a_group_larger_than_the_device_allows(self, device: Device) -> None:
        if find_language(device.language).fixes_group:
            source = SAXPY.source(device)
            assert str(GROUP) in source.text
            wide = Source(source.text.replace(str(GROUP), "1048576"), "saxpy", device.language)
            with pytest.raises(CompileError):
                device.compile(wide)
            return
        kernel = device.load(device.compile(handwritten_saxpy(device.language))).kernel("saxpy")
        y = device.array(np.zeros(4, "f4"))
        with pytest.raises(ArgumentError, match="must be at most"):
            kernel.launch(1, (y, y, 1.0, 4), device.capabilities.max_group_items * 2)
        self.check_saxpy(device, kernel, 100, GROUP)

    # --- memory

    def test_out_of_memory_raises_and_the_device_goes_on(self, device: Device, saxpy: Kernel) -> None:
        for _ in range(3):
            with pytest.raises(OutOfMemory, match=f"{1 << 46:,}|out of memory") as caught:
                device.empty(1 << 46, "u1")
            assert isinstance(caught.value, MemoryError)
            assert isinstance(caught.value, DeviceError)
        with pytest.raises(OutOfMemory):
            device.empty((1 << 30, 1 << 30), "f8")
        self.check_saxpy(device, saxpy)

    def test_arrays_are_rejected_as_sizes_and_strings_as_arrays(self, device: Device, saxpy: Kernel) -> None:
        sizes: Any = np.array([1, 1])
        x = device.array(np.ones(4, "f4"))
        with pytest.raises(ArgumentError, match="grid must be"):
            saxpy.launch(sizes, (x, x, 1.0, 4))
        with pytest.raises(ArgumentError, match="shape must be"):
            device.empty(sizes)
        text: Any = "abc"
        with pytest.raises(ArgumentError, match="out must be"):
            x.numpy(out=text)
        with pytest.raises(OutOfMemory):
            device.pinned_empty(1 << 50)
        binary = device.compile(SAXPY.source(device))
        at = binary.index(b"saxpy")
        with pytest.raises(BinaryRejected, match="damaged"):
            device.load(binary[:at] + b"\xff" + binary[at + 1 :])
