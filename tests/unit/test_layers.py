"""Imports go one way, and importing the package is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kernelkeep

PACKAGE = Path(kernelkeep.__file__).parent
# A layer may import itself and what is to its left; below all are the leaves.
ORDER = (
    "storage",
    "activity",
    "remote",
    "html",
    "progress",
    "pictures",
    "language",
    "programs",
    "devices",
    "cache",
    "variants",
    "execution",
    "continuous",
    "resident",
    "kernels",
    "samples",
    "fleet",
    "guests",
    "observe",
    "cli",
)
LEAVES = (
    "errors",
    "escaping",
    "installation",
    "settings",
    "events",
    "platforms",
    "processes",
    "tracebacks",
    "weak_set",
    "words",
)
# `__init__` only names where things live and loads nothing; `__main__` starts the command line.
FREE = ("__init__", "__main__")
HEAVY = ("numpy", "pyopencl", "cuda", "OpenGL", "moderngl", "msgspec")
MODULES = sorted(PACKAGE.rglob("*.py"))


def rank(layer: str) -> int:
    return 0 if layer in LEAVES else 1 + ORDER.index(layer)


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name below kernelkeep) of everything a module imports from kernelkeep, anywhere in it."""
    package = path.relative_to(PACKAGE).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "kernelkeep":
                    yield node.lineno, ".".join(alias.name.split(".")[1:])
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".") if node.module else []
            if node.level:
                base = [*package[: len(package) - node.level + 1], *module]
            elif module[:1] == ["kernelkeep"]:
                base = module[1:]
            else:
                continue
            # `from .. import settings` names modules, `from ..errors import X` names things in one.
            yield from ((node.lineno, ".".join([*base, alias.name])) for alias in node.names)


def test_imports_go_one_way() -> None:
    for path in MODULES:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        layer = parts[0]
        if layer in FREE:
            continue
        known = (*LEAVES, *ORDER, "testing")
        assert layer in known, f"{path}: which layer is {layer}? Name it in ARCHITECTURE and here"
        for line, name in imported(path):
            target = name.split(".")[0]
            if target not in known:
                continue  # something of kernelkeep/__init__.py, such as __version__
            where = f"{path}:{line} imports kernelkeep.{name}"
            if layer == "testing":
                assert target != "cli", f"{where}: testing imports anything but cli"
                continue
            assert target != "testing", f"{where}: what ships to users does not depend on testing"
            if layer in LEAVES:
                assert target in LEAVES, f"{where}: {layer} is a leaf"
            else:
                assert rank(target) <= rank(layer), f"{where}: {layer} is below {target}"
            if layer == "cache" and target == "devices":
                knows = parts[1:] in (("program_cache",), ("loading",), ("compiling",))
                assert knows, f"{where}: in cache/ only program_cache.py, loading.py and compiling.py know devices"


def test_the_walk_sees_the_imports() -> None:
    """Guards the test above against passing because it sees nothing."""
    seen = {name for _, name in imported(PACKAGE / "devices" / "registry.py")}
    assert {"settings", "errors.DeviceError", "devices.base.Device"} <= seen


def test_importing_kernelkeep_loads_no_heavy_library() -> None:
    code = f"import sys, kernelkeep; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
