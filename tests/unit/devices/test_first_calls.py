"""What a person reaches for first: groups, open_device by kind, build of a portable kernel."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk

DOUBLE = kk.PortableKernel(
    "twice",
    params=[kk.Buffer("x", "f4", "rw"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) x[i] = 2 * x[i];",
    group=4,
)


def test_groups_cover_all_items() -> None:
    assert [kk.groups(n, 256) for n in (1, 255, 256, 257)] == [1, 1, 1, 2]
    assert kk.groups(np.int64(1000)) == 4  # type: ignore[call-overload]
    assert kk.groups((640, 481), (16, 16)) == (40, 31)


@pytest.mark.parametrize(
    "wrong", [(0, 4), (-1, 4), (4, 0), (1.5, 4), ((4, 4), 4), (4, (2, 2)), ("4", 4), (True, 4), ((), ())]
)
def test_groups_refuses_what_is_no_size(wrong: tuple[object, object]) -> None:
    with pytest.raises(kk.ArgumentError):
        kk.groups(*wrong)  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_open_device_by_kind(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [info for info in kk.list_devices() if info.is_gpu == (kind == "gpu") and not info.is_interpreter]
    if not listed:
        with pytest.raises(kk.DeviceError, match=f"no {kind.upper()} can be used"):
            kk.open_device(kind)
        return
    with kk.open_device(kind) as device:
        assert device.info == listed[0]
    monkeypatch.setenv("KERNELKEEP_DEVICE", kind)
    with kk.open_device() as device:
        assert device.info == listed[0]


def test_open_device_takes_what_list_devices_returns() -> None:
    for info in kk.list_devices():
        with kk.open_device(info) as device:
            assert device.info == info


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_no_backend_can_have_the_name_of_a_kind(kind: str) -> None:
    with pytest.raises(kk.ArgumentError, match="choose another name"):
        kk.register_backend(kind, "some.module")


def test_build_takes_a_portable_kernel() -> None:
    with kk.open_device("reference") as device:
        x = device.array([1.0, 2.0, 3.0])
        device.build(DOUBLE).kernel().launch(kk.groups(3, 4), (x, 3))
        assert x.numpy().tolist() == [2, 4, 6]
        assert device.compile(DOUBLE) == device.compile(DOUBLE.source(device))
        with pytest.raises(kk.ArgumentError, match=r"kk\.Source or kk\.PortableKernel"):
            device.build("kernel")  # type: ignore[arg-type]


def test_sources_travel_to_other_processes(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("#define PART 1\n")
    by_hand = kk.Source('#include "part.h"\nint x;', "x", "opencl", ("-cl-mad-enable",), {"TILE": 4}, (tmp_path,))
    for source in (by_hand, DOUBLE.source("opencl")):
        back = pickle.loads(pickle.dumps(source))
        assert (back.name, back.language, back.options, dict(back.defines)) == (
            source.name, source.language, source.options, dict(source.defines),
        )  # fmt: skip
        assert back.text == source.text


def test_a_cache_finds_the_program_of_a_source_that_travelled(tmp_path: Path) -> None:
    with kk.open_device("reference") as device, kk.ProgramCache(device, cache_dir=tmp_path) as cache:
        source = DOUBLE.source(device)
        with cache.get(source) as lease:
            assert lease.origin == "compiled"
        with cache.get(pickle.loads(pickle.dumps(source))) as lease:
            assert lease.origin == "memory"
