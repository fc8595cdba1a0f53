"""Nothing outside a backend's folder or a language's file tests for its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernelkeep
from kernelkeep.devices.registry import SHIPPED
from kernelkeep.programs.languages import known_languages

PACKAGE = Path(kernelkeep.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
NAMES = {*SHIPPED, *known_languages()}
# Where a name may stand: in the backend's own folder, in the language's own file, and in the list of shipped backends.
OWN_FOLDERS = (*(f"devices/{name}/" for name in SHIPPED), "programs/languages/", "testing/fake/")
LISTS = {"devices/registry.py": "SHIPPED"}


def names_in(path: Path) -> Iterator[str]:
    """Each string literal that is a backend's or language's name and stands where it should not, as `file:line`."""
    where = str(path.relative_to(PACKAGE))
    if not where.startswith(OWN_FOLDERS):
        yield from literals_in(path.read_text(encoding="utf-8"), where)


def literals_in(text: str, where: str) -> Iterator[str]:
    tree = ast.parse(text)
    allowed = {
        id(inner)
        for node in tree.body
        if isinstance(node, ast.Assign) and LISTS.get(where) in [getattr(target, "id", "") for target in node.targets]
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in NAMES and id(node) not in allowed:
            yield f"{where}:{node.lineno} says {node.value!r}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_backend_or_language_is_named_outside_its_own_files(path: Path) -> None:
    """What differs is a capability of the device, a property of its language, or an attribute of its test class."""
    assert not list(names_in(path))


def test_the_search_sees_names() -> None:
    """Guards the test above against passing because it sees nothing."""
    text = 'SHIPPED = ("cuda", "opencl")\ndef f(device):\n    return device.language == "glsl"\n'
    assert list(literals_in(text, "devices/registry.py")) == ["devices/registry.py:3 says 'glsl'"]
    assert len(list(literals_in(text, "cache/key.py"))) == 3
