"""The identity of a device, driver and compiler: a compiled program is valid for exactly one.

Every backend passes its raw strings to `Fingerprint`, which makes a readable folder name and a digest of them. The folder
name ends in a part of the digest, so two drivers with similar names never share a folder.
"""

from __future__ import annotations

import hashlib
import platform
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from ..platforms import system

_FILLER = re.compile(
    r"\((?:r|tm|c)\)|\b(corporation|corp|inc|the|co|ltd|project|processor|cpu|gpu|graphics)\b\.?", re.IGNORECASE
)

_FIELDS = ("backend", "vendor", "model", "driver", "compiler", "architecture")


@dataclass(frozen=True)
class Fingerprint:
    """The strings that identify a device for compiled programs: as the driver gave them, with normalised white space."""

    backend: str
    vendor: str
    model: str
    driver: str
    compiler: str
    architecture: str

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            object.__setattr__(self, name, " ".join(str(value).split()))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every field, labelled and length-prefixed, in hexadecimal."""
        digest = hashlib.sha256(b"kernelkeep fingerprint 1\0")
        for name in _FIELDS:
            value = getattr(self, name).encode()
            digest.update(f"{name}:{len(value)}:".encode() + value)
        return digest.hexdigest()

    @property
    def facts(self) -> dict[str, str]:
        """The strings and the digest, as a manifest has them."""
        return {name: getattr(self, name) for name in (*_FIELDS, "digest")}

    @cached_property
    def folder(self) -> str:
        """A folder name: model, driver and compiler to be read by people, and a part of the digest to be unique."""
        parts = [self.backend, _slug(self.model, 40), _slug(self.driver, 24), _slug(self.compiler, 24)]
        return "_".join(part for part in parts if part) + "_" + self.digest[:12]


def _slug(text: str, length: int) -> str:
    """Lower case, letters, digits, dots and dashes only."""
    length = min(length, system.LONGEST_FACT)
    plain = _FILLER.sub(" ", text).lower()
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.")[:length].strip("-.")


@cache
def cpu_identity() -> str:
    """This machine's CPU: model and a digest of its instruction-set flags.

    CPU drivers (PoCL, llvmpipe) compile for exactly the instructions of this CPU, and machines with the same model name
    may differ in them (virtual machines hide some).
    """
    model, flags = platform.machine(), ""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                model = value.strip()
            elif name.strip() in ("flags", "Features"):
                flags = " ".join(sorted(value.split()))
                break
    except OSError:
        model = f"{model} {platform.processor()}".strip()
    return f"{model} {hashlib.sha256(flags.encode()).hexdigest()[:12]}"


@cache
def cpu_vectors() -> str:
    """The widest vector instructions of this machine's CPU."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = set(found.group(1).split()) if found else set()
    return next((name for name in ("avx512f", "avx2", "avx", "sve", "asimd", "sse2") if name in flags), "")
