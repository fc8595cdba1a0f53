"""The process in which candidates are tried: where one of them crashes, this is all that dies.

It gets whole sources and numbers, never code: no user's module is imported here and nothing is unpickled. Messages are
msgpack over a pipe of its own, because drivers print to standard output as they like.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from ..cache.program_cache import ProgramCache
from ..errors import ArgumentError, CompileError, KernelKeepError, Unsupported
from ..processes import end_with
from ..programs.signature import Parameter
from ..programs.source import Source
from .trial import Outcome, Run, sentence, try_variant

__all__ = ["Begin", "CaseAt", "Compile", "Reply", "Try", "main"]


class Begin(msgspec.Struct, tag=True, frozen=True):
    """Open the device."""

    spec: str
    cache_dir: str
    fingerprint: str
    trusted_owner: str | int | None = None


class Compile(msgspec.Struct, tag=True, frozen=True):
    """Bring a program into the cache."""

    text: str
    name: str
    language: str
    options: tuple[str, ...]
    defines: dict[str, Any]
    include_dirs: tuple[str, ...]

    @staticmethod
    def of(source: Source) -> Compile:
        """A source as a message."""
        folders = tuple(str(folder) for folder in source.include_dirs)
        return Compile(source.text, source.name, source.language, source.options, dict(source.defines), folders)

    def source(self) -> Source:
        """And back."""
        folders = tuple(Path(folder) for folder in self.include_dirs)
        return Source(self.text, self.name, self.language, self.options, self.defines, folders)


class CaseAt(msgspec.Struct, frozen=True):
    """A case in a folder, and a launch for it."""

    folder: str
    shapes: dict[str, tuple[int, ...]]
    scalars: dict[str, int | float]
    grid: tuple[int, ...]
    group: tuple[int, ...] | None


class Try(msgspec.Struct, tag=True, frozen=True):
    """Run a program that was compiled."""

    program: Compile
    kernel: str | None
    params: tuple[Parameter, ...]
    cases: tuple[CaseAt, ...]
    tolerance: float
    keep: bool = True  # have the binary on disk, as complete as it is after the launches


class Reply(msgspec.Struct, frozen=True):
    """What came of it; `ready` is said once, when the device is open."""

    outcome: Outcome = Outcome()
    ready: bool = False


_REQUESTS = msgspec.msgpack.Decoder(Begin | Compile | Try)


def main() -> None:
    """Serve requests until the other end is gone."""
    end_with(int(sys.argv[3]))  # a candidate that never ends must not outlive us all
    incoming, outgoing = Connection(int(sys.argv[1]), writable=False), Connection(int(sys.argv[2]), readable=False)
    with contextlib.suppress(EOFError, BrokenPipeError):
        begin = _REQUESTS.decode(incoming.recv_bytes())
        assert isinstance(begin, Begin)
        from ..devices.registry import open_device

        try:
            device = open_device(begin.spec, cache_dir=begin.cache_dir)
        except KernelKeepError as error:
            _say(outgoing, Reply(Outcome("refused", str(error))))
            return
        # A binary that ripens is saved once it is ripe, after the trial: asking for it earlier makes PoCL compile twice.
        at_once = not device.capabilities.ripening_binaries
        trusted = begin.trusted_owner
        with device, ProgramCache(device, begin.cache_dir, auto_save=at_once, trusted_owner=trusted) as cache:
            same = device.fingerprint.digest == begin.fingerprint
            _say(outgoing, Reply(Outcome("" if same else "refused", "" if same else "another device"), ready=True))
            while True:
                request = _REQUESTS.decode(incoming.recv_bytes())
                start = time.perf_counter()
                outcome = _compile(cache, request) if isinstance(request, Compile) else _try(cache, request)
                seconds = time.perf_counter() - start
                _say(outgoing, Reply(msgspec.structs.replace(outcome, compile_seconds=seconds)))


def _compile(cache: ProgramCache, request: Compile) -> Outcome:
    try:
        cache.get(request.source()).release()
    except CompileError as error:
        return Outcome("compile", sentence(error))
    except (ArgumentError, Unsupported) as error:
        return Outcome("refused", sentence(error))
    except (KernelKeepError, OSError, MemoryError) as error:
        return Outcome("passing", sentence(error))
    return Outcome()


def _try(cache: ProgramCache, request: Any) -> Outcome:
    from .case import Case

    try:
        runs = []
        for at in request.cases:
            case = Case.load(Path(at.folder), at.shapes, _typed(at.scalars, request.params))
            runs.append(Run(at.grid, at.group, case))
        outcome = try_variant(cache, request.program.source(), request.kernel, request.params, runs, request.tolerance)
    except (OSError, MemoryError) as error:
        return Outcome("passing", sentence(error))
    if request.keep:
        cache.persist()
    else:
        cache.trim()  # closing the cache would save it
    return outcome


def _typed(scalars: dict[str, int | float], params: tuple[Parameter, ...]) -> dict[str, Any]:
    import numpy as np

    kinds = {p.name: np.dtype(p.dtype).type for p in params if p.kind == "scalar"}
    return {name: kinds[name](value) for name, value in scalars.items()}


def _say(outgoing: Connection, reply: Reply) -> None:
    outgoing.send_bytes(msgspec.msgpack.encode(reply))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # some drivers crash when they are unloaded, and all is saved
