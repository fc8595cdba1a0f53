"""The program of a worker process, in which candidates are tried: where one crashes, only the worker dies.

It reads whole sources and numbers, so no module of the user's is imported here. Messages are msgpack over a pipe of its
own, because drivers print to standard output. `worker_process.py` is the other end.
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
import numpy as np

from ..cache.program_cache import ProgramCache
from ..devices.registry import open_device
from ..errors import KernelKeepError
from ..processes import end_with
from ..programs.signature import Parameter
from .case import Case
from .trial import Outcome, TrialLaunch, failed, try_variant
from .worker_messages import Begin, Compile, Try

_REQUESTS = msgspec.msgpack.Decoder(Begin | Compile | Try)


def main() -> None:
    """Serve requests until the other end is closed."""
    end_with(int(sys.argv[3]))  # a candidate that never ends must not outlive the tuning process
    incoming, outgoing = Connection(int(sys.argv[1]), writable=False), Connection(int(sys.argv[2]), readable=False)

    def reply(outcome: Outcome) -> None:
        outgoing.send_bytes(msgspec.msgpack.encode(outcome))

    with contextlib.suppress(EOFError, BrokenPipeError):
        begin = _REQUESTS.decode(incoming.recv_bytes())
        assert isinstance(begin, Begin)
        try:
            device = open_device(begin.spec, cache_dir=begin.cache_dir)
        except KernelKeepError as error:
            reply(Outcome("refused", str(error)))
            return
        # Where a binary is complete only after a launch, it is saved after the trial: asking for it earlier makes PoCL
        # compile twice.
        at_once = not device.capabilities.ripening_binaries
        owner = begin.trusted_owner
        with device, ProgramCache(device, begin.cache_dir, remote=[], auto_save=at_once, trusted_owner=owner) as cache:
            same = device.fingerprint.digest == begin.fingerprint
            reply(Outcome() if same else Outcome("refused", "another device"))
            while True:
                request = _REQUESTS.decode(incoming.recv_bytes())
                start = time.perf_counter()
                outcome = _compile(cache, request) if isinstance(request, Compile) else _try(cache, request)
                reply(msgspec.structs.replace(outcome, compile_seconds=time.perf_counter() - start))


def _compile(cache: ProgramCache, request: Compile) -> Outcome:
    try:
        cache.get(request.source()).release()
    except (KernelKeepError, OSError, MemoryError) as error:
        return failed(error, otherwise="transient")
    return Outcome()


def _try(cache: ProgramCache, request: Any) -> Outcome:
    try:
        launches = [
            TrialLaunch(
                at.grid,
                at.group,
                Case.load(Path(at.folder), at.shapes, _typed(at.scalars, request.params)),
                at.shared_bytes,
            )
            for at in request.cases
        ]
        source = request.program.source()
        outcome = try_variant(cache, source, request.kernel, request.params, launches, request.tolerance)
    except (OSError, MemoryError) as error:
        return failed(error, otherwise="transient")
    if request.save_binary:
        cache.persist()
    else:
        cache.trim()  # closing the cache would save it
    return outcome


def _typed(scalars: dict[str, int | float], params: tuple[Parameter, ...]) -> dict[str, Any]:
    types = {p.name: np.dtype(p.dtype).type for p in params if p.kind == "scalar"}
    return {name: types[name](value) for name, value in scalars.items()}


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # some drivers crash when they are unloaded, and all is saved
