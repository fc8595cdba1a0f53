"""A batch as one command buffer: the launch, the copies for the host, and the timestamps between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..lanes import Block, BoundBatch, Transfer
from .lanes import WebGPUMark
from .prepared import WebGPUPrepared
from .timestamps import Stamp, encode_stamp

if TYPE_CHECKING:
    from .lanes import WebGPULanes


class _StagePoint:
    """The end of a stage inside a command buffer: it has a time, and nobody waits for it."""

    seen = 0.0

    def __init__(self, stamp: Stamp, made: float) -> None:
        self.stamp = stamp
        self.made = made


class WebGPUBatch(BoundBatch):
    """What `BoundBatch` does, with one submission where that has one for each mark and each copy."""

    def __init__(
        self,
        lanes: WebGPULanes,
        uploads: Sequence[Transfer],
        launch: WebGPUPrepared,
        downloads: Sequence[Transfer],
    ) -> None:
        super().__init__(lanes, uploads, launch, downloads, single=True)
        self._device = lanes.device
        self._prepared = launch

    def __call__(
        self, marks: list[Any], held: list[Any], origins: Sequence[Any] = (), targets: Sequence[Block] = ()
    ) -> None:
        device, prepared = self._device, self._prepared
        copies, memory = device.copies, device.memory
        given, taken = iter(origins), iter(targets)
        made = time.perf_counter()
        with device.context.lock:
            device.submit_waiting()  # what others have launched comes before the uploads
            for one in self.uploads:
                origin: Any = next(given) if one.block is None else one.block
                copies.upload(memory[one.handle], origin.host if isinstance(origin, Block) else origin)
            prepared.kernel.check_loaded()
            entry = prepared.entry
            blocks = [next(taken) if one.block is None else one.block for one in self.downloads]
            downloads = [
                copies.new_download(memory[one.handle], block.nbytes)
                for one, block in zip(self.downloads, blocks, strict=True)
            ]
            if not self.marked:
                device.waiting.append(entry)
                device.submit_waiting(then=lambda encoder: _encode_all(encoder, downloads))
            else:
                uploaded, computed, done = device.timestamps.take(3)  # which may submit what waits
                device.waiting.append(entry)
                page, resolve = device.timestamps.end_page()

                def finish(encoder: Any) -> None:
                    _encode_all(encoder, downloads)
                    encode_stamp(encoder, done)
                    resolve(encoder)

                device.submit_waiting(computed, finish, begin=uploaded)
                page.begin()
                marks += [_StagePoint(uploaded, made), _StagePoint(computed, made)]
            for download, _ in downloads:
                download.begin()
            transfers = [(download, block.address) for (download, _), block in zip(downloads, blocks, strict=True)]
            marks.append(WebGPUMark(device, transfers, done if self.marked else None, made))
        held += blocks


def _encode_all(encoder: Any, downloads: Sequence[tuple[Any, Callable[[Any], None]]]) -> None:
    for _, encode_copy in downloads:
        encode_copy(encoder)
