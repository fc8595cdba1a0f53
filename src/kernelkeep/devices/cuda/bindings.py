"""cuda-bindings, imported only when something of CUDA is asked for."""

from __future__ import annotations

from typing import Any

from ...errors import DeviceError


def load_bindings(name: str) -> Any:
    try:
        import importlib

        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise DeviceError(
            f"CUDA needs cuda-bindings ({error}); install it with: pip install 'kernelkeep[cuda]'"
        ) from None
