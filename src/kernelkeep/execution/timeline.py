"""What ran when: spans of the last few thousand batches, as a Chrome trace and as the share of time each engine was busy.

Times are those of the device's own clock, converted to the host's, so that both can be shown side by side.
"""

from __future__ import annotations

import json
import os
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..storage.files import write_whole

if TYPE_CHECKING:
    from ..devices.lanes import Lanes
    from .stage_times import StageTimes
    from .submission import Submission

ENGINES = ("upload", "compute", "download")
_BATCHES_KEPT = 10_000
_QUEUES, _SLOTS, _HOST = 1, 2, 3  # the groups of tracks
_PACKED = struct.Struct("<qq6d")
_pack = _PACKED.pack


class Span(NamedTuple):
    """One stage of one batch, in seconds of `time.perf_counter`. Each kernel of a pipeline has a span of its own."""

    engine: str  # "upload", "compute", "download"; "copy" and "dispatch" are the host's
    start: float
    end: float
    batch: int
    job: str  # of a pipeline: its name, and for "compute" that of the job
    slot: int
    nbytes: int = 0  # how much was uploaded or downloaded
    measured: bool = True  # False: a small batch, whose times are those of one like it that was measured shortly before


class BatchTimes(NamedTuple):
    """When the stages of a batch began and ended. Spans are made of it when somebody looks: most batches nobody looks at."""

    number: int
    slot: int
    name: str
    jobs: Sequence[str]
    upload: tuple[float, float]
    computing: float  # when the first kernel began
    kernels: Sequence[float]  # when the kernel of each job ended; the next one begins there
    download: tuple[float, float]
    copy: tuple[float, float]
    dispatch: tuple[float, float]
    uploaded_bytes: int
    moved_bytes: int  # up and down
    measured: bool = True  # by the device's clock

    def stages(self) -> list[Span]:
        """What the device did."""
        kernels = zip(self.jobs, (self.computing, *self.kernels[:-1]), self.kernels, strict=True)
        return [
            self._span("upload", self.upload, self.name, self.uploaded_bytes),
            *(self._span("compute", (start, end), job) for job, start, end in kernels),
            self._span("download", self.download, self.name, self.moved_bytes - self.uploaded_bytes),
        ]

    def host_stages(self) -> list[Span]:
        """What the host did."""
        return [self._span("copy", self.copy, self.name), self._span("dispatch", self.dispatch, self.name)]

    def _span(self, engine: str, times: tuple[float, float], job: str, nbytes: int = 0) -> Span:
        start, end = times
        measured = self.measured or engine not in ENGINES
        return Span(engine, start, max(start, end), self.number, job, self.slot, nbytes, measured)


