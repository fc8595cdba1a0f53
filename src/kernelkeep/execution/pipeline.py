"""One batch through the device: upload, compute and download, each on its own lane, so that all three are busy at once.

Results are not copied where they need not be: a large result *is* the memory it was downloaded to, which comes back to the
executor when the last array on it is gone.
"""

from __future__ import annotations

import time
from typing import Any

from ..devices.base import Device
from .buffers import Buffers
from .submission import Submission
from .timeline import Timeline


class Pipeline:
    """The lanes of an executor and the memory of its batches. The executor's engine decides which batch goes when."""

    def __init__(self, device: Device, depth: int, timeline: Timeline | None) -> None:
        self.lanes = device.open_lanes(timed=timeline is not None)
        self.buffers = Buffers(device, self.lanes, depth)
        self._device = device
        self._timeline = timeline

    def send(self, submission: Submission) -> None:
        """Enqueue a batch that was staged: its upload, launch and download. Returns at once."""
        start = time.perf_counter()
        lanes, marks, buffers = self.lanes, submission.marks, self.buffers
        # The end of the upload and of the computing: where nothing is moved, there is only one end.
        marked = not lanes.single or (self._timeline is not None and not lanes.shares_memory)
        upload, compute, download = lanes.upload, lanes.compute, lanes.download
        with self._device.exclusive():
            handles = buffers.place(submission)
            launch = submission.binding.launch_of(submission, handles, lanes)
            for index, block in submission.blocks.items():
                submission.held.append(upload.upload(handles[index], block))
            for index, host in submission.borrowed.items():
                if host.nbytes:
                    submission.held.append(upload.upload_from(handles[index], host))
            if marked:
                marks.append(upload.mark())
            if not lanes.single:
                upload.flush()
                compute.wait_for(marks[-1])
            if submission.on_device:
                compute.wait_for(self._device.fence())  # what made the arrays is in the device's own queue
                for fence in submission.fences:
                    compute.wait_for(fence)
            if not lanes.shares_memory:
                for result in submission.results:
                    if result.index in submission.cleared:
                        submission.held.append(compute.clear(handles[result.index], max(result.nbytes, 16)))
            launch()
            if not lanes.single:
                buffers.set_aside(submission, handles)
            if marked:
                marks.append(compute.mark())
            if not lanes.single:
                compute.flush()
                download.wait_for(marks[-1])
            if lanes.shares_memory:
                for index, block in submission.blocks.items():
                    submission.held.append(download.download(handles[index], block))
            for result in submission.results:
                buffers.download(submission, result, handles)
            marks.append(download.mark())
            download.flush()
            if lanes.shares_memory:
                _ = marks[-1].done  # software OpenGL has computed by now; asked here, nobody needs its context for that
        submission.dispatched = (start, time.perf_counter())

    def results(self, submission: Submission) -> dict[str, Any]:
        """The results of a batch that has arrived."""
        results = {result.name: self.buffers.result_array(result) for result in submission.results}
        if self._timeline is not None:
            self._timeline.add(submission, self.lanes.times(submission.marks), self.lanes)
        return results

    def recover(self, submission: Submission) -> None:
        """After `send` failed half way: wait for what was enqueued, and take the batch's memory back."""
        try:
            for lane in self.lanes.all:
                mark = lane.mark()
                lane.flush()
                mark.wait()
        except Exception:
            return  # the device is beyond use: this memory is never used again
        if self.lanes.shares_memory:
            return  # a block may belong to the device or to the host now: it is not used again
        self.buffers.give_arrays_back(submission)
        self.buffers.give_blocks_back(submission)

    def close(self) -> None:
        """Free the memory and the lanes. Nothing is on the device."""
        self.buffers.close()
        if not self._device.closed:
            self.lanes.close()
