"""The digests of the blocks of a state, computed where the state is: one group of work-items for each block."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...cache.program_cache import ProgramCache
from ...devices.array import Array
from ...programs.portable import Buffer, PortableKernel, Scalar
from .block_digest import (
    BLOCK_BYTES,
    FACTORS,
    FINISH,
    ITEMS,
    LAST_SHIFT,
    MIXER,
    ROUNDS,
    TURNS,
    Digests,
    block_count,
)

_LAUNCH_BLOCKS = 2048  # 128 MiB: as much as every backend binds
_STAGED_BLOCKS = 1 << 16  # digests on the device at a time: 1 MiB, whatever the state has
_BLOCK_WORDS = BLOCK_BYTES // 4


def _rotated(name: str, by: int) -> str:
    return f"(({name} << {by}) | ({name} >> {32 - by}))"


def _body() -> str:
    lanes = range(4)
    lines = [
        "".join(f"kk_shared(uint, sum{lane}, {ITEMS}); " for lane in lanes),
        "int me = kk_local_id(0), block = kk_group_id(0);",
        f"int at = block * {_BLOCK_WORDS} + me;",
        *(f"uint h{lane} = k{lane} ^ ((uint)me * {FACTORS[lane]}u);" for lane in lanes),
        f"for (int turn = 0; turn < {ROUNDS}; turn++) {{",
        f"  uint mixed = 0u; if (at < n) mixed = x[at] * {MIXER}u;",
        f"  mixed ^= mixed >> 16; at += {ITEMS};",
    ]
    for lane in lanes:
        lines.append(f"  h{lane} ^= mixed; h{lane} = {_rotated(f'h{lane}', TURNS[lane])} * {FACTORS[lane]}u;")
    lines.append("}")
    for lane in lanes:
        for shift, factor in FINISH:
            lines.append(f"h{lane} ^= h{lane} >> {shift}; h{lane} *= {factor}u;")
        lines.append(f"h{lane} ^= h{lane} >> {LAST_SHIFT}; sum{lane}[me] = h{lane};")
    lines += [f"for (int half = {ITEMS // 2}; half > 0; half /= 2) {{", "  kk_barrier();", "  if (me < half) {"]
    lines += [f"    sum{lane}[me] += sum{lane}[me + half];" for lane in lanes]
    lines += ["  }", "}", "if (me == 0) {", "  int to = 4 * (first + block);"]
    lines += [f"  digests[to + {lane}] = sum{lane}[0];" for lane in lanes]
    return "\n".join([*lines, "}"])


KERNEL = PortableKernel(
    "kernelkeep_block_digest",
    params=[
        Buffer("x", "u4", "r"),
        Buffer("digests", "u4", "w"),
        Scalar("n", "i4"),
        Scalar("first", "i4"),
        *(Scalar(f"k{lane}", "u4") for lane in range(4)),
    ],
    body=_body(),
    group=ITEMS,
)


class DeviceDigest:
    """Digests arrays on a device, with a buffer of a fixed size there. Nothing else runs meanwhile."""

    def __init__(self, cache: ProgramCache, key: bytes) -> None:
        self._key = np.frombuffer(key, "<u4")
        self._lease = cache.get(KERNEL)
        self._kernel = self._lease.kernel(KERNEL.name)
        self._digests = cache.device.empty(4 * _STAGED_BLOCKS, "u4")

    def digest(self, array: Array, nbytes: int) -> Digests:
        """The digests of the blocks of the first `nbytes` of an array, a multiple of 4."""
        assert nbytes % 4 == 0
        found = np.empty((block_count(nbytes), 4), "<u4")
        for begin in range(0, len(found), _STAGED_BLOCKS):
            count = min(_STAGED_BLOCKS, len(found) - begin)
            held = []
            for first in range(0, count, _LAUNCH_BLOCKS):
                offset = (begin + first) * BLOCK_BYTES
                groups = min(_LAUNCH_BLOCKS, count - first)
                words = array.words(offset, min(groups * BLOCK_BYTES, nbytes - offset) // 4)
                held.append(words)
                scalars: tuple[Any, ...] = (np.int32(words.size), np.int32(first), *self._key)
                self._kernel.launch(groups, (words, self._digests, *scalars), group=ITEMS)
            part = self._digests.words(0, 4 * count).numpy()
            found[begin : begin + count] = part.reshape(-1, 4)
        return found

    def close(self) -> None:
        """Free the buffer, and release the program."""
        self._digests.close()
        self._lease.release()
