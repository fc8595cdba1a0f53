"""The messages between a tuning process and its workers: sources, numbers and outcomes, never code. Nothing is unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..programs.kernel_parts import KernelParts
from ..programs.portable_source import PortableSource
from ..programs.signature import Parameter
from ..programs.source import Source


class Begin(msgspec.Struct, tag=True, frozen=True):
    """Open the device."""

    spec: str
    cache_dir: str
    fingerprint: str
    trusted_owner: str | int | None = None


class Compile(msgspec.Struct, tag=True, frozen=True):
    """Compile a program into the cache."""

    text: str
    name: str
    language: str
    options: tuple[str, ...]
    defines: dict[str, Any]
    include_dirs: tuple[str, ...]
    kernel: KernelParts | None = None  # of a portable kernel, which the worker writes

    @staticmethod
    def of(source: Source) -> Compile:
        """A source as a message."""
        if isinstance(source, PortableSource):
            return Compile("", source.name, source.language, source.options, dict(source.defines), (), source.kernel)
        folders = tuple(str(folder) for folder in source.include_dirs)
        return Compile(source.text, source.name, source.language, source.options, dict(source.defines), folders)

    def source(self) -> Source:
        """The message as a source."""
        if self.kernel is not None:
            return PortableSource(self.kernel, self.language, self.options, self.defines)
        folders = tuple(Path(folder) for folder in self.include_dirs)
        return Source(self.text, self.name, self.language, self.options, self.defines, folders)


class StoredCase(msgspec.Struct, frozen=True):
    """A case in a folder, and a launch for it."""

    folder: str
    shapes: dict[str, tuple[int, ...]]
    scalars: dict[str, int | float]
    grid: tuple[int, ...]
    group: tuple[int, ...] | None
    shared_bytes: int = 0


class Try(msgspec.Struct, tag=True, frozen=True):
    """Run a program that was compiled."""

    program: Compile
    kernel: str | None
    params: tuple[Parameter, ...]
    cases: tuple[StoredCase, ...]
    tolerance: float
    save_binary: bool = True  # after the launches, when it is complete
