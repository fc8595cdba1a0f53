"""Every KERNELKEEP_* variable and its default, in one place.

    KERNELKEEP_DEVICE         the device `open_device()` opens, for example "opencl:0" or "cuda"
    KERNELKEEP_CACHE_DIR      where compiled programs are kept; by default `kernelkeep` in the user's cache folder
    KERNELKEEP_TRUSTED_OWNER  one more user, by name or number, whose cache folder is used: what is in it is executed
    KERNELKEEP_REMOTE         shared stores, comma-separated, nearest first: "redis://host/0,s3://bucket/kernels"
    KERNELKEEP_KEYS_DIR       where the keys of `kernelkeep keys` are; by default `kernelkeep/keys` in the user's configuration
    KERNELKEEP_LIVE           "0": `kernelkeep top` does not see the process; a path: where processes are found instead of
                              `kernelkeep` in $XDG_RUNTIME_DIR, or the user's cache folder
    KERNELKEEP_DIARY          "0": keep no record of what was done in the cache folder; `kernelkeep report` draws from it
    KERNELKEEP_PROGRESS       "0": progress=True shows nothing; "lines": lines as in a log, also on a terminal and in a notebook
    KERNELKEEP_NATIVE         "0": leave the module in C alone, and use its twin in plain Python
    KERNELKEEP_REQUIRE        comma-separated backends, guests and "chromium": their tests fail where they are missing

Variables are read when they are asked for, so a program may set them after importing kernelkeep.
"""

from __future__ import annotations

import os

from .errors import ArgumentError

TYPE_CHECKING = False  # what type checkers take for True

if TYPE_CHECKING:
    from pathlib import Path

MAX_PROGRAMS = 100  # resident in memory
MAX_DISK_BYTES = 1 << 30
COMPILE_WAIT_SECONDS = 120.0  # how long one process waits for another's compile before it compiles for itself
REMOTE_TIMEOUT_SECONDS = 0.1  # how long a lookup in shared stores may take
REMOTE_STALLED_SECONDS = 2.0  # how long closing a cache waits for one entry that is being written to a shared store
REMOTE_LONGEST_SECONDS = 100 * 365 * 86400.0  # of every time limit and time to live; more is a mistake
REMOTE_FLUSH_SECONDS = 30.0  # and for all of them, as long as they are written one after the other

# Resident grids. They are read when a grid is made, so a program may set them: `kernelkeep.settings.RESIDENT_SPINS = 20_000`.
RESIDENT_SPINS = 500  # looks at the ring before a block with nothing to do looks less often
RESIDENT_NAPS = 40  # of half a microsecond: how long it then waits between two looks, at most
# How long a thread that waits for a result looks without pause. Then, for 20 times as long, it gives way to other threads between
# looks; then it sleeps, 20 µs to 1 ms.
RESIDENT_HOST_SPIN_NS = 50_000
RESIDENT_SILENCE_SECONDS = 10.0  # without an acknowledged task, after which whoever waits is told what runs
RESIDENT_END_SECONDS = 10.0  # for a grid that was told to end


def cache_dir(chosen: str | os.PathLike[str] | None = None) -> Path:
    """Where compiled programs are kept: what was chosen, else $KERNELKEEP_CACHE_DIR, else the user's cache folder.

    Looks at no file: whether the folder can be used is found out where it is used. A relative path comes back relative
    where there is no current folder (it was removed) or no home folder.
    """
    from pathlib import Path  # not with the first call of all: a driver may start meanwhile

    named = chosen if chosen is not None else os.environ.get("KERNELKEEP_CACHE_DIR")
    if named or chosen is not None:
        try:
            path = Path(named or "").expanduser()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ArgumentError(f"cache_dir must be the path of a folder, got {named!r}: {error}") from None
        try:
            return path.absolute()
        except OSError:
            return path
    from platformdirs import user_cache_path

    return user_cache_path("kernelkeep", appauthor=False)


def trusted_owner() -> str | None:
    """One more user, beside this one and root, whose cache folder is used."""
    return os.environ.get("KERNELKEEP_TRUSTED_OWNER") or None


def remotes() -> tuple[str, ...]:
    """The shared stores to use when the caller names none."""
    return tuple(url for url in os.environ.get("KERNELKEEP_REMOTE", "").split(",") if url.strip())


def keys_dir() -> Path:
    """Where the keys that sign and those that are trusted are kept."""
    from pathlib import Path

    named = os.environ.get("KERNELKEEP_KEYS_DIR")
    if named:
        return Path(named).expanduser()
    from platformdirs import user_config_path

    return user_config_path("kernelkeep", appauthor=False) / "keys"


def live() -> bool:
    """Whether `kernelkeep top` may see this process."""
    return os.environ.get("KERNELKEEP_LIVE", "1") != "0"


def live_dir() -> Path | None:
    """The folder in which processes are found; None for the usual one."""
    from pathlib import Path

    named = os.environ.get("KERNELKEEP_LIVE", "")
    return Path(named) if Path(named).is_absolute() else None


def device_spec() -> str | None:
    """The device to open when the caller names none."""
    return os.environ.get("KERNELKEEP_DEVICE") or None


def keeps_diary() -> bool:
    """Whether what is done is recorded in the cache folder."""
    return os.environ.get("KERNELKEEP_DIARY", "1") != "0"


def progress() -> str:
    """How progress is shown: "" where there is a choice, "lines", or "0" for not at all."""
    return os.environ.get("KERNELKEEP_PROGRESS", "")


def native() -> bool:
    """Whether the module in C may be used, where it was built."""
    return os.environ.get("KERNELKEEP_NATIVE", "1") != "0"


def required_backends() -> frozenset[str]:
    """Backends that must be here: a test run fails without them."""
    names = os.environ.get("KERNELKEEP_REQUIRE", "")
    return frozenset(name.strip() for name in names.split(",") if name.strip())
