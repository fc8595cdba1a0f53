"""What compiling for AMD GPUs needs: HIPRTC, which needs no GPU and no driver."""

from __future__ import annotations

from collections.abc import Iterator

from ..requirements import Check, check
from .compiler import HOW_TO_GET_IT, ahead

hint = ""  # nothing to install: it has no devices


def needs() -> Iterator[Check]:
    yield check("the HIP compiler", _compiler, HOW_TO_GET_IT)


def _compiler() -> str:
    return f"{ahead.version()}, for {len(ahead.architectures())} architectures"
