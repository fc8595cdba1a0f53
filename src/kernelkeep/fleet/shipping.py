"""What goes to a worker on another machine: a user's own Python file, and where results come back to."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ArgumentError


class NamedCode(msgspec.Struct, frozen=True):
    """Something in Python by its name: `module:name`, or `FILE.py:name` with the text of the file, which travels along.

    A file may import what is installed on the workers; other files beside it do not travel.
    """

    name: str  # as the user wrote it
    text: str | None = None

    @classmethod
    def parse(cls, name: str) -> NamedCode:
        """Read the file, if it is one. `ArgumentError` says what is wrong."""
        file, _, _ = name.rpartition(":") if ".py:" in name else (name, "", "")
        if not file.endswith(".py"):
            return cls(name)
        try:
            return cls(name, Path(file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None

    @contextlib.contextmanager
    def placed(self) -> Iterator[str]:
        """The name to use here, for a block: that of a copy of the file where there is one."""
        if self.text is None:
            yield self.name
            return
        file, _, attribute = self.name.rpartition(":") if ".py:" in self.name else (self.name, "", "")
        with tempfile.TemporaryDirectory(prefix="kernelkeep-fleet-") as folder:
            path = Path(folder) / Path(file).name
            path.write_text(self.text, encoding="utf-8")
            yield f"{path}:{attribute}" if attribute else str(path)


def load_function(code: NamedCode) -> Any:
    """The function that `module:function` or `FILE.py:function` names."""
    where, _, attribute = code.name.rpartition(":")
    if not where or not attribute:
        raise ArgumentError(f"a call must be written like module:function or FILE.py:function, got {code.name!r}")
    if code.text is None:
        try:
            module = importlib.import_module(where)
        except ImportError as error:
            raise ArgumentError(f"the module of {code.name} cannot be imported: {error}") from None
    else:
        name = f"kernelkeep_fleet_{Path(where).stem}"
        spec = importlib.util.spec_from_loader(name, loader=None)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        exec(compile(code.text, where, "exec"), module.__dict__)
    found = getattr(module, attribute, None)
    if not callable(found):
        raise ArgumentError(f"{code.name} must be a function, got {found!r}")
    return found
