"""What the compiler of PyTorch hashed into a graph's key, in a readable form, for `kernelkeep explain`.

PyTorch hashes the graph, its inputs and its settings, and hands over the hash alone. It can list what it hashed, so the list is
kept when the hash is made, and stored beside the entry when that is put.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from typing import Any

from torch._inductor import codecache, config

_LINE = re.compile(r"\[(\w+)\] ([^:]+): ?(.*)", re.DOTALL)  # [hash] name: value
_SETTING = re.compile(r"inductor_config\w*\[(.+)\]")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # another one in every process
_SHOWN = 200
_MOST_GRAPHS = 64


class _Recent(threading.local):
    """What this thread hashed since it last put what belongs to all of it."""

    def __init__(self) -> None:
        self.graphs: dict[str, dict[str, str]] = {}


_recent = _Recent()


def watch() -> None:
    """Note what is hashed from now on. Nothing where this version of PyTorch hashes in another place: it is for reading only."""
    original: Callable[..., Any] | None = getattr(codecache, "compiled_fx_graph_hash", None)
    if original is None or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def noted(*args: Any, **options: Any) -> Any:
        found = original(*args, **options)
        try:
            key, lines = found
            if len(_recent.graphs) < _MOST_GRAPHS:
                _recent.graphs[str(key)] = _parts(lines)
        except (TypeError, ValueError):  # it answers in another way
            pass
        return found

    codecache.compiled_fx_graph_hash = noted


def parts_of_graph(key: str) -> dict[str, str]:
    """What one graph's key was made of; the key may have other words around the hash."""
    return next((_recent.graphs[word] for word in key.split(":") if word in _recent.graphs), {})


def parts_of_all_graphs() -> dict[str, str]:
    """What the keys of all graphs since the last call were made of: forward, and backward where there is one."""
    graphs, _recent.graphs = list(_recent.graphs.values()), {}
    if len(graphs) == 1:
        return graphs[0]
    return {f"graph {number} {name}": value for number, graph in enumerate(graphs, 1) for name, value in graph.items()}


def _parts(lines: list[str]) -> dict[str, str]:
    """Name → hash and beginning of the value. Of the hundreds of settings, those that somebody changed."""
    parts = {}
    for line in lines:
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        digest, name, value = found.groups()
        setting = _SETTING.fullmatch(name)
        if setting is None or not _is_default(setting.group(1)):
            shown = _ADDRESS.sub("", " ".join(value.split()))
            parts[name] = f"{digest[:8]} {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'}".strip()
    return parts


def _is_default(setting: str) -> bool:
    try:
        return bool(config._is_default(setting))
    except Exception:  # unknown here, or PyTorch cannot tell
        return False
