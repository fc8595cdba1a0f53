"""Why the last lookups missed: each compile against the nearest program that was known before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .fields import number, text, texts_by_name

_MOST = 40


class Known(NamedTuple):
    """A program that was in the cache, or had been compiled before."""

    name: str
    digest: str
    device: str
    at: float
    fields: Mapping[str, str]


def explain_misses(records: Iterable[Mapping[str, Any]], on_disk: Iterable[Known]) -> list[dict[str, Any]]:
    """The last compiles, newest first: `name`, `at`, `device`, `seconds`, `why` in one sentence, and `differences`."""
    known: dict[str, list[Known]] = {}
    for one in on_disk:
        known.setdefault(one.name, []).append(one)
    compiled: dict[str, float] = {}  # when each key was compiled last
    found = []
    for record in records:
        if record.get("kind") != "compile":
            continue
        at, name = number(record, "at") or 0.0, text(record, "name")
        this = Known(name, text(record, "digest"), text(record, "device"), at, texts_by_name(record, "fields"))
        found.append(_explained(record, this, known.get(name, []), compiled.get(this.digest)))
        if this.digest and record.get("saved") is not False:  # what was never saved cannot be missed
            compiled[this.digest] = at
        if this.fields:
            known.setdefault(name, []).append(this)
    return found[-_MOST:][::-1]


def _explained(
    record: Mapping[str, Any], this: Known, known: list[Known], compiled_before: float | None
) -> dict[str, Any]:
    common = {
        "name": this.name,
        "at": this.at,
        "device": this.device,
        "language": text(record, "language"),
        "program": text(record, "program"),
        "pid": number(record, "pid"),
        "seconds": number(record, "seconds"),
        "digest": this.digest,
        "nearest": None,
        "differences": [],
    }
    error = text(record, "error")
    if error:
        return common | {"why": f"the compiler refused it: {error}", "failed": True}
    if record.get("saved") is False:
        why = "tried while tuning, or by a cache that does not save by itself; tuning keeps only the winner"
        return common | {"nearest": compiled_before, "why": why, "failed": False}
    # An entry of the same key says nothing: it may come from this very compile, and be saved long before it is noted.
    if compiled_before is not None:
        why = "it had been compiled before, and no tier had it any more: pruned, cleared, damaged, or never saved"
        return common | {"nearest": compiled_before, "why": why, "failed": False}
    before = [one for one in known if one.at < this.at - 1e-3 and one.digest != this.digest]
    if not before:
        return common | {"why": "no program of this name was known: it was the first", "failed": False}
    here = [one for one in before if one.device == this.device]
    nearest = min(here or before, key=lambda one: (len(_differences(one, this)), -one.at))
    differences = _differences(nearest, this)
    common |= {"nearest": nearest.at, "differences": differences}
    if not here and nearest.fields.get("language") != this.fields.get("language"):
        return common | {"why": "no program of this name was known for this device, only for another", "failed": False}
    return common | {"why": _sentence(differences), "failed": False}


def _differences(then: Known, now: Known) -> list[dict[str, str | None]]:
    names = dict.fromkeys([*now.fields, *then.fields])
    pairs = ((name, then.fields.get(name), now.fields.get(name)) for name in names)
    return [{"field": name, "then": old, "now": new} for name, old, new in pairs if old != new]


def _sentence(differences: list[dict[str, str | None]]) -> str:
    words = [_words(one) for one in differences[:3]]
    rest = len(differences) - len(words)
    if not words:
        return "its key differs in something that is not shown"
    listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"{listed}{f', and {rest} more differ' if rest else ''}"


def _words(one: Mapping[str, str | None]) -> str:
    field, then, now = one["field"] or "", one["then"], one["now"]
    if field == "source":
        return "the source text changed"
    if field == "fingerprint":
        return "the device, its driver or its compiler is another"
    if field == "writer":
        return "another version of kernelkeep wrote the source"
    if field.startswith("header "):
        return (
            f"{field.removeprefix('header ')} changed"
            if then and now
            else f"{field} is new"
            if now
            else f"{field} is gone"
        )
    if then is None:
        return f"{field} is new: {now}"
    if now is None:
        return f"{field} is gone: {then}"
    return f"{field} was {then} and is {now}"
