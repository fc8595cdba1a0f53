"""What is particular to emulated grids: the devices they run on, tasks that fail, functions of the device's own language."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.continuous.checkpoints.checkpoint import Checkpoint
from kernelkeep.continuous.checkpoints.files import write_checkpoint
from kernelkeep.continuous.checkpoints.header import CheckpointHeader
from kernelkeep.resident import pulse
from kernelkeep.resident.diagnosis import describe, not_ended
from kernelkeep.resident.protocol import Layout
from kernelkeep.testing import open_or_skip, run_python

TIMEOUT = 60.0
TASKS = {
    "get": kk.Task("if (kk_local_id(0) == 0) kk_result(x[i]);", args={"i": "i4"}, result="f4"),
    "put": "(int i, float v) { if (kk_local_id(0) == 0) x[i] = v; }",
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kk.ProgramCache]:
    with kk.open_device("reference") as device, kk.ProgramCache(device, tmp_path_factory.mktemp("cache")) as cache:
        yield cache


@pytest.fixture(scope="module")
def opencl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kk.ProgramCache]:
    with open_or_skip("opencl") as device, kk.ProgramCache(device, tmp_path_factory.mktemp("cache")) as cache:
        yield cache


def arrays() -> dict[str, Any]:
    return {"x": np.zeros(8, "f4")}


def test_a_device_without_resident_grids_names_the_emulated_ones(reference: kk.ProgramCache) -> None:
    with pytest.raises(kk.Unsupported, match=r"use kk\.Resident\.emulated") as caught:
        kk.Resident(reference, TASKS, arrays())
    assert caught.value.capability == "resident"


def test_a_task_that_fails_fails_the_grid(reference: kk.ProgramCache) -> None:
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        assert resident.submit("get", 1).result(TIMEOUT) == 0
        broken = resident.submit("put", 100, 1.0)
        behind = resident.submit("get", 1)
        for future in (broken, behind):
            with pytest.raises(kk.KernelFault, match=r"(?s)x\[100\].*8") as caught:
                future.result(TIMEOUT)
            assert caught.value.kind == "out of bounds"
            assert future.done()
            assert future.exception() is caught.value
        for use in (lambda: resident.submit("get", 1), resident.pause, lambda: resident.submit_many("get", [1])):
            with pytest.raises(kk.KernelFault):
                use()
        with pytest.raises(kk.KernelFault):
            resident.drain(TIMEOUT)


def test_an_array_that_is_closed_fails_the_grid(reference: kk.ProgramCache) -> None:
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        resident.arrays["x"].close()
        with pytest.raises(kk.KernelKeepError, match="closed"):
            resident.submit("get", 1).result(TIMEOUT)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals of threads are for Unix")
def test_a_stop_that_is_interrupted_takes_no_block_for_ended(opencl: kk.ProgramCache) -> None:
    loop = {"endless": "() { if (kk_local_id(0) == 0) while (kk_atomic_load(flag[0]) == 0) { } }"}
    resident = kk.Resident.emulated(opencl, loop, {"flag": np.zeros(4, "i4")}, silence_seconds=0.1)
    try:
        with pytest.raises(kk.TaskSilent):
            resident.submit("endless").result(TIMEOUT)
        main = threading.main_thread().ident
        threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            resident.stop(TIMEOUT)
        with pytest.raises(kk.DeviceError, match="does not end: block 0 runs endless"):
            resident.stop(0)
    finally:
        resident.arrays["flag"].copy_from(np.ones(4, "i4"))
    resident.stop(TIMEOUT)
    assert resident.done == (1, 0)


def test_kernels_in_the_devices_language_are_tasks(opencl: kk.ProgramCache) -> None:
    text = """__kernel void scale(__global float* x, float by, __global int* result) {
        x[get_local_id(0) % 8] *= get_local_id(0) < 8 ? by : 1.0f;
        if (get_local_id(0) == 0) result[0] = get_local_size(0);
    }"""
    tasks = {**TASKS, "scale": kk.Source(text, "scale", language="opencl")}
    with kk.Resident.emulated(opencl, tasks, {"x": np.ones(8, "f4")}, threads=64, blocks=1) as resident:
        assert resident.submit("scale", 4.0).result(TIMEOUT) == 64
        assert resident.submit("get", 7).result(TIMEOUT) == 4


def test_functions_that_are_no_kernels_are_refused(opencl: kk.ProgramCache) -> None:
    source = kk.Source("void helper(__global float* x) { x[0] = 1; }", "helper", language="opencl")
    with pytest.raises(kk.ArgumentError, match="task helper must have a function"):
        kk.Resident.emulated(opencl, {"helper": source}, arrays())


def test_no_folder_is_made_for_a_misspelled_path(reference: kk.ProgramCache, tmp_path: Path) -> None:
    missing = tmp_path / "mispelled"
    with pytest.raises(kk.ArgumentError, match=f"the journal .* cannot be written: there is no folder {missing}"):
        kk.Resident.emulated(reference, TASKS, arrays(), journal=missing / "ring.journal")
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        with pytest.raises(
            kk.ArgumentError, match=f"the checkpoint .* cannot be written: there is no folder {missing}"
        ):
            resident.save(missing / "arrays.kkpt")
        assert resident.save(tmp_path / "arrays.kkpt").nbytes
    assert not missing.exists()


def test_save_replaces_only_what_a_resident_grid_saved(reference: kk.ProgramCache, tmp_path: Path) -> None:
    notes, saved, run = tmp_path / "notes.txt", tmp_path / "arrays.kkpt", tmp_path / "run.kkpt"
    notes.write_text("dear diary")
    heat = CheckpointHeader(
        program="heat", program_digest="", layout_digest="", coupling="loop", items=8, iteration=1, generation=1
    )
    write_checkpoint(run, Checkpoint(heat, {"x": np.zeros(8, "f4")}))
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        for path, said in ((notes, "notes.txt is not a checkpoint"), (run, "it is of heat")):
            before = path.read_bytes()
            with pytest.raises(kk.CheckpointError, match=f"exists already, and is no checkpoint that .*{said}"):
                resident.save(path)
            assert path.read_bytes() == before
        for value in (1.0, 2.0):
            resident.submit("put", 0, value).result(TIMEOUT)
            resident.save(saved)
            assert kk.read_checkpoint(saved).state["x"][0] == value
        for wrong in (5, None):
            with pytest.raises(kk.ArgumentError, match=f"{wrong} cannot be a checkpoint"):
                resident.save(wrong)  # type: ignore[arg-type]


def test_a_pause_is_no_silence(reference: kk.ProgramCache) -> None:
    with kk.Resident.emulated(reference, TASKS, arrays(), silence_seconds=0.01) as resident:
        resident.pause()
        assert resident._silence.lasts(0, 0) == 0  # as whoever waits looks
        time.sleep(0.02)
        resident.resume()
        assert resident._silence.lasts(0, 0) == 0


def test_a_grid_that_is_out_of_the_way_for_long_is_not_silent(
    reference: kk.ProgramCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kk.Resident.emulated(reference, TASKS, arrays(), silence_seconds=0.01) as resident:
        grid = resident._grid
        with grid.out_of_the_way():
            future = resident.submit("get", 1)
            (lane,) = [lane for lane in resident._all_lanes if lane.submitted > lane.done]
            for _ in range(3):  # as whoever waits looks
                resident._on_silence(lane)
                time.sleep(0.02)
            with monkeypatch.context() as patch:
                patch.setattr(type(grid), "runs", True)  # it was just launched again
                resident._on_silence(lane)
                time.sleep(0.02)
                with pytest.raises(kk.TaskSilent):
                    resident._on_silence(lane)
        assert future.result(TIMEOUT) == 0


@pytest.mark.parametrize("name", ["kernelkeep-block-0", "kernelkeep-block-1", "kernelkeep-beats"])
def test_a_grid_whose_start_was_interrupted_can_be_started(
    reference: kk.ProgramCache, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    start = threading.Thread.start

    def interrupt(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == name:
            raise KeyboardInterrupt

    with kk.Resident.emulated(reference, TASKS, arrays(), blocks=3) as resident:
        resident.pause()
        futures = [resident.submit("get", i % 4) for i in range(20)]
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupt)
            with pytest.raises(KeyboardInterrupt):
                resident.resume()
        assert not resident._grid.runs
        resident.resume()
        for future in futures:
            future.result(TIMEOUT)


@pytest.mark.parametrize("name", ["kernelkeep-block-0", "kernelkeep-block-1", "kernelkeep-beats"])
def test_a_start_that_fails_leaves_a_grid_that_can_be_closed(
    reference: kk.ProgramCache, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    error = RuntimeError("can't start new thread")
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == name:
            raise error
        start(thread)

    resident = kk.Resident.emulated(reference, TASKS, arrays(), blocks=3)
    resident.pause()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(kk.DeviceError, match="can't start new thread"):
            resident.resume()
    with pytest.raises(kk.DeviceError, match="the emulated grid cannot start: "):
        resident.submit("get", 1).result(TIMEOUT)
    grid = resident._grid
    for thread in grid._threads:
        assert thread.ended.wait(TIMEOUT)
    grid.end_seconds = 1.0
    resident.stop(TIMEOUT)
    assert not grid.runs


def test_a_failure_that_nobody_waited_for_is_raised_by_close(reference: kk.ProgramCache) -> None:
    with pytest.raises(kk.KernelFault, match=r"x\[100\]"), kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        resident.submit("put", 100, 1.0)
    assert resident.closed
    resident.close()


def test_a_grid_whose_resume_failed_is_resumed_by_close(
    reference: kk.ProgramCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident = kk.Resident.emulated(reference, TASKS, arrays())
    resident.pause()
    future = resident.submit("get", 1)

    def fail() -> None:
        raise kk.OutOfMemory("no memory for code")

    with monkeypatch.context() as patched:
        patched.setattr(resident._grid, "resume", fail)
        with pytest.raises(kk.OutOfMemory):
            resident.resume()
        with pytest.raises(kk.DeviceError, match="this thread paused"):
            resident.submit("get", 2).result(TIMEOUT)
    closing = threading.Thread(target=resident.close, daemon=True)
    closing.start()
    closing.join(TIMEOUT)
    assert not closing.is_alive()
    assert future.done()
    future.result(0)


def test_a_paused_grid_says_that_it_is_paused(reference: kk.ProgramCache) -> None:
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        resident.pause()
        resident.submit("get", 1)
        assert resident.describe() == "the resident grid is paused, and 1 task waits"


def test_resume_after_a_pause_that_failed_says_what_still_runs(opencl: kk.ProgramCache) -> None:
    loop = {"endless": "() { if (kk_local_id(0) == 0) while (kk_atomic_load(flag[0]) == 0) { } }"}
    resident = kk.Resident.emulated(opencl, loop, {"flag": np.zeros(4, "i4")}, blocks=1, silence_seconds=0.1)
    try:
        future = resident.submit("endless")
        with pytest.raises(kk.TaskSilent):
            future.result(TIMEOUT)
        resident._grid.end_seconds = 0.2
        with pytest.raises(kk.DeviceError, match="does not end: block 0 runs endless"):
            resident.pause()
        with pytest.raises(kk.DeviceError, match=r"runs endless.*All go on by themselves then"):
            resident.resume()
    finally:
        resident.arrays["flag"].copy_from(np.ones(4, "i4"))
    future.result(TIMEOUT)
    resident.submit("endless").result(TIMEOUT)
    resident.close()


def test_a_block_left_by_an_error_says_that_the_grid_did_not_end(opencl: kk.ProgramCache) -> None:
    loop = {"endless": "() { if (kk_local_id(0) == 0) while (kk_atomic_load(flag[0]) == 0) { } }"}
    flag = opencl.device.array(np.zeros(4, "i4"))
    resident = kk.Resident.emulated(opencl, loop, {"flag": flag}, blocks=1, silence_seconds=0.1)
    resident._grid.end_seconds = 0.2
    with pytest.raises(kk.TaskSilent) as raised, resident:
        resident.submit("endless").result(TIMEOUT)
    flag.copy_from(np.ones(4, "i4"))
    assert any("the resident grid does not end: block 0 runs endless" in note for note in raised.value.__notes__)
    resident.stop(TIMEOUT)


def test_arguments_by_names_are_refused_with_how_they_are_written(reference: kk.ProgramCache) -> None:
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        names = resident.rows_dtype("put").names
        assert names is not None
        with pytest.raises(kk.ArgumentError, match=rf"go by position.*submit\('put', {', '.join(names)}\)"):
            resident.submit("put", **dict.fromkeys(names, 1))


def _summing(group: int) -> kk.PortableKernel:
    return kk.PortableKernel(
        "summing",
        [kk.Buffer("x", "f4")],
        f"kk_shared(float, part, {group}); part[kk_local_id(0)] = x[kk_local_id(0)]; kk_barrier(); x[0] = part[{group - 1}];",
        group=group,
    )


def test_a_kernel_that_shares_memory_must_have_the_grids_group(reference: kk.ProgramCache) -> None:
    said = "task summing shares memory in groups of 64, and the grid's blocks have 128 threads"
    arrays = {"x": np.ones(256, "f4")}
    with pytest.raises(kk.ArgumentError, match=said):
        kk.Resident.emulated(reference, {"summing": _summing(64)}, arrays, threads=128)
    with kk.Resident.emulated(reference, {"summing": _summing(64)}, arrays) as resident:
        assert resident.threads == 64
        with pytest.raises(kk.ArgumentError, match="task more shares memory in groups of 128"):
            resident.add("more", _summing(128))
        wide = kk.PortableKernel("wide", [kk.Buffer("x", "f4")], "x[kk_local_id(1)] = 1;", group=(8, 8))
        with pytest.raises(kk.ArgumentError, match="task more must have groups of one dimension"):
            resident.add("more", wide)
        plain = kk.PortableKernel("plain", [kk.Buffer("x", "f4")], "x[kk_global_id(0)] = 2;", group=128)
        resident.add("plain", plain)
        resident.submit("plain").result(TIMEOUT)


def test_sms_are_not_emulated(reference: kk.ProgramCache) -> None:
    with pytest.raises(kk.ArgumentError, match="sms must be left out"):
        kk.Resident.emulated(reference, TASKS, arrays(), sms=8)


def test_the_timeline_shows_every_task(reference: kk.ProgramCache, tmp_path: Path) -> None:
    tasks = {**TASKS, "all": kk.Task("if (kk_global_id(0) == 0) x[0] = 1.0f;", whole_grid=True)}
    with kk.Resident.emulated(reference, tasks, arrays(), timeline=16) as resident:
        for number in range(3):
            resident.submit("put", number, 1.0)
        resident.submit("all").result(TIMEOUT)
        resident.drain(TIMEOUT)
        spans = resident.timeline.spans
        assert [span.task for span in spans if span.kind == "task"] == ["put", "put", "put", "all"]
        assert {span.block for span in spans if span.task == "all"} == {0, 1}
        assert all(span.start <= span.end for span in spans)
        resident.save_trace(tmp_path / "trace.json")
        with pytest.raises(kk.ArgumentError, match="path must be the path of a file, got None"):
            resident.save_trace(None)  # type: ignore[arg-type]
        with pytest.raises(kk.ArgumentError, match="others must be executors or resident grids, got 5"):
            resident.save_trace(tmp_path / "other.json", 5)
        for _ in range(5):
            resident.submit_many("put", [(1, 2.0)] * 5).result(TIMEOUT)
        assert len([span for span in resident.timeline.spans if span.block == spans[0].block]) == 16
    assert "put" in (tmp_path / "trace.json").read_text()


def test_a_process_ends_although_nobody_stopped_the_grid(tmp_path: Path) -> None:
    script = """
