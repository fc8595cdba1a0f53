"""The identity of a compiled program.

SHA-256 over labelled, length-prefixed fields with a schema version. Labels and lengths keep two different sets of fields
from giving the same bytes. Nothing random takes part, and no address. Included headers count by content. Options keep their
order, because to compilers the last one counts; defines are ordered by name. A person's `name` is a label and not identity,
except where it names the kernel.

The fields are kept beside the digest, in a readable form, so that `explain` can say which of them differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from ..programs.languages import find_language
from ..programs.source import Source

# Of keys and of entries alike: versions with different entries have different keys, so they do not find each other's.
SCHEMA = 1


class Key(msgspec.Struct, frozen=True, gc=False):
    """A digest in hexadecimal, and the fields it was made of, each value short enough to read."""

    digest: str
    fields: dict[str, str]


def digest_of(source: Source, fingerprint: str, *, whoever_wrote: bool = False) -> str:
    """The digest of `source` on a device with that fingerprint. Reads the headers, so it may raise `CompileError`.

    With `whoever_wrote` it stays the same when a new version of kernelkeep writes the source's text otherwise.
    """
    begin, end = _ends(source.language, fingerprint)
    text = source.key_text.encode("utf-8", "surrogatepass")
    between = [
        _spelled(label, value) for label, value in _further_fields(source) if not (whoever_wrote and label == "writer")
    ]
    return hashlib.sha256(b"%b%d:%b%b%b" % (begin, len(text), text, b"".join(between), end)).hexdigest()


@lru_cache(maxsize=64)
def _ends(language: str, fingerprint: str) -> tuple[bytes, bytes]:
    """What comes before the length of a source's text, and what comes last: the same for all sources of a device."""
    begin = b"kernelkeep key %d\0%b6:source" % (SCHEMA, _spelled("language", language.encode()))
    return begin, _spelled("fingerprint", fingerprint.encode())


def _spelled(label: str, value: bytes) -> bytes:
    name = label.encode()
    return b"%d:%b%d:%b" % (len(name), name, len(value), value)


def digest_once(source: Source, fingerprint: str) -> str:
    """The same, computed once for each `Source` and fingerprint."""
    digests: dict[str, str] = source.__dict__.setdefault("_digests", {})
    digest = digests.get(fingerprint)
    if digest is None:
        digest = digests[fingerprint] = digest_of(source, fingerprint)
    return digest


def key_of(source: Source, fingerprint: str, fingerprint_name: str = "") -> Key:
    """The digest, and the fields in a readable form."""
    shown = {}
    for label, value in _fields(source):
        is_content = label == "source" or label.startswith("header ")
        shown[label] = _short(value) if is_content else value.decode("utf-8", "surrogatepass")
    shown["fingerprint"] = fingerprint_name or fingerprint
    return Key(digest_of(source, fingerprint), shown)


def _fields(source: Source) -> list[tuple[str, bytes]]:
    text = source.key_text.encode("utf-8", "surrogatepass")
    return [("language", source.language.encode()), ("source", text), *_further_fields(source)]


def _further_fields(source: Source) -> list[tuple[str, bytes]]:
    """Those that most sources have none of."""
    fields = []
    if source.writer:
        fields.append(("writer", source.writer.encode()))
    if find_language(source.language).source_names_kernel:
        fields.append(("entry", source.name.encode("utf-8", "surrogatepass")))
    spelled: dict[str, int] = {}
    for header in (
        source.headers if source.may_include else ()
    ):  # most include none: finding that out takes half of a key
        # Headers in different folders may be spelled alike.
        times = spelled[header.spelled] = spelled.get(header.spelled, 0) + 1
        fields.append((f"header {header.spelled}" + (f" ({times})" if times > 1 else ""), header.content))
    if source.options:
        for number, option in enumerate(normalised_options(source.options), start=1):
            fields.append((f"option {number}", option.encode("utf-8", "surrogatepass")))
    if source.defines:
        for name, value in source.macros.items():
            fields.append((f"define {name}", value.encode("utf-8", "surrogatepass")))
    return fields


def normalised_options(options: Iterable[str]) -> tuple[str, ...]:
    """Options without white space that has no meaning. Options with quotes or backslashes stay as they are."""
    stripped = (option.strip() for option in options)
    return tuple(
        option if '"' in option or "'" in option or "\\" in option else " ".join(option.split())
        for option in stripped
        if option
    )


def _short(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()[:16]} ({len(content)} bytes)"
