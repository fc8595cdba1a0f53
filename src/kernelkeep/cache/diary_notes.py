"""What the diary gets of a compile: enough to say later why the lookup missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..activity import minutes

if TYPE_CHECKING:
    from ..errors import CompileError
    from ..programs.source import Source
    from .entry import Facts
    from .tiers.disk import DiskTier

_MOST_FIELDS = 60
_LONGEST_FIELD = 200


def note_compile(disk: DiskTier, facts: Facts, *, saves: bool) -> None:
    """Of a program that was compiled: its key, field by field, the seconds it took, and whether the cache saves by itself."""
    minutes.start()
    fields = {name[:_LONGEST_FIELD]: value[:_LONGEST_FIELD] for name, value in facts.key.fields.items()}
    disk.note(
        "compile",
        {
            "name": facts.name[:_LONGEST_FIELD],
            "device": facts.device,
            "language": facts.language,
            "seconds": round(facts.compile_seconds, 6),
            "saved": saves,
            "digest": facts.key.digest,
            "fields": dict(list(fields.items())[:_MOST_FIELDS]),
        },
    )


def note_failed_compile(disk: DiskTier, source: Source, error: CompileError) -> None:
    """Of a source that a compiler refused: the first line of what it said."""
    said = str(error).strip().splitlines()
    disk.note(
        "compile",
        {
            "name": source.name[:_LONGEST_FIELD],
            "device": disk.folder.path.name,
            "language": source.language,
            "error": said[0][:500] if said else "",
        },
    )
