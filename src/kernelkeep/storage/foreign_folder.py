"""A foreign cache folder: a folder inside the cache in which somebody else, such as a driver, keeps files of its own.

Any device may own one: the folder `driver` in a GPU's folder. An OpenGL driver keeps its shader cache there, PoCL the programs it
builds, and Triton's files and PyTorch's graphs are kept there (`guests/kept_folder.py`). Nobody else reads or writes them.
kernelkeep counts them, removes the whole folder when it is old, and clears it with the rest. A process that cannot go on without
the folder holds it; then it stays. A device makes the folder with `make_private_tree`, because drivers run what they find there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from .files import remove
from .locks import hold_for_life, unless_held
from .removal import remove_all

FOREIGN = "driver"  # its name in a GPU's folder


class ForeignFolder:
    """The foreign cache folder of a GPU's folder. It may be missing."""

    def __init__(self, gpu_folder: Path) -> None:
        self.path = gpu_folder / FOREIGN
        self._lock = gpu_folder / "locks" / "driver.lock"

    def hold(self) -> Callable[[], None]:
        """Keep everybody from removing it until this process ends, or until the returned function is called.

        `LockUnavailable` where the file system has no locks.
        """
        return hold_for_life(self._lock)

    def unless_held(self) -> AbstractContextManager[bool]:
        """Whether nobody holds it; nobody can during the block."""
        return unless_held(self._lock)

    def nbytes(self) -> int:
        """The size of all files in it."""
        return sum(found.st_size for found in self._files())

    def last_used(self) -> float | None:
        """When a file in it was last written; None where there is none."""
        return max((found.st_mtime for found in self._files()), default=None)

    def _files(self) -> Iterator[os.stat_result]:
        for folder, _, names in os.walk(self.path):
            for name in names:
                with contextlib.suppress(OSError):
                    yield os.lstat(os.path.join(folder, name))  # noqa: PTH118

    def prune(self, before: float) -> int:
        """Remove it if it was last used before this time and nobody holds it; how many bytes were removed."""
        used = self.last_used()
        if used is None or used >= before:
            return 0
        with self.unless_held() as idle:
            if not idle:
                return 0
            size = self.nbytes()
            remove(self.path)
        return size

    def remove_if_empty(self) -> None:
        """Remove it, and the GPU's folder around it, where nothing is in them."""
        with contextlib.suppress(OSError):
            with self.unless_held():
                self.path.rmdir()
            self._lock.parent.rmdir()
            self.path.parent.rmdir()

    def remove(self, left: dict[str, str], on_removed: Callable[[str, int], None] | None = None) -> bool:
        """Remove it unless somebody holds it; False if so. `left` and `on_removed` as in `remove_all`."""
        with self.unless_held() as idle:
            if idle:
                remove_all(self.path, left, on_removed)
        return idle
