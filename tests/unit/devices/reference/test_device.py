"""The reference device as a device: how it is found, what it prints, where it stops, and what it keeps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices import registry
from kernelkeep.devices.reference import ReferenceDevice, Stop
from kernelkeep.testing.process import run_python

SCALE = kk.PortableKernel(
    "scale",
    params=[kk.Buffer("y", "f4"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) {\n  float v = a * y[i];\n  y[i] = v;\n}",
    group=4,
)


@pytest.fixture
def device() -> Iterator[ReferenceDevice]:
    with ReferenceDevice() as opened:
        yield opened


def load(device: ReferenceDevice, kernel: kk.PortableKernel) -> kk.Kernel:
    return device.load(device.compile(kernel.source(device))).kernel()


# --- how it is found


def test_it_is_listed_last_and_says_that_it_is_slow() -> None:
    *others, last = kk.list_devices()
    assert last.spec == "reference:0" and last.is_interpreter and "slow" in last.name
    assert not any(info.is_interpreter for info in others)


def test_it_is_opened_loudly_where_nothing_else_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_DEVICE", raising=False)
    only = {name: found for name, found in registry._registered.items() if name == "reference"}
    monkeypatch.setattr(registry, "_registered", only)
    with pytest.warns(RuntimeWarning, match=r"kernels run on reference:0, an interpreter.*thousands of times slower"):
        device = kk.open_device()
    with device:
        assert device.spec == "reference:0"


def test_a_driver_comes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELKEEP_DEVICE", raising=False)
    both = {name: found for name, found in registry._registered.items() if name == "reference"}
    monkeypatch.setattr(registry, "_registered", both)
    kk.register_backend("fake", "kernelkeep.testing.fake")
    with kk.open_device() as device:
        assert device.spec == "fake:0"


# --- what it takes


def test_the_source_keeps_the_body_as_it_is() -> None:
    text = SCALE.source("reference").text
    assert text == (
        f"//kk: kernel scale group(4,1,1) y:buffer:f4:rw a:scalar:f4:r n:scalar:i4:r\n#line 1\n{SCALE.body}\n"
    )


def test_a_text_may_have_several_kernels_and_what_they_share(device: ReferenceDevice) -> None:
    text = """float twice(float v) { return 2.0f * v; }
//kk: kernel one y:buffer:float
y[kk_global_id(0)] = twice(1.0f);
//kk: kernel two y:buffer:f4
y[kk_global_id(0)] = twice(y[kk_global_id(0)]) + missing;
"""
    source = kk.Source(text, language="reference")
    with pytest.raises(kk.CompileError, match="line 5: unknown name missing") as caught:
        device.compile(source)
    assert caught.value.line == 5
    program = device.build(kk.Source(text.replace("missing", "1.0f"), language="reference"))
    y = device.array(np.zeros(3, "f4"))
    program.kernel("one").launch(3, (y,), 1)
    program.kernel("two").launch(3, (y,), 1)
    assert y.numpy().tolist() == [5, 5, 5]


def test_a_kernel_file_finds_the_device(tmp_path: Path, device: ReferenceDevice) -> None:
    path = tmp_path / "fill.kk"
    path.write_text("//kk: kernel fill y:buffer:i4:w\ny[kk_global_id(0)] = 3;\n")
    source = kk.Source.from_file(path)
    assert source.language == device.language
    y = device.empty(2, "i4")
    device.build(source).kernel("fill").launch(2, (y,), 1)
    assert y.numpy().tolist() == [3, 3]


def test_loading_reads_no_kernel(tmp_path: Path, device: ReferenceDevice) -> None:
    """A program from a cache is only read when a kernel of it is launched."""
    path = tmp_path / "program"
    path.write_bytes(device.compile(SCALE.source(device)))
    script = """
import sys
from pathlib import Path
import kernelkeep as kk
with kk.open_device("reference") as device:
    kernel = device.load(Path(sys.argv[1]).read_bytes()).kernel("scale")
    assert not [name for name in sys.modules if name.startswith("kernelkeep.language")]
