"""Nothing outside a backend's folder or a language's file tests for its name, and what crosses a module has a public name."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import kernelkeep
from kernelkeep.devices.registry import SHIPPED
from kernelkeep.programs.languages import known_languages

PACKAGE = Path(kernelkeep.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
NAMES = {*SHIPPED, *known_languages()}
# Where a name may stand: in the backend's own folder, in the language's own file, and in the list of shipped backends.
OWN_FOLDERS = (*(f"devices/{name}/" for name in SHIPPED), "programs/languages/", "language/writers/", "testing/fake/")
LISTS = {"devices/registry.py": "SHIPPED"}
# Private names of other libraries, used where these have no public one: Python, its ast and futures, PyTorch, pyopencl.
FOREIGN = {"_exit", "_replace", "_fields", "_C", "_cuda_getCurrentRawStream", "_cl", "_Program", "_build", "_PYOPENCL_NO_CACHE",
           "_set_arg_buf", "_set_arg_multi", "_set_arg_buf_multi", "_condition", "_get", "_process_build_options"}  # fmt: skip


MODULES_IN_C = (
    "_caller",
    "_calls",
    "_copying",
    "_digest",
    "_enqueue",
    "_guard",
    "_leases",
    "_native",
    "_reading",
    "_ring",
)


def names_in(path: Path) -> Iterator[str]:
    """Each string literal that is a backend's or language's name and stands where it should not, as `file:line`."""
    where = str(path.relative_to(PACKAGE))
    if not where.startswith(OWN_FOLDERS):
        yield from literals_in(path.read_text(encoding="utf-8"), where)


def literals_in(text: str, where: str) -> Iterator[str]:
    if not any(name in text for name in NAMES):
        return  # parsing takes longer
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


def test_no_backend_or_language_is_named_outside_its_own_files() -> None:
    """What differs is a capability of the device, a property of its language, or an attribute of its test class."""
    assert [found for path in MODULES for found in names_in(path)] == []


def test_the_search_sees_names() -> None:
    """Guards the test above against passing because it sees nothing."""
    text = 'SHIPPED = ("cuda", "opencl")\ndef f(device):\n    return device.language == "glsl"\n'
    assert list(literals_in(text, "devices/registry.py")) == ["devices/registry.py:3 says 'glsl'"]
    assert len(list(literals_in(text, "cache/key.py"))) == 3


def private_uses(text: str, where: str) -> Iterator[str]:
    """Each `obj._x` and each import of an `_x` that the module does not define itself, as `file:line`."""
    tree = ast.parse(text)
    defined = set(FOREIGN)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _of_self(node):
            defined.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # of __slots__
            defined.add(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in defined:
            yield f"{where}:{node.lineno} uses {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("kernelkeep")):
            for alias in node.names:
                if _is_private(alias.name) and alias.name not in MODULES_IN_C:
                    yield f"{where}:{node.lineno} imports {alias.name}"


def private_overrides(module: ModuleType) -> Iterator[str]:
    """Each private method or attribute with which a class replaces that of a base class in another module."""
    for cls in vars(module).values():
        if not inspect.isclass(cls) or cls.__module__ != module.__name__:
            continue
        for name in filter(_is_private, vars(cls)):
            for base in cls.__mro__[1:]:
                ours = base.__module__.startswith("kernelkeep.") and base.__module__ != cls.__module__
                if ours and name in vars(base) and not name.startswith("_abc_"):
                    yield f"{cls.__module__}.{cls.__name__}.{name} overrides that of {base.__module__}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def _of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def test_no_module_uses_private_names_of_another() -> None:
    """What crosses a module has a documented name without an underscore."""
    found: list[str] = []
    for path in MODULES:
        where = path.relative_to(PACKAGE)
        found += private_uses(path.read_text(encoding="utf-8"), str(where))
        # Half of `platforms` is for another system, and a guest's door needs the guest.
        if where.name != "__main__.py" and where.parent.name not in ("platforms", "guests"):
            parts = where.with_suffix("").parts
            name = ".".join(("kernelkeep", *(parts[:-1] if parts[-1] == "__init__" else parts)))
            found += private_overrides(importlib.import_module(name))
    assert found == []


def test_the_search_sees_private_names() -> None:
    text = "from .a import _b\nclass C:\n    def f(self, o):\n        self._own = 1\n        return o._own + o._x\n"
    assert list(private_uses(text, "m")) == ["m:1 imports _b", "m:5 uses o._x"]
