"""Holds the garbage collector off while a kernel is read and written: it would look at all objects, and find nothing."""

from __future__ import annotations

import gc


class CollectorPause:
    """A `with` block without collections, unless another thread asks for them.

    Trees have no cycles, so nothing is left behind. Of pauses in several threads the one that began first ends all of them. A
    thread that turns the collector off for good during another one's pause finds it on again.
    """

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._was_enabled:
            gc.enable()
