"""`kernelkeep guests`: which other libraries can use this cache, and how."""

from __future__ import annotations

from ..guests.catalogue import find_guests
from .common import AsJson, CacheDir, print_fact, print_heading, print_json, print_line


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
    for number, one in enumerate(found):
        if number:
            print_line()
        print_heading(one.guest.name)
        missing = "not installed" if one.version == "" else one.version or "installed"
        print_fact("version", missing)
        print_fact("on", "yes" if one.is_on else "no")
        print_fact("turn on", one.guest.line)
