"""Both operating systems have the same names, and nothing else knows which one it is on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import kernelkeep

PACKAGE = Path(kernelkeep.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent.name != "platforms")
# Modules that Windows or the others lack.
PARTIAL = {"_winapi", "fcntl", "grp", "msvcrt", "pty", "pwd", "resource", "syslog", "termios", "tty", "winreg"}


def names_in(system: str) -> dict[str, list[str] | None]:
    """The public names that a module defines; with those of the parameters where it is a function."""
    found: dict[str, list[str] | None] = {}
    for node in ast.parse((PACKAGE / "platforms" / f"{system}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            found.update({name.id: None for name in names})
    return {name: arguments for name, arguments in found.items() if not name.startswith("_") and name != "T"}


def test_both_systems_have_the_same_names() -> None:
    posix, windows = names_in("posix"), names_in("windows")
    assert sorted(posix) == sorted(windows)
    assert {"lock", "replace", "on_fork"} <= set(posix)
    for name, arguments in posix.items():
        if arguments is not None:  # else it is a function of the standard library
            assert windows[name] == arguments, name


def partial_imports(text: str) -> Iterator[str]:
    if not any(name in text for name in PARTIAL):
        return  # parsing takes longer
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in PARTIAL)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module in PARTIAL:
            yield node.module


def test_no_other_module_imports_what_a_system_lacks() -> None:
    assert [f"{path}: {name}" for path in MODULES for name in partial_imports(path.read_text(encoding="utf-8"))] == []


def test_the_search_sees_imports() -> None:
    assert list(partial_imports("import fcntl, os\ndef f():\n    from pwd import getpwnam\n")) == ["fcntl", "pwd"]
