"""An older file that is no longer needed becomes the next checkpoint: only the blocks that differ are written.

The file is one that would be removed. It first loses its name, so that whoever is killed leaves the newer files untouched and
a temporary file, which the next writer removes. Then nobody can open it any more; where somebody has it open, or it has a
second name, it is removed, as it would have been, and a new file is written.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from ...platforms import system
from ...storage.files import Damaged, open_to_overwrite
from .block_digest import Digests
from .block_layout import BlockLayout
from .blocks import BlockContent, read_table
from .format import PREFIX
from .reading import read_start

_SHA_BYTES = 32


class Base:
    """A file that is open to be overwritten, and the digests of its blocks."""

    def __init__(self, path: Path, descriptor: int, table: Digests) -> None:
        self.path = path
        self.descriptor = descriptor
        self.table = table

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)


def open_base(path: Path, lineage: str, content: BlockContent) -> Base | None:
    """The file at `path`, if it can be overwritten with `content` and that writes clearly less than a new file; else None."""
    try:
        descriptor = open_to_overwrite(path)
    except (OSError, Damaged):
        return None
    base = None
    try:
        table = _table_of(path, descriptor, lineage, content)
        if table is not None and content.worth_patching(table):
            base = Base(path, descriptor, table)
    except (OSError, Damaged):
        pass
    finally:
        if base is None:
            os.close(descriptor)
    return base


def _table_of(path: Path, descriptor: int, lineage: str, content: BlockContent) -> Digests | None:
    if system.is_open_elsewhere(descriptor):  # asked again when nobody can open it any more
        return None
    found = os.fstat(descriptor)
    if found.st_nlink != 1 or found.st_size != content.layout.size or not os.path.samestat(found, path.stat()):
        return None
    with os.fdopen(os.dup(descriptor), "rb") as file:  # a duplicate is not another opening
        header, prefix, _ = read_start(file)
    start = PREFIX.size + prefix.header_bytes + _SHA_BYTES
    if header.lineage != lineage or header.arrays != content.infos:
        return None
    if BlockLayout.of(start, header.arrays) != content.layout:
        return None
    return read_table(descriptor, content.layout, system.read_at(descriptor, start, 0))
