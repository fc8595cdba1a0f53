"""Records that are shipped count only while the templates render to the very sources that were measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kernelkeep.kernels
from kernelkeep.devices.base import Capabilities
from kernelkeep.kernels.conv2d.operation import CONV2D
from kernelkeep.kernels.gemm.operation import GEMM
from kernelkeep.variants.definition import source_digest
from kernelkeep.variants.record import Record, decode_lines

RECORDS = Path(kernelkeep.kernels.__file__).parent / "records"
FILES = sorted(RECORDS.glob("*.jsonl"))
LANGUAGES = {"cuda": "cuda", "opencl": "opencl", "opengl": "glsl"}
EVERYTHING = Capabilities(float_atomics=True, float64=True, int64=True, int8=True)


def test_records_are_shipped_for_a_gpu_and_a_cpu() -> None:
    names = {path.stem for path in FILES}
    for kernel in ("gemm", "conv2d"):
        assert {f"{kernel}-tiled-h200-{backend}" for backend in LANGUAGES} <= names
        assert f"{kernel}-vectors-x86-pocl" in names


@pytest.mark.parametrize("kernel", ["gemm", "conv2d"])
@pytest.mark.parametrize("vectors", ["avx2", "avx512f"])
def test_records_are_shipped_for_cpus_with_narrow_and_with_wide_vectors(kernel: str, vectors: str) -> None:
    with (RECORDS / f"{kernel}-vectors-x86-pocl.jsonl").open("rb") as lines:
        records = [record for record in decode_lines(lines)[0] if isinstance(record, Record)]
    known = {tuple(record.problem.items()) for record in records if record.architecture.endswith(f" {vectors}")}
    assert known == {tuple(record.problem.items()) for record in records}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_records_match_the_templates(path: Path) -> None:
    kernel, kind = path.stem.split("-")[:2]
    tuned = {"gemm": GEMM, "conv2d": CONV2D}[kernel].tuned(kind, 1 << 20)
    with path.open("rb") as lines:
        records, bad = decode_lines(lines)
    assert records and not bad
    for record in records:
        assert isinstance(record, Record) and record.tuned == tuned.name and record.verified
        assert record.tolerance <= tuned.definition.tolerance and record.median_ms is not None
        values = tuned.definition.template.values(record.problem)
        assert tuned.definition.space.allows(
            record.variant, values
        ) or record.variant == tuned.definition.space.default(values)
        device: Any = SimpleNamespace(language=LANGUAGES[record.architecture.split()[0]], capabilities=EVERYTHING)
        launch = tuned.definition.template.launch(tuned.name, device, values, record.variant)
        assert source_digest(launch.source) == record.source, f"{record.variant} was measured with another text"
