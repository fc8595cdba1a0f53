"""What is stored of tuning: a measured variant, the variant in use, and the lines of an exported file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from statistics import median
from typing import Annotated, Any

import msgspec

from ..errors import ArgumentError
from .values import Values, as_text, plain_values

Positive = Annotated[float, msgspec.Meta(ge=0)]

MAX_SAMPLES = 200  # of one variant; the newest stay
LINE_SCHEMA = 1


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One variant, measured or failed, on one problem and one device. All times are milliseconds."""

    tuned: str  # the tuned kernel's name
    source: str  # SHA-256 of the variant's rendered source, in hexadecimal
    space: str  # a hash of the space it came from, for information
    device: str  # the fingerprint's digest
    device_name: str  # the fingerprint's folder, for people
    architecture: str  # records of the same architecture stand in where a device has none of its own
    problem: Values
    variant: Values
    dtype: str = "f4"
    samples_ms: list[Positive] = []
    failure: str = ""  # "compile", "wrong", "guard", "crashed", "hung", "slow", "refused"; "" is a success
    detail: str = ""  # a sentence about the failure, or about where the samples are from
    tolerance: Positive = 0.0  # what the result was verified to
    verified: bool = False
    reference: str = ""  # a hash of the reference's code; "" where it has none
    created: Positive = 0.0  # seconds since 1970; filled in when it is stored
    version: str = ""  # of kernelkeep; filled in when it is stored

    @property
    def median_ms(self) -> float | None:
        """The middle of the samples; None where there are none."""
        return median(self.samples_ms) if self.samples_ms else None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The variant in use for a problem on a device: the fastest measured, or a pinned one."""

    tuned: str
    device: str
    problem: Values
    variant: Values
    dtype: str = "f4"
    pinned: bool = False
    reason: str = ""
    created: Positive = 0.0  # seconds since 1970; filled in when it is stored


# --- checks


def _number(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ArgumentError(f"{what} must be a finite number of at least 0, got {value!r}")
    return number


def checked_record(record: Record) -> Record:
    """The record as it is stored, with plain values; an `ArgumentError` says what cannot be stored."""
    names = ("tuned", "source", "space", "device", "device_name", "architecture", "dtype", "failure", "version")
    changes: dict[str, Any] = {name: as_text(getattr(record, name), name) for name in names}
    samples = [_number(sample, "a sample") for sample in record.samples_ms]
    return msgspec.structs.replace(
        record,
        **changes,
        problem=plain_values(record.problem, "problem"),
        variant=plain_values(record.variant, "variant"),
        samples_ms=samples[-MAX_SAMPLES:],
        detail=_readable(record.detail),
        tolerance=_number(record.tolerance, "the tolerance"),
        verified=bool(record.verified),
        created=_number(record.created, "the time"),
    )


def checked_choice(choice: Choice) -> Choice:
    """The choice as it is stored; an `ArgumentError` says what cannot be stored."""
    return msgspec.structs.replace(
        choice,
        **{name: as_text(getattr(choice, name), name) for name in ("tuned", "device", "dtype")},
        problem=plain_values(choice.problem, "problem"),
        variant=plain_values(choice.variant, "variant"),
        pinned=bool(choice.pinned),
        reason=_readable(choice.reason),
        created=_number(choice.created, "the time"),
    )


def _readable(text: str) -> str:
    """A text as UTF-8: a compiler's log may hold anything."""
    return text.encode("utf-8", "replace").decode()


# --- two records of the same variant


def measured_again(old: Record | None, new: Record) -> Record:
    """The record to store when a variant was tried again: with the samples of both, or the new one where either failed."""
    if old is None or old.failure or new.failure:
        return new
    return _combined(old, new, [*old.samples_ms, *new.samples_ms])


def merged(old: Record | None, new: Record) -> Record:
    """The record to store of one here and one from a file; the order of the files makes no difference.

    Samples that are in both are the same measurements, and count once.
    """
    if old is None:
        return new
    older, newer = (old, new) if new.created > old.created else (new, old)
    if old.failure or new.failure:
        return newer
    more = Counter(older.samples_ms)
    more.subtract(Counter(newer.samples_ms))
    return _combined(older, newer, [*(+more).elements(), *newer.samples_ms])


def _combined(older: Record, newer: Record, samples_ms: list[float]) -> Record:
    tolerance = newer.tolerance if newer.verified or not older.verified else older.tolerance
    return msgspec.structs.replace(
        newer, samples_ms=samples_ms[-MAX_SAMPLES:], verified=newer.verified or older.verified, tolerance=tolerance
    )


def preferred(old: Choice | None, new: Choice) -> Choice:
    """Which of two choices from different places is stored: a pin before an incumbent, then the newer."""
    if old is None:
        return new
    return max(old, new, key=lambda choice: (choice.pinned, choice.created))


# --- lines of a file


class _Head(msgspec.Struct):
    schema: int


class _Line(_Head, omit_defaults=True):
    record: Record | None = None
    choice: Choice | None = None


_head = msgspec.json.Decoder(_Head)
_line = msgspec.json.Decoder(_Line)


def encode_line(item: Record | Choice) -> bytes:
    """A line of a file. Lines are independent: files may be joined, sorted and split."""
    line = _Line(LINE_SCHEMA, item) if isinstance(item, Record) else _Line(LINE_SCHEMA, choice=item)
    return msgspec.json.encode(line) + b"\n"


def decode_lines(lines: Iterable[str | bytes]) -> tuple[list[Record | Choice], list[tuple[int, str]]]:
    """The items in lines, and (number, reason) of each bad line. Raises for a line of a newer version."""
    good: list[Record | Choice] = []
    bad = []
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            good.append(_decode(text))
        except (msgspec.MsgspecError, UnicodeError, RecursionError, ArgumentError) as error:
            if _schema(text) > LINE_SCHEMA:
                raise ArgumentError(
                    f"line {number} was written by a newer kernelkeep "
                    f"(schema {_schema(text)}, this version reads {LINE_SCHEMA}); nothing was read"
                ) from None
            bad.append((number, str(error)))
    return good, bad


def _decode(text: str | bytes) -> Record | Choice:
    line = _line.decode(text)
    if line.schema != LINE_SCHEMA:
        raise ArgumentError(f"schema {line.schema} is unknown")
    if line.record is not None:
        return checked_record(line.record)
    if line.choice is not None:
        return checked_choice(line.choice)
    raise ArgumentError("it holds neither a record nor a choice")


def _schema(text: str | bytes) -> int:
    try:
        return _head.decode(text).schema
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return 0
