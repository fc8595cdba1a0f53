"""Compiling a program that no tier has: timed, counted, and noted in the diary where it fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..activity.spans import span
from ..errors import CompileError
from .diary_notes import note_failed_compile
from .entry import Facts
from .key import Key
from .log import log

if TYPE_CHECKING:
    from ..devices.base import Device, Program
    from ..programs.source import Source
    from .stats import Counters
    from .tiers.disk import DiskTier
    from .timings import Timings


def compile_program(
    source: Source,
    key: Key,
    device: Device,
    with_relief: Callable[[Callable[[], Any]], Any],
    counters: Counters,
    timings: Timings,
    disk: DiskTier,
) -> tuple[Program, Facts]:
    """The program, and the facts it is saved with. `with_relief` makes room on the device where the compiler finds none."""
    start = time.perf_counter()
    try:
        with timings.compiling(source.name), span("cache.compile", program=source.name, device=device.spec) as current:
            program: Program = with_relief(lambda: device.build(source))
            current.set(bytes=int(program.nbytes))
    except CompileError as error:
        counters.add(misses=1, compile_errors=1)
        note_failed_compile(disk, source, error)
        raise
    seconds = time.perf_counter() - start
    counters.add(misses=1, compiles=1, compile_seconds=seconds)
    log(source.name, "compiled in %.0f ms", seconds * 1e3)
    facts = Facts(
        name=source.name,
        language=source.language,
        device=device.fingerprint.folder,
        key=key,
        created=time.time(),
        compile_seconds=seconds,
        version=__version__,
        kernels=program.kernel_names,
    )
    return program, facts
