"""Gives shipped records the digests of the texts that are written today. For maintainers.

    python benchmarks/rebind_records.py "measured with …" FILE.jsonl [FILE.jsonl …]

A record counts only for the very text that was measured. Where a text was changed and its machine code was not, which is for
you to show first (`kernel_texts.py` measures both), the times still hold. The sentence says with what they were measured and
why they hold; it is kept as `detail` of each record that changes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from kernelkeep.devices.base import Capabilities
from kernelkeep.kernels.conv2d.operation import CONV2D
from kernelkeep.kernels.gemm.operation import GEMM
from kernelkeep.variants.definition import source_digest
from kernelkeep.variants.record import Record, decode_lines, encode_line

LANGUAGES = {"cuda": "cuda", "opencl": "opencl", "opengl": "glsl"}
EVERYTHING = Capabilities(float_atomics=True, float64=True, int64=True, int8=True)


def digest_today(path: Path, record: Record) -> str:
    """The digest of the text that the templates write for a record's variant and problem."""
    kernel, kind = path.stem.split("-")[:2]
    definition = {"gemm": GEMM, "conv2d": CONV2D}[kernel].tuned(kind, 1 << 20).definition
    device: Any = SimpleNamespace(language=LANGUAGES[record.architecture.split()[0]], capabilities=EVERYTHING)
    values = definition.template.values(record.problem)
    return source_digest(definition.template.launch(definition.name, device, values, record.variant).source)


def rebind(path: Path, detail: str) -> int:
    """Rewrite a file. Returns how many of its records have another digest now."""
    with path.open("rb") as lines:
        items, bad = decode_lines(lines)
    if bad:
        raise SystemExit(f"{path} has {len(bad)} lines that are no records")
    changed = 0
    for at, item in enumerate(items):
        assert isinstance(item, Record)
        digest = digest_today(path, item)
        if digest != item.source:
            items[at] = msgspec.structs.replace(item, source=digest, detail=detail)
            changed += 1
    path.write_bytes(b"".join(encode_line(item) for item in items))
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description="Gives shipped records the digests of today's texts.")
    parser.add_argument("detail", help="with what the times were measured, and why they hold")
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    for path in options.files:
        print(f"{path.name}: {rebind(path, options.detail)} records changed")


if __name__ == "__main__":
    main()
