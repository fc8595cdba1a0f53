"""One guest in a process of its own, for `guest_hits.py`: fills its own cache and ours, or measures hits in them.

    python guest_hit_child.py GUEST fill|theirs|ours|both FOLDER

Prints a line of JSON: why something was left out, and for each thing that was measured the seconds of each hit with the guest's
own cache ("theirs") and with ours. With "both" the two take turns, also in being first.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PROGRAMS = 8  # and one more, to warm up
Hit = Callable[[], Any]
Pairs = Sequence[tuple[Hit, Hit]]  # a hit in their cache, and the same in ours


class Missing(Exception):
    """This cannot be measured here; says why."""


def module(name: str) -> Any:
    """A library that need not be installed where the types are checked."""
    return importlib.import_module(name)


class Measured:
    """The samples of this process."""

    def __init__(self) -> None:
        self.samples: dict[str, dict[str, list[float]]] = {}

    def add(self, what: str, who: str, hit: Hit, *, keep: bool = True) -> Any:
        """Time one hit."""
        start = time.perf_counter()
        found = hit()
        seconds = time.perf_counter() - start
        if keep:
            self.samples.setdefault(what, {}).setdefault(who, []).append(seconds)
        return found

    def turns(self, what: str, programs: Pairs) -> None:
        """Time the hits of programs in their cache and in ours. The first program warms up."""
        for number, (theirs, ours) in enumerate(programs):
            contenders = [("theirs", theirs), ("ours", ours)]
            found = {
                who: self.add(what, who, hit, keep=number > 0)
                for who, hit in (contenders if number % 2 else contenders[::-1])
            }
            assert found["theirs"] is not None and type(found["theirs"]) is type(found["ours"]), found


def fill(programs: Pairs) -> None:
    """Have each be compiled, in both caches."""
    for theirs, ours in programs:
        theirs()
        ours()


def main() -> None:
    from guest_hit_frameworks import inductor, jax, triton
    from guest_hit_libraries import cuda_core, cupy, moderngl, pyopencl

    guests = {one.__name__: one for one in (triton, inductor, jax, cupy, cuda_core, pyopencl, moderngl)}
    name, do, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    os.environ["KERNELKEEP_CACHE_DIR"] = str(folder / "ours")
    measured, missing = Measured(), ""
    try:
        guests[name](do, folder, measured)
    except Missing as reason:
        missing = str(reason)
    print(json.dumps({"missing": missing, "samples": measured.samples}), flush=True)


if __name__ == "__main__":
    main()
