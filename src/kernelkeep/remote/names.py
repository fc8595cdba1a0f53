"""Where things are in a shared store, and what their signatures bind.

    programs/<fingerprint of the device>/<digest of the key>    an entry (`cache/entry.py`); signed as what is behind programs/
    folders/<fingerprint of the device>                         a GPU folder's name and facts; signed as what is behind folders/
    tuning/<…>                                                  records of tuning; signed as the whole name
    leases/<…>                                                  who compiles what; not signed, and trusted by nobody

Checkpoints have addresses of their own.
"""

from __future__ import annotations

LEASES = "leases/"


def signed_as(name: str) -> tuple[str, str] | None:
    """The kind and the name that a signature binds, of what a store has under a name; None where it is none of ours."""
    folder, _, rest = name.partition("/")
    kinds = {"programs": ("program", rest), "folders": ("folder", rest), "tuning": ("tuning", name)}
    return kinds.get(folder)
