"""Where things are in a shared store, and what their signatures bind.

    programs/<fingerprint of the device>/<digest of the key>    an entry (`cache/entry.py`); signed as what is behind programs/
    folders/<fingerprint of the device>                         what the folder of these entries is called; signed likewise
    tuning/<…>                                                 records of tuning; signed as the whole name
    leases/<…>                                                 who compiles what; not signed, and trusted by nobody

Checkpoints have addresses of their own.
"""

from __future__ import annotations

LEASES = "leases/"
_PROGRAMS = "programs/"
_FOLDERS = "folders/"
_TUNING = "tuning/"


def signed_as(name: str) -> tuple[str, str] | None:
    """The kind and the name that a signature binds, of what a store has under a name; None where it is none of ours."""
    if name.startswith(_PROGRAMS):
        return "program", name.removeprefix(_PROGRAMS)
    if name.startswith(_FOLDERS):
        return "folder", name.removeprefix(_FOLDERS)
    return ("tuning", name) if name.startswith(_TUNING) else None
