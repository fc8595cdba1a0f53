"""Compares a device with the reference device: `python -m kernelkeep.testing.generated_kernels --device cuda --count 1000`."""

from __future__ import annotations

import argparse
import os
import sys
import time

from .search import SECONDS_TO_SHRINK, search


def main() -> int:
    """Returns 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m kernelkeep.testing.generated_kernels", description=__doc__)
    parser.add_argument(
        "--device", required=True, help="as for kk.open_device; may be given more than once", action="append"
    )
    parser.add_argument("--count", type=int, default=100, help="how many kernels (100)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0); the others follow")
    parser.add_argument(
        "--batch", type=int, default=20, help="kernels in one program, where the language allows it (20)"
    )
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 8), help="that work at the same time")
    parser.add_argument(
        "--shrink", type=float, default=SECONDS_TO_SHRINK, help="seconds to make a failing kernel shorter"
    )
    parser.add_argument("--option", action="append", default=[], help="for the device's compiler")
    given = parser.parse_args()
    is_bad = False
    for device in given.device:
        begin = time.monotonic()
        found = search(
            device,
            range(given.seed, given.seed + given.count),
            processes=given.processes,
            batch=given.batch,
            seconds_to_shrink=given.shrink,
            options=given.option,
            progress=lambda done: print(f"\r{done}", end="", file=sys.stderr, flush=True),
        )
        print("\r", end="", file=sys.stderr)
        for one in found:
            print(f"--- {device}, seed {one.seed}", *one.lines, one.body, sep="\n")
        seconds = time.monotonic() - begin
        print(f"{device:12} {given.count:6} kernels  {len(found):4} differ  {seconds:7.1f} s", flush=True)
        is_bad = is_bad or bool(found)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
