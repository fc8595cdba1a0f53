"""The identity of a compiled program.

SHA-256 over labelled, length-prefixed fields with a schema version. Labels and lengths make it impossible for two
different sets of fields to run into the same bytes; nothing random and no address of anything takes part. Included
headers count by content. Options keep their order, because compilers give the last word to the last one; defines are
ordered by name. A person's `name` is a label and not identity, except in GLSL, where it is the kernel's name.

The fields are kept beside the digest, in a readable form, so that `explain` can say which of them differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from ..programs.source import Source

__all__ = ["SCHEMA", "Key", "key_of", "normalised_options"]

SCHEMA = 1


class Key(msgspec.Struct, frozen=True):
    """A digest in hexadecimal, and the fields it was made of, each value short enough to read."""

    digest: str
    fields: dict[str, str]


def key_of(source: Source, fingerprint: str, fingerprint_name: str = "") -> Key:
    """The key of `source` on a device with that fingerprint digest. Reads the headers, so it may raise `CompileError`."""
    fields: list[tuple[str, str, str]] = [  # label, value that is hashed, value that is shown
        ("language", source.language, source.language),
        ("fingerprint", fingerprint, fingerprint_name or fingerprint),
        ("source", source.text, _short(source.text.encode())),
    ]
    if source.language == "glsl":
        fields.append(("entry", source.name, source.name))
    for header in source.headers:
        content = header.content.hex()
        fields.append((f"header {header.spelled}", content, _short(header.content)))
    for number, option in enumerate(normalised_options(source.options), start=1):
        fields.append((f"option {number}", option, option))
    for name, value in source.macros.items():
        fields.append((f"define {name}", value, value))
    digest = hashlib.sha256(f"kernelkeep key {SCHEMA}\0".encode())
    for label, value, _ in fields:
        for part in (label.encode(), value.encode("utf-8", "surrogatepass")):
            digest.update(f"{len(part)}:".encode())
            digest.update(part)
    return Key(digest.hexdigest(), {label: shown for label, _, shown in fields})


def normalised_options(options: Iterable[str]) -> tuple[str, ...]:
    """Options without needless white space; a flag and its value given apart become one."""
    result: list[str] = []
    for option in options:
        words = option.split()
        if not words:
            continue
        text = " ".join(words)
        if result and not text.startswith("-") and result[-1].startswith("-"):
            result[-1] += " " + text
        else:
            result.append(text)
    return tuple(result)


def _short(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()[:16]} ({len(content)} bytes)"
