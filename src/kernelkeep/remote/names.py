"""Where things are in a shared store.

    programs/<digest of the device's fingerprint>/<digest of the key>    an entry (`cache/entry.py`)
    tuning/<…>                                                           records of tuning
    leases/<…>                                                           who compiles what; not signed, and trusted by nobody

What is signed is signed under its whole name, as the kind that its folder says.
"""

from __future__ import annotations

_KINDS = {"programs": "program", "tuning": "tuning"}
LEASES = "leases/"


def program_name(fingerprint: str, digest: str) -> str:
    """Where the program with this key is, for devices with this fingerprint; both digests in hexadecimal."""
    return f"programs/{fingerprint}/{digest}"


def kind_of(name: str) -> str | None:
    """The kind under which what has this name is signed; None where nothing of ours has such a name."""
    return _KINDS.get(name.partition("/")[0])