class Timeline:
    """The spans of an executor's batches.

    One thread at a time adds a batch, and others may read meanwhile: a batch is added, and all are copied, in one step each.
    """

    def __init__(self, device: str, depth: int) -> None:
        self._device = device
        self._depth = depth
        self._batches: deque[tuple[Any, ...]] = deque(maxlen=_BATCHES_KEPT)  # see `_unpacked`
        self._shares_memory = False
        self._last = (0.0, 0.0, 0.0)  # when the lanes of upload, kernels and download had done the batch before
        self._busy = [0.0, 0.0, 0.0]  # seconds of each engine since the beginning, also of batches that are not kept
        self._busy_until = [0.0, 0.0, 0.0]

    def add(self, submission: Submission, times: Sequence[float], lanes: Lanes) -> None:
        """Keep a batch that is done; `times` are those of its marks, one at the end of each stage.

        A stage begins when what it waits for is done: the stage before it, and the batch before it on the same queue. So
        the marks that the stages need anyway are enough, and a timeline costs the device nothing.
        """
        sent, (last_upload, last_kernel, last_download) = submission.dispatched[0], self._last
        if lanes.shares_memory:
            # Nothing is moved: filling the block was the upload, and all is over when the last kernel is.
            self._shares_memory = True
            done, kernels, upload = times[-1], times, submission.staged
            computing = sent if sent > last_kernel else last_kernel
            downloading = done
            self._last = (sent, done, done)
        else:
            uploaded, kernels, done = times[0], times[1:-1], times[-1]
            downloading = kernels[-1]
            if submission.on_one_lane:
                upload, computing = (sent if sent > last_kernel else last_kernel, uploaded), uploaded
                self._last = (uploaded, done, done)  # the lane of the kernels is busy until the download is done
                if submission.alike is not None:
                    self._note_stages(
                        submission.alike[0].stage_times, upload, downloading - computing, done - downloading
                    )
            else:
                upload = (sent if sent > last_upload else last_upload, uploaded)
                computing = uploaded if uploaded > last_kernel else last_kernel
                self._last = (uploaded, downloading, done)
                downloading = downloading if downloading > last_download else last_download
        self.keep(submission, upload, computing, kernels, (downloading, done))

    def _note_stages(self, times: StageTimes, upload: tuple[float, float], kernel: float, download: float) -> None:
        """A small batch was measured: those since the one before were busy as that one was."""
        for engine, seconds in enumerate(times.stages):
            self._busy[engine] += seconds * times.unmeasured
        times.note(upload[1] - upload[0], kernel, download)

    def add_unmeasured(self, submission: Submission) -> None:
        """Keep a small batch that the device was not asked about: its stages are taken to be those of one like it.

        It is done for nearly each small batch, so what is kept is packed: thousands of small objects that live on would make
        every other one slower.
        """
        assert submission.alike is not None
        sent, last, times = submission.dispatched[0], self._last[1], submission.alike[0].stage_times
        start = sent if sent > last else last
        done, seen = start + times.seconds, submission.received
        if done > seen:
            done = seen if seen > start else start
        self._last = (start, done, done)
        times.unmeasured += 1
        packed = _pack(submission.number, submission.slot, *submission.staged, *submission.dispatched, start, done)
        self._batches.append(
            (
                submission.work.name, submission.job_names, submission.uploaded_bytes, submission.moved_bytes,
                times.stages, packed,
            )
        )  # fmt: skip

    def keep(
        self,
        submission: Submission,
        upload: tuple[float, float],
        computing: float,
        kernels: Sequence[float],
        download: tuple[float, float],
    ) -> None:
        """Keep a batch whose upload, kernels and download began and ended so."""
        # As bare numbers: this is done for each batch, and a small one takes some ten microseconds in all.
        self._batches.append(
            (
                submission.number, submission.slot, submission.work.name, submission.job_names, upload, computing, kernels,
                download, submission.staged, submission.dispatched, submission.uploaded_bytes, submission.moved_bytes,
            )
        )  # fmt: skip
        busy, until = self._busy, self._busy_until
        start, end = upload
        if end > (before := until[0]) and end > start:
            busy[0] += end - (start if start > before else before)
            until[0] = end
        if (end := kernels[-1]) > (before := until[1]) and end > computing:
            busy[1] += end - (computing if computing > before else before)
            until[1] = end
        start, end = download
        if end > (before := until[2]) and end > start:
            busy[2] += end - (start if start > before else before)
            until[2] = end

    @property
    def busy_seconds(self) -> dict[str, float]:
        """How long each engine was busy since the beginning, also with batches that are not kept."""
        return dict(zip(ENGINES, self._busy, strict=True))

    @property
    def last(self) -> BatchTimes:
        """The batch that was added last."""
        return _unpacked(self._batches[-1])

    @property
    def spans(self) -> list[Span]:
        """Every span that is kept, in the order the batches were done."""
        batches = [_unpacked(batch) for batch in self._batches.copy()]
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
        write_whole(path, json.dumps(self.chrome_trace()).encode())

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
                | ({"bytes": span.nbytes} if span.nbytes else {})
                | ({} if span.measured else {"measured": False}),
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


def _unpacked(kept: tuple[Any, ...]) -> BatchTimes:
    """A batch as it is kept: the fields of `BatchTimes`, or six where its times are packed."""
    if len(kept) != 6:
        return BatchTimes(*kept)
    name, jobs, uploaded_bytes, moved_bytes, stages, packed = kept
    number, slot, copied, copied_end, sent, sent_end, start, done = _PACKED.unpack(packed)
    share = (done - start) / sum(stages) if any(stages) else 0.0
    uploaded = start + stages[0] * share
    computed = min(uploaded + stages[1] * share, done)
    return BatchTimes(
        number, slot, name, jobs, (start, uploaded), uploaded, (computed,), (computed, done), (copied, copied_end),
        (sent, sent_end), uploaded_bytes, moved_bytes, measured=False,
    )  # fmt: skip


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