"""
    run_python(script, path)


def test_shared_arrays_have_a_limit(device: ReferenceDevice) -> None:
    kernel = kk.PortableKernel("big", params=[], body="kk_shared(double, s, 9000);\ns[0] = 1.0;", group=1)
    with pytest.raises(kk.CompileError, match="big has 72,000 bytes of shared arrays, and 65,536 are allowed"):
        load(device, kernel)


def test_names_and_labels_of_a_body_are_never_code(device: ReferenceDevice) -> None:
    lines: list[str] = []
    device.print = lines.append
    body = """float exec(float __import__) { return __import__ + 1.0f; }
int me = 1, B = 2, F = 3, None = 4, lambda = 5, größe = 6, rt = 7, yield = 8;
kk_print("\\"); raise SystemExit(1) #", me + B + F + None + lambda + größe + rt + yield);
y[0] = exec(y[0]);"""
    y = device.array(np.zeros(1, "f4"))
    load(device, kk.PortableKernel("make", params=[kk.Buffer("y", "f4")], body=body, group=1)).launch(1, (y,))
    assert y.numpy().tolist() == [1]
    (line,) = lines
    assert line.startswith("make, line 3, work-item 0: ") and line.endswith('"); raise SystemExit(1) # 36')


# --- what it shows


def test_kk_print_names_the_line_and_the_work_item(device: ReferenceDevice, capsys: pytest.CaptureFixture[str]) -> None:
    body = 'int i = kk_global_id(0);\nif (i == 2) kk_print("value", i, y[i], i > 1);'
    kernel = kk.PortableKernel("shows", params=[kk.Buffer("y", "f4")], body=body, group=4)
    load(device, kernel).launch(1, (device.array(np.arange(4, dtype="f4") / 10),))
    assert capsys.readouterr().out == "shows, line 2, work-item 2: value 2 0.200000003 true\n"


def test_prints_can_go_elsewhere(device: ReferenceDevice) -> None:
    lines: list[str] = []
    device.print = lines.append
    kernel = kk.PortableKernel("shows", params=[], body="kk_print(kk_local_id(0), kk_local_id(1));", group=(2, 2))
    load(device, kernel).launch(1)
    assert lines == [f"shows, line 1, work-item ({x}, {y}): {x} {y}" for y in range(2) for x in range(2)]


def test_a_breakpoint_sees_variables_and_arrays(device: ReferenceDevice) -> None:
    stops: list[Stop] = []
    device.breakpoints.set(4, stops.append, kernel="scale", when=lambda stop: stop.item[0] == 1)
    kernel = load(device, SCALE)
    y = device.array(np.arange(4, dtype="f4"))
    kernel.launch(1, (y, 3.0, 4))
    (stop,) = stops
    assert (stop.kernel, stop.line, stop.item) == ("scale", 4, (1, 0, 0))
    assert stop.variables == {"i": 1, "v": 3.0, "a": 3.0, "n": 4}
    assert stop.arrays["y"].tolist() == [0, 1, 2, 3]
    device.breakpoints.clear()
    kernel.launch(1, (y, 3.0, 4))
    assert len(stops) == 1


def test_a_breakpoint_without_a_call_opens_the_debugger(
    device: ReferenceDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: opened.append(1))
    device.breakpoints.set(3)
    load(device, SCALE).launch(1, (device.array(np.arange(4, dtype="f4")), 3.0, 2))
    assert opened == [1, 1]
    with pytest.raises(kk.ArgumentError, match="line must be"):
        device.breakpoints.set(0)


def test_a_mistake_at_the_end_of_the_body_is_shown_where_every_target_shows_it(device: ReferenceDevice) -> None:
    kernel = kk.PortableKernel("end", params=[kk.Buffer("missing", "f4")], body="missing[0] = 1")
    with pytest.raises(kk.CompileError) as caught:
        load(device, kernel)
    assert [caught.value.log] == [str(one) for one in kk.check(kernel)]
    assert "line 1: ; is missing" in caught.value.log and caught.value.log.endswith(
        "\n    missing[0] = 1\n                  ^"
    )
