"""`docs/architecture.md` names what is there: every folder of the package, and no file that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import kernelkeep

PACKAGE = Path(kernelkeep.__file__).parent
ROOT = Path(__file__).parents[2]
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TREE = MAP.split("```")[1]


def test_the_picture_shows_every_folder_and_module() -> None:
    here = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert here == set(re.findall(r"^  (\w+)/ ", TREE, re.MULTILINE))
    modules = {path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")}
    assert modules <= set(re.findall(r"\w+\.py", TREE))


def test_every_path_exists() -> None:
    paths = re.findall(r"`([\w/]+/(?:\w+\.py)?)`", MAP)
    assert len(paths) > 40, "the pattern finds no paths"
    missing = [path for path in paths if not (PACKAGE / path).exists() and not (ROOT / path).exists()]
    assert not missing


def test_unit_tests_mirror_the_package() -> None:
    folders = {
        path.name for path in (ROOT / "tests" / "unit").iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert folders <= {path.name for path in PACKAGE.iterdir() if path.is_dir()}
