"""A resident grid that was compiled from another text must not be found in a cache: the text around the tasks has a version.

Its digest is recorded here with the version. Between two releases a new digest may be recorded with the same version only if no
cache can hold the old one; so raise `GRID_VERSION` whenever the text changes what a grid does.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from kernelkeep.programs import languages
from kernelkeep.programs.task_program import GRID_VERSION

RECORDED = (17, "e8041a32f59c84d1")


def test_another_text_of_the_grid_needs_another_version() -> None:
    folder = Path(languages.__file__).parent
    texts = b"".join((folder / name).read_bytes() for name in ("cuda_resident.cu", "cuda_resident.py"))
    found = (GRID_VERSION, hashlib.sha256(texts).hexdigest()[:16])
    assert found == RECORDED, f"raise GRID_VERSION, then record {found}"
