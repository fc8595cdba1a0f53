"""One batch through the device: upload, kernels and download, each on its own lane, so that all three are busy at once.

Results are not copied where they need not be: a large result *is* the memory it was downloaded to, which comes back to the
executor when the last array on it is gone.
"""

from __future__ import annotations

import time
from typing import Any

from ..activity import spans
from ..devices.base import Device
from ..devices.lanes import Mark
from .buffers import Buffers
from .submission import Launch, Submission, byte_count
from .timeline import Timeline


class Dispatcher:
    """The lanes of an executor and the memory of its batches. The executor's engine decides which batch goes when."""

    def __init__(self, device: Device, depth: int, timeline: Timeline | None) -> None:
        self.lanes = device.open_lanes(timed=timeline is not None)
        self.buffers = Buffers(device, self.lanes, depth)
        self._device = device
        self._timeline = timeline

    def send(self, submission: Submission) -> None:
        """Enqueue a batch that was staged: its upload, launches and download. Returns at once."""
        start = time.perf_counter()
        if submission.kit is None and submission.alike is not None:
            pattern, wiring = submission.alike
            submission.kit = pattern.take_kit(wiring, self.buffers, size="large")
        if (kit := submission.kit) is not None:
            submission.on_one_lane = kit.single
            kit.send(submission)
            submission.dispatched = (start, time.perf_counter())
            return
        lanes, marks, buffers = self.lanes, submission.marks, self.buffers
        upload, compute, download = lanes.upload, lanes.compute, lanes.download
        single = submission.on_one_lane = lanes.single or submission.moved_bytes <= buffers.one_lane_bytes
        if single:
            upload = download = compute
        # The end of the upload and of the computing: where nothing is moved, there is only one end.
        marked = not single or (self._timeline is not None and not lanes.shares_memory)
        with self._device.exclusive():
            handles = buffers.place(submission)
            first, *others = submission.launches
            # With results that are in blocks nothing comes after the kernel.
            ends = not others and lanes.ends_with_launch
            ends = ends and all(result.cell in submission.blocks for result in submission.results)
            launch = first.binding.launch_of(first, handles, lanes)  # what it refuses is known before the upload
            for cell, block in submission.blocks.items():
                submission.held.append(upload.upload(handles[cell], block))
            for cell, host in submission.borrowed.items():
                if host.nbytes:
                    submission.held.append(upload.upload_from(handles[cell], host))
            if marked:
                marks.append(upload.mark())
            if not single:
                upload.flush()
                compute.wait_for(marks[-1])
            if submission.on_device:
                compute.wait_for(self._device.fence())  # what made the arrays is in the device's own queue
                for fence in submission.fences:
                    compute.wait_for(fence)
            self._clear(submission, first, handles)
            if ends:
                marks.append(compute.launch_and_mark(launch))
            else:
                launch()
            for other in others:
                if self._timeline is not None:
                    self._mark_kernel(marks)
                self._clear(submission, other, handles)
                # Bound here and not before: it may be the launch that was just made, with other arguments.
                other.binding.launch_of(other, handles, lanes)()
            if not single:
                buffers.set_aside(submission, handles)
            if marked:
                marks.append(compute.mark())
            if not single:
                compute.flush()
                download.wait_for(marks[-1])
            if lanes.shares_memory:
                for cell, block in submission.blocks.items():
                    submission.held.append(download.download(handles[cell], block))
            for result in submission.results:
                buffers.download(submission, result, handles, download)
            if not ends:
                marks.append(download.mark())
            download.flush()
            if lanes.shares_memory:
                _ = marks[-1].done  # software OpenGL has computed by now; asked here, nobody needs its context for that
        submission.dispatched = (start, time.perf_counter())

    def _clear(self, submission: Submission, launch: Launch, handles: dict[int, Any]) -> None:
        for cell in launch.cleared:
            if cell not in submission.blocks:  # the host has filled that one
                nbytes = self.buffers.room_for(byte_count(*submission.shapes[cell]))
                submission.held.append(self.lanes.compute.clear(handles[cell], nbytes))

    def _mark_kernel(self, marks: list[Mark]) -> None:
        """The end of a kernel before the last one, for the timeline."""
        marks.append(self.lanes.compute.mark())
        if self.lanes.shares_memory:
            self.lanes.compute.flush()
            _ = marks[-1].done  # as below

    def results(self, submission: Submission) -> dict[str, Any]:
        """The results of a batch that has arrived."""
        if submission.kit is not None:  # that of a large batch was given back
            results = submission.kit.results()
        else:
            results = {result.name: self.buffers.result_array(result) for result in submission.results}
        if self._timeline is not None:
            if submission.measured:
                self._timeline.add(submission, submission.ends, self.lanes)
            else:
                self._timeline.add_unmeasured(submission)
            if spans.is_on():
                submission.times = self._timeline.last
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
