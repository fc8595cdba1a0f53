"""What ran when: spans of the last few thousand batches, as a Chrome trace and as the share of time each engine was busy.

Times are those of the device's own clock, converted to the host's, so that both can be shown side by side.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..storage.files import write_whole

if TYPE_CHECKING:
    from ..devices.lanes import Lanes
    from .submission import Submission

ENGINES = ("upload", "compute", "download")
_BATCHES_KEPT = 10_000
_QUEUES, _SLOTS, _HOST = 1, 2, 3  # the groups of tracks


class Span(NamedTuple):
    """One stage of one batch, in seconds of `time.perf_counter`. Each kernel of a pipeline has a span of its own."""

    engine: str  # "upload", "compute", "download"; "copy" and "dispatch" are the host's
    start: float
    end: float
    batch: int
    job: str  # of a pipeline: its name, and for "compute" that of the job
    slot: int
    nbytes: int = 0  # how much was uploaded or downloaded


class BatchTimes(NamedTuple):
    """When the stages of a batch began and ended. Spans are made of it when somebody looks: most batches nobody looks at."""

    number: int
    slot: int
    name: str
    jobs: Sequence[str]
    upload: tuple[float, float]
    kernels: Sequence[tuple[float, float]]  # for each job
    download: tuple[float, float]
    copy: tuple[float, float]
    dispatch: tuple[float, float]
    uploaded_bytes: int
    downloaded_bytes: int

    def stages(self) -> list[Span]:
        """What the device did."""
        return [
            self._span("upload", self.upload, self.name, self.uploaded_bytes),
            *(self._span("compute", times, job) for job, times in zip(self.jobs, self.kernels, strict=True)),
            self._span("download", self.download, self.name, self.downloaded_bytes),
        ]

    def host_stages(self) -> list[Span]:
        """What the host did."""
        return [self._span("copy", self.copy, self.name), self._span("dispatch", self.dispatch, self.name)]

    def _span(self, engine: str, times: tuple[float, float], job: str, nbytes: int = 0) -> Span:
        start, end = times
        return Span(engine, start, max(start, end), self.number, job, self.slot, nbytes)


class Timeline:
    """The spans of an executor's batches."""

    def __init__(self, device: str, depth: int) -> None:
        self._device = device
        self._depth = depth
        self._batches: deque[BatchTimes] = deque(maxlen=_BATCHES_KEPT)
        self.renew_lock()
        self._shares_memory = False
        self._last = (0.0, 0.0, 0.0)  # when the lanes of upload, kernels and download had done the batch before
        self.busy_seconds = dict.fromkeys(ENGINES, 0.0)  # since the beginning, also of batches that are not kept
        self._busy_until = dict.fromkeys(ENGINES, 0.0)

    def renew_lock(self) -> None:
        """In a forked process: a thread that does not exist there may hold the old one."""
        self._lock = threading.Lock()

    def add(self, submission: Submission, times: Sequence[float], lanes: Lanes) -> None:
        """Keep a batch that is done; `times` are those of its marks, one at the end of each stage.

        A stage begins when what it waits for is done: the stage before it, and the batch before it on the same queue. So
        the marks that the stages need anyway are enough, and a timeline costs the device nothing.
        """
        sent, (last_upload, last_kernel, last_download) = submission.dispatched[0], self._last
        if lanes.shares_memory:
            kernels, done = times, times[-1]  # nothing is moved: all is over when the last kernel is
            uploaded = begun = sent
            computing = sent if sent > last_kernel else last_kernel
            downloading = done
            self._last = (uploaded, done, done)
        else:
            uploaded, *kernels, done = times
            downloading = kernels[-1]
            if submission.on_one_lane:
                begun, computing = (sent if sent > last_kernel else last_kernel), uploaded
                self._last = (uploaded, done, done)  # the lane of the kernels is busy until the download is done
            else:
                begun = sent if sent > last_upload else last_upload
                computing = uploaded if uploaded > last_kernel else last_kernel
                self._last = (uploaded, downloading, done)
                downloading = downloading if downloading > last_download else last_download
        if len(kernels) == 1:
            spans = [(computing, kernels[0])]
        else:
            spans = list(zip((computing, *kernels[:-1]), kernels, strict=True))
        self.keep(submission, (begun, uploaded), spans, (downloading, done), lanes.shares_memory)

    def keep(
        self,
        submission: Submission,
        upload: tuple[float, float],
        kernels: Sequence[tuple[float, float]],
        download: tuple[float, float],
        shares_memory: bool,
    ) -> None:
        """Keep a batch whose upload, kernels and download began and ended so."""
        if shares_memory:
            upload = submission.staged  # filling the block was the upload
            self._shares_memory = True
        batch = submission.times = BatchTimes(
            submission.number,
            submission.slot,
            submission.work.name,
            [job.name for job in submission.work.jobs],
            upload,
            kernels,
            download,
            submission.staged,
            submission.dispatched,
            submission.uploaded_bytes,
            submission.moved_bytes - submission.uploaded_bytes,
        )
        with self._lock:
            self._batches.append(batch)
        self._count_busy("upload", *upload)
        for times in kernels:
            self._count_busy("compute", *times)
        self._count_busy("download", *download)

    def _count_busy(self, engine: str, start: float, end: float) -> None:
        before = self._busy_until[engine]
        if end > before and end > start:
            self.busy_seconds[engine] += end - (start if start > before else before)
            self._busy_until[engine] = end

    @property
    def spans(self) -> list[Span]:
        """Every span that is kept, in the order the batches were done."""
        with self._lock:
            batches = list(self._batches)
        return [span for batch in batches for span in (*batch.stages(), *batch.host_stages())]

    def busy(self) -> dict[str, float]:
        """The share of the whole time, first upload to last download, that each engine was busy."""
        spans = [span for span in self.spans if span.engine in ENGINES]
        if not spans:
            return dict.fromkeys(ENGINES, 0.0)
        whole = max(span.end for span in spans) - min(span.start for span in spans)
        return {
            engine: covered((span.start, span.end) for span in spans if span.engine == engine) / whole if whole else 0.0
            for engine in ENGINES
        }

    def overlap(self, one: str = "upload", other: str = "compute") -> float:
        """Seconds during which both engines were busy."""
        spans = self.spans
        first = merged((span.start, span.end) for span in spans if span.engine == one)
        second = merged((span.start, span.end) for span in spans if span.engine == other)
        total, j = 0.0, 0
        for start, end in first:
            while j < len(second) and second[j][1] <= start:
                j += 1
            k = j
            while k < len(second) and second[k][0] < end:
                total += min(end, second[k][1]) - max(start, second[k][0])
                k += 1
        return total

    def __repr__(self) -> str:
        return f"<Timeline of {self._device}: the last {len(self._batches):,} batches>"

    def _repr_html_(self) -> str:
        from .html import timeline_html

        return timeline_html(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a Chrome trace: JSON that ui.perfetto.dev and chrome://tracing open.

        The file appears whole or not at all. `ArgumentError` where it cannot be written.
        """
        write_whole(Path(path), json.dumps(self.chrome_trace()).encode())

    def chrome_trace(self, origin: float | None = None) -> dict[str, Any]:
        """The trace as its JSON is: one track for each queue, for each slot, and for the host's part.

        Times count from `origin`, in seconds of `time.perf_counter`, by default from the first span.
        """
        spans = self.spans
        if origin is None:
            origin = min((span.start for span in spans), default=0.0)
        events: list[dict[str, Any]] = []
        groups = {_QUEUES: f"{self._device} queues", _SLOTS: f"{self._device} slots", _HOST: "host"}
        tracks = {(_QUEUES, i): f"{engine} queue" for i, engine in enumerate(ENGINES)}
        tracks |= {(_SLOTS, slot): f"slot {slot}" for slot in range(self._depth)}
        tracks |= {(_HOST, 0): "copy of host arrays", (_HOST, 1): "dispatch"}
        for group, name in groups.items():
            events.append({"ph": "M", "pid": group, "name": "process_name", "args": {"name": name}})
        for (group, track), name in tracks.items():
            events.append({"ph": "M", "pid": group, "tid": track, "name": "thread_name", "args": {"name": name}})
        for span in spans:
            common = {
                "ph": "X",
                "ts": round((span.start - origin) * 1e6, 3),
                "dur": round((span.end - span.start) * 1e6, 3),
                "args": {"batch": span.batch, "job": span.job, "slot": span.slot}
                | ({"bytes": span.nbytes} if span.nbytes else {}),
            }
            if span.engine in ENGINES:
                events.append(
                    {**common, "pid": _QUEUES, "tid": ENGINES.index(span.engine), "name": f"{span.job} {span.batch}",
                     "cat": span.engine}
                )  # fmt: skip
                # A block that was filled in advance was in no slot yet: another batch had it then.
                if span.engine != "upload" or not self._shares_memory:
                    events.append({**common, "pid": _SLOTS, "tid": span.slot, "name": span.engine, "cat": "slot"})
            else:
                events.append(
                    {**common, "pid": _HOST, "tid": int(span.engine == "dispatch"), "name": f"{span.job} {span.batch}",
                     "cat": span.engine}
                )  # fmt: skip
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans that touch or overlap become one."""
    result: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """How much time the spans cover together."""
    return sum(end - start for start, end in merged(spans))
