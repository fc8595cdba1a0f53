"""cuda-bindings, imported only when something of CUDA is asked for."""

from __future__ import annotations

from typing import Any

from ...errors import DeviceError
from ...installation import install_command


def load_bindings(name: str) -> Any:
    try:
        import importlib

        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise DeviceError(f"CUDA needs cuda-bindings ({error}); install it with: {install_command('cuda')}") from None
