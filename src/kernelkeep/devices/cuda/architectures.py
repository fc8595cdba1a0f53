"""CUDA programs for GPUs that are not here: cubins for an architecture, made by NVRTC.

A cubin is native code. It runs on GPUs of its architecture, and on those of a later minor version of the same major version:
one for sm_80 runs on an sm_86. One for sm_90a or sm_100f uses what only that architecture, or only its family, has. NVIDIA
promises nothing between its embedded GPUs (Jetson: sm_72, sm_87) and the others, so they take part only by their own name.

There are no targets in PTX. The driver would compile PTX at every start, and an older driver refuses that of a newer compiler.
"""

from __future__ import annotations

import re
from functools import cache

from ...programs.source import Source
from ..ahead import architecture_fingerprint
from ..fingerprint import Fingerprint
from .bindings import load_bindings
from .toolkit import compiler_version

_EMBEDDED = frozenset((72, 87, 88, 101, 110))
_NOT_EMBEDDED = (121, 120, 107, 103, 100, 90, 89, 86, 80, 75)
_OLDEST = 75
_WITH_OWN_FEATURES = 90  # from here on architectures have features of their own: sm_90a
_WITH_FAMILIES = 100  # and families of them: sm_100f


class CudaAhead:
    """NVRTC, which needs no GPU and no driver."""

    language = "cuda"

    def version(self) -> str:
        return compiler_version()

    def architectures(self) -> tuple[str, ...]:
        compiler_version()  # says what is missing where there is no NVRTC
        return _offered()

    def compile(self, source: Source, architecture: str) -> bytes:
        from .compiler import compile_for  # what a cache has needs no compiler

        return compile_for(source, architecture)

    def fingerprint(self, architecture: str) -> Fingerprint:
        return architecture_fingerprint("cuda", "NVIDIA", architecture)


ahead = CudaAhead()


@cache
def _offered() -> tuple[str, ...]:
    _, known = load_bindings("nvrtc").nvrtcGetSupportedArchs()
    return tuple(f"sm_{number}{suffix}" for number in known if number >= _OLDEST for suffix in _suffixes(number))


def _suffixes(number: int) -> tuple[str, ...]:
    return ("", "a", "f") if number >= _WITH_FAMILIES else ("", "a") if number >= _WITH_OWN_FEATURES else ("",)


def loadable_architectures(architecture: str) -> tuple[str, ...]:
    """The architectures whose cubins a GPU of this one runs, the best first.

    Its own, as the GPU itself would compile; then its own with more features, for sources that need them; then older ones.
    """
    number = int(re.sub(r"\D", "", architecture))
    own = [f"sm_{number}{suffix}" for suffix in _suffixes(number)]
    if number in _EMBEDDED:
        return tuple(own)
    older = [one for one in _NOT_EMBEDDED if number // 10 * 10 <= one < number]
    family = [f"sm_{one}f" for one in older if one >= _WITH_FAMILIES]
    return (*own, *(f"sm_{one}" for one in older), *family)


def fingerprints_for(architecture: str) -> tuple[Fingerprint, ...]:
    """Under which a GPU of this architecture finds programs that were compiled ahead."""
    return tuple(ahead.fingerprint(one) for one in loadable_architectures(architecture))