import sys, numpy as np, kernelkeep as kk
device = kk.open_device("reference")
cache = kk.ProgramCache(device, sys.argv[1])
resident = kk.Resident.emulated(cache, {"nothing": "() { }"})
resident.submit_many("nothing", 5)
print("end")
"""
    assert run_python(script, str(tmp_path)).stdout.split() == ["end"]


def test_a_supervised_worker_beats_while_tasks_are_done(
    reference: kk.ProgramCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats = threading.Event()
    monkeypatch.setattr(pulse, "is_supervised", lambda: True)
    monkeypatch.setattr(pulse, "beat", beats.set)
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        while not beats.is_set():
            resident.submit("put", 1, 1.0).result(TIMEOUT)


def test_a_task_whose_arguments_are_too_long_names_the_bytes_it_needs(reference: kk.ProgramCache) -> None:
    body = "(double a, double b, float c) { }"
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        with pytest.raises(kk.ArgumentError, match=r"needs 24 bytes .* room for 8: pass argument_bytes=24 "):
            resident.add("long", body)
    with kk.Resident.emulated(reference, TASKS, arrays(), argument_bytes=24) as resident:
        resident.add("long", body)
        assert resident.submit("long", 1.0, 2.0, 3.0).result(TIMEOUT) is None


def test_results_of_nodes_are_found_by_their_names(reference: kk.ProgramCache) -> None:
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        graph = resident.graph()
        put = graph.task("put", 3, 5.0)
        graph.task("get", 3, name="third", after=put)
        graph.run().result(TIMEOUT)
        assert graph.result("third", TIMEOUT) == 5
        assert graph.result(put) is None
        for wrong in ("fourth", 3, resident.graph().task("get", 1)):
            with pytest.raises(kk.ArgumentError, match="node must be a node of this graph, or its name, got"):
                graph.result(wrong)  # type: ignore[arg-type]


def test_rows_with_too_few_columns_are_told_the_arguments(reference: kk.ProgramCache) -> None:
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        with pytest.raises(kk.ArgumentError, match=r"must have 2 columns \(i, v\), got shape \(3,\)"):
            resident.submit_many("put", [1, 2, 3])
        with pytest.raises(kk.ArgumentError, match=r"must have one column \(i\), got shape \(2, 2\)"):
            resident.submit_many("get", [[1, 2], [3, 4]])


def test_a_grid_that_has_nothing_to_do_is_not_said_to_run_something() -> None:
    ring = Layout(2, 8, 64).initialize(np.zeros(4096, "u1"))
    assert (
        not_ended(describe(ring, {}), -1)
        == "the resident grid has not ended after 0 s, although no block has anything to do"
    )
    ring.head[1] = 1
    assert not_ended(describe(ring, {}), 3) == (
        "the resident grid does not end: block 1 has given no sign yet (1 task waits). Its other blocks have ended, and take no "
        "tasks until it has; a task that never ends leaves the device only with this process"
    )


@pytest.mark.parametrize("step", ["prepare", "use", "out_of_the_way"])
def test_add_releases_a_program_that_the_grid_did_not_take(
    reference: kk.ProgramCache, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        grid, made = resident._grid, []
        get_program = grid.get_program

        def keep(*args: Any) -> Any:
            made.append(get_program(*args))
            return made[-1]

        def fail(*args: Any) -> Any:
            raise KeyboardInterrupt

        monkeypatch.setattr(grid, "get_program", keep)
        monkeypatch.setattr(grid, step, fail)
        with pytest.raises(KeyboardInterrupt):
            resident.add("more", "() { }")
        assert [one.lease.held for one in made[0].tasks] == [None] * 3
        monkeypatch.undo()
        assert resident.submit("get", 1).result(TIMEOUT) == 0


def test_add_says_how_long_the_grid_has_stood_still_when_others_still_hold_it_up(
    reference: kk.ProgramCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        with monkeypatch.context() as patch:
            patch.setattr(resident._grid, "resume", lambda: None)
            assert resident.add("more", "() { }") > 0
        resident.resume()
        with resident.paused():
            assert resident.add("most", "() { }") == 0
        assert resident.add("again", "() { }") > 0


def test_add_does_not_count_how_long_the_grid_stands_still_for_others_afterwards(
    reference: kk.ProgramCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kk.Resident.emulated(reference, TASKS, arrays()) as resident:
        grid = resident._grid
        out_of_the_way = grid.out_of_the_way

        @contextlib.contextmanager
        def and_once_more(launched: bool) -> Iterator[None]:
            with out_of_the_way():
                yield
            grid.suspend()
            time.sleep(0.5)
            if launched:
                grid.resume()

        for launched in (True, False):
            monkeypatch.setattr(grid, "out_of_the_way", lambda launched=launched: and_once_more(launched))
            assert 0 < resident.add("more", "() { }") < 0.5
            grid.resume()
