"""Triton's compiled kernels in our cache: `TRITON_CACHE_MANAGER=kernelkeep.guests.triton:KernelkeepCacheManager`.

Triton asks for a group of files by its own hash of the source, the options and itself, and puts each file while it compiles. The
group is one entry here. Triton reads files by their paths: those of a group are kept beside its entry, and verified at each hit;
all others are written to a folder of this process.
"""

from __future__ import annotations

import functools
from typing import Any

from ..cache.key import Key
from ..errors import KernelKeepError
from ..storage.files import Damaged
from .files import pack, unpack
from .guest_cache import GuestCache, guest_cache
from .hooks import Hook
from .kept_files import KeptFiles
from .process_folder import ProcessFolder
from .triton_facts import facts_of

_METHODS = {
    "get_file": ("filename",),
    "put": ("data", "filename", "binary"),
    "get_group": ("filename",),
    "put_group": ("filename", "group"),
}
_folder = ProcessFolder()
_kept = functools.cache(KeptFiles)
_hook = Hook("Triton")
_Base = _hook.find_class("triton.runtime.cache", "CacheManager", _METHODS)
_Own = _hook.find_class("triton.runtime.cache", "FileCacheManager", _METHODS)
_hook.takes(_Own, "FileCacheManager", ("key", "override", "dump"))


def _open() -> GuestCache | None:
    try:
        return guest_cache("triton")
    except KernelKeepError as problem:  # such as a shared store without a key
        _hook.go_on_without(problem)
        return None


class KernelkeepCacheManager(_Base):  # type: ignore[misc, valid-type]
    """The files of one of Triton's keys. What Triton's own folders for overriding and dumping hold stays in those folders."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        cache = None if override or dump else _open()
        self._own = _Own(key, override=override, dump=dump) if cache is None else None
        self._cache: Any = cache
        self._hash = key
        self._turn: Key | None = None
        self._files: dict[str, bytes] = {}  # put so far, for the group
        self._groups = False  # whether they belong to a group

    def _key(self, filename: str, kind: str) -> Key:
        return self._cache.key({"hash": self._hash, kind: filename})  # type: ignore[no-any-return]

    def _get(self, filename: str, kind: str) -> dict[str, str] | None:
        """The paths of files with verified contents; those that are kept, or that this process has, are not written again."""
        key, name = self._key(filename, kind), _name_of(filename)
        kept = _kept(self._cache) if kind == "group" else None
        paths = None if kept is None else kept.find(key, name)
        if paths is not None:
            return paths
        paths = _folder.find(key.digest)
        if paths is not None:
            self._cache.count_hit_in_memory()
            return paths
        data = self._cache.get(key, name)
        if data is None:
            self._turn = key
            return None
        try:
            paths = None if kept is None else kept.keep(key, name)
            return paths or _folder.write(unpack(data), key.digest)
        except Damaged as damage:
            self._cache.reject(key, name, str(damage))
        except OSError:  # no room for the files: Triton compiles again
            pass
        return None

    def _put(self, filename: str, kind: str, files: dict[str, bytes]) -> None:
        key = self._key(filename, kind)
        self._cache.put(key, _name_of(filename), pack(files), facts_of(files))
        if kind == "group":
            _kept(self._cache).keep(key, _name_of(filename))
        if self._turn is not None and self._turn.digest == key.digest:
            self._turn = None

    def get_file(self, filename: str) -> str | None:
        if self._own is not None:
            return self._own.get_file(filename)  # type: ignore[no-any-return]
        if filename in self._files:
            return self._write(filename, self._files[filename])
        paths = self._get(filename, "file")
        return None if paths is None else paths.get(filename)

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        if self._own is not None:
            return self._own.put(data, filename, binary)  # type: ignore[no-any-return]
        content = data if isinstance(data, bytes) else str(data).encode()
        self._files[filename] = content
        if not self._groups:
            self._put(filename, "file", {filename: content})
        return self._write(filename, content)

    def _write(self, filename: str, content: bytes) -> str:
        try:
            return _folder.write({filename: content})[filename]
        except OSError:  # no room: Triton's own folder may be on another disk
            return _Own(self._hash).put(content, filename)  # type: ignore[no-any-return]

    def get_group(self, filename: str) -> dict[str, str] | None:
        if self._own is not None:
            return self._own.get_group(filename)  # type: ignore[no-any-return]
        self._groups = True
        return self._get(filename, "group")

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        if self._own is not None:
            return self._own.put_group(filename, group)  # type: ignore[no-any-return]
        self._put(filename, "group", {name: self._files[name] for name in group if name in self._files})
        return filename

    def __del__(self) -> None:
        try:
            if self._turn is not None:  # compiling failed
                self._cache.give_up(self._turn)
        except Exception:  # half made, or the interpreter is half gone; suppress() would cost every hit a microsecond
            pass


_refusal = _hook.refusal
if _refusal is None:
    _hook.check()
elif _Own is object:
    raise _refusal
else:
    _hook.go_on_without(_refusal)
    KernelkeepCacheManager = _Own  # type: ignore[misc]


def _name_of(filename: str) -> str:
    return filename.rpartition(".")[0] or filename
