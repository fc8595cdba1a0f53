"""The OpenGL driver's own cache in a bundle: on another machine the driver finds its shaders and compiles none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.testing.process import run_python

USE = """
import json, sys, time
import kernelkeep as kk
from kernelkeep.testing.cache_parts.common import adder, check_adder
import numpy as np
origins, seconds = [], 0.0
with kk.open_device("opengl", cache_dir=sys.argv[1]) as device, kk.ProgramCache(device, sys.argv[1]) as cache:
    warm_up = device.array(np.zeros(1))
    for term in range(3):
        with cache.get(adder(device, term, name=f"add{term}")) as lease:
            began = time.perf_counter()
            check_adder(device, lease, term)
            seconds += time.perf_counter() - began
            origins.append(lease.origin)
    folder = device.fingerprint.folder
print(json.dumps({"origins": origins, "folder": folder, "seconds": seconds}))
"""


def use(root: Path) -> Any:
    # The driver must take the folder from kernelkeep and from nobody else.
    return json.loads(run_python(f"import os; os.environ.pop('MESA_SHADER_CACHE_DIR', None)\n{USE}", root).stdout)


def shaders(root: Path, folder: str) -> set[str]:
    top = root / folder / "driver"
    return {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()}


@pytest.mark.opengl
def test_the_drivers_shaders_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not [info for info in kk.list_devices() if info.backend == "opengl"]:
        pytest.skip("no OpenGL device")
    for name in ("MESA_SHADER_CACHE_DIR", "__GL_SHADER_DISK_CACHE_PATH"):
        monkeypatch.delenv(name, raising=False)
    there, here, secret = tmp_path / "there", tmp_path / "here", b"a secret that two machines share"
    made = use(there)
    if set(made["origins"]) != {"compiled"} or not (kept := shaders(there, made["folder"])):
        pytest.skip("this driver keeps no shaders of its own")
    assert kk.export_bundle(there, tmp_path / "a.kkb", signing_key=secret).driver_files == len(kept)
    added = kk.import_bundle(here, tmp_path / "a.kkb", signing_key=secret)
    assert (added.entries, added.driver_files) == (3, len(kept))
    again = use(here)
    assert (again["origins"], again["folder"]) == (["disk"] * 3, made["folder"])
    assert shaders(here, made["folder"]) == kept
    # The driver compiles at the first launch what it does not find. Its files have the same names then, so time must tell.
    for attempt in range(5):
        bare, again = tmp_path / f"bare{attempt}", use(here)
        kk.import_bundle(bare, tmp_path / "a.kkb", signing_key=secret, driver_cache=False)
        without = use(bare)
        assert without["origins"] == ["disk"] * 3
        if again["seconds"] < without["seconds"] / 2:
            return
    pytest.fail(f"with the driver's shaders {again['seconds']:.3f} s, without {without['seconds']:.3f} s")
