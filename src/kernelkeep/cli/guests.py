"""`kernelkeep guests`: which other libraries can use this cache, and how."""

from __future__ import annotations

from ..guests.catalogue import find_guests
from .common import AsJson, CacheDir, print_heading, print_json, print_line


def guests(cache_dir: CacheDir = None, as_json: AsJson = False) -> None:
    """Say which libraries are installed, which of them use this cache, and the line that turns each on. Imports none of them."""
    found = find_guests()
    if as_json:
        print_json(
            {
                "guests": [
                    {"name": one.guest.name, "version": one.version, "on": one.is_on, "line": one.guest.line}
                    for one in found
                ]
            }
        )
        return
    here = [one for one in found if one.version != ""]
    for one in here:
        print_heading(f"{one.guest.name} {one.version or ''}".rstrip() + (", uses this cache" if one.is_on else ""))
        print_line(f"  {one.guest.line}")
        print_line()
    missing = ", ".join(one.guest.name for one in found if one not in here)
    if missing:
        print_line(f"not installed: {missing}")
