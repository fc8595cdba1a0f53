"""Where things are in a shared store.

    programs/<digest of the device's fingerprint>/<digest of the key>    an entry (`cache/entry.py`)
    tuning/<…>                                                           records of tuning
    leases/<…>                                                           who compiles what; not signed, and trusted by nobody

What is signed is signed under the part of its name behind the folder, as the kind that the folder says.
"""

from __future__ import annotations

_KINDS = {"programs": "program", "tuning": "tuning"}
LEASES = "leases/"


def signed_as(name: str) -> tuple[str, str] | None:
    """The kind and the name that a signature binds, of what a store has under a name; None where it is none of ours."""
    folder, _, rest = name.partition("/")
    kind = _KINDS.get(folder)
    return None if kind is None else (kind, rest)
