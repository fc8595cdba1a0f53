"""A CPU that PoCL's compiler has no name for, because it is newer than the compiler.

PoCL asks LLVM for the name of this CPU and has clang compile for it. LLVM 14 calls AMD's Zen 5 "generic", which clang refuses:
"unknown target CPU 'generic'". No option and no variable of PoCL changes the name, so it is replaced in PoCL's record of the
device, by the x86-64 level that the CPU has. The level must be that of PoCL's built-in functions, which PoCL chooses by the
CPU's instructions: with another one, vectors are passed in other registers than those functions expect.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any, BinaryIO

from ..fingerprint import cpu_vectors

_UNKNOWN = "generic"
_LEVELS = {"avx512f": "x86-64-v4", "avx2": "x86-64-v3"}  # LLVM's names, by the widest vectors
_RECORD_BYTES = 2048  # the name stands at 640 in PoCL 3.0
_names: list[ctypes.Array[ctypes.c_char]] = []  # PoCL keeps pointers to them
_named: dict[int, str] = {}  # by the device's address


def name_unknown_cpu(device: Any) -> None:
    """Give a device of PoCL's a CPU that clang knows, if it has none. Where that fails, compiling says what clang says."""
    level = _LEVELS.get(cpu_vectors())
    if level is None or device.int_ptr in _named or not device.version.endswith(f"-{_UNKNOWN}"):
        return
    place = _find_pointer_to(_UNKNOWN.encode() + b"\0", device.int_ptr)
    if place is not None:
        name = ctypes.create_string_buffer(level.encode())
        _names.append(name)
        ctypes.c_void_p.from_address(place).value = ctypes.addressof(name)
        _named[device.int_ptr] = level


def compiled_for(device: Any) -> str:
    """The CPU that PoCL compiles for, by LLVM's name."""
    return _named.get(device.int_ptr) or device.version.rpartition("-gnu-")[2]


def _find_pointer_to(text: bytes, start: int) -> int | None:
    """Where a record that begins at `start` has the address of a text. What is no address is not followed: the kernel reads."""
    try:
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:  # Linux has it
            record = _read(memory, start, _RECORD_BYTES)
            for offset in range(0, len(record) - 7, 8):
                (address,) = struct.unpack_from("<Q", record, offset)
                if _read(memory, address, len(text)) == text:
                    return start + offset
    except OSError:
        pass
    return None


def _read(memory: BinaryIO, address: int, count: int) -> bytes:
    try:
        memory.seek(address)
        return memory.read(count)
    except (OSError, OverflowError, ValueError):
        return b""
