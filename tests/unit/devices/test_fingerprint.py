"""Fingerprints: what differs never shares a folder, and a person can read the folder's name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.devices.fingerprint import cpu_identity
from kernelkeep.testing import run_python

H200 = kk.Fingerprint("cuda", "NVIDIA Corporation", "NVIDIA H200", "580.65.06", "nvrtc 13.0.88", "sm_90")
POCL = kk.Fingerprint(
    "opencl",
    "AuthenticAMD",
    "pthread-AMD EPYC",
    "Portable Computing Language 3.0",
    "OpenCL 3.0",
    "AMD EPYC 7B13 0123456789ab",
)
FIELDS = ["backend", "vendor", "model", "driver", "compiler", "architecture"]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("made", [H200, POCL], ids=["cuda", "pocl"])
def test_every_field_changes_the_digest(made: kk.Fingerprint, field: str) -> None:
    for change in ("!", "x", ".1"):
        other = replace(made, **{field: getattr(made, field) + change})
        assert other.digest != made.digest
        assert other.folder != made.folder


def test_two_drivers_never_share_a_folder() -> None:
    folders = {replace(H200, driver=driver).folder for driver in ("580.65.06", "580.65.6", "580.6506", "580 65 06", "")}
    assert len(folders) == 5


def test_pocl_on_two_cpus_never_shares_a_folder() -> None:
    other = replace(POCL, architecture="AMD EPYC 7B13 ba9876543210")  # the same model, other instructions
    assert other.folder != POCL.folder


def test_fields_do_not_run_into_each_other() -> None:
    assert replace(H200, vendor="ab", model="c").digest != replace(H200, vendor="a", model="bc").digest


def test_white_space_does_not_count() -> None:
    assert replace(H200, model="  NVIDIA   H200\n").digest == H200.digest


def test_the_folder_is_readable_and_safe() -> None:
    assert re.fullmatch(r"cuda_nvidia-h200_580\.65\.06_nvrtc-13\.0\.88_[0-9a-f]{12}", H200.folder)
    wild = kk.Fingerprint(
        "opengl", "Intel(R) Corporation", "Mesa/X.org: llvmpipe (LLVM 15.0.6, 256 bits)", "../..", "ü" * 99, "x" * 999
    )
    assert re.fullmatch(r"[a-z0-9._-]+", wild.folder)
    assert len(wild.folder) < 130
    assert Path(wild.folder).name == wild.folder
    assert "llvmpipe" in wild.folder
    nothing = kk.Fingerprint("opencl", "", "", "", "", "")
    assert re.fullmatch(r"opencl_[0-9a-f]{12}", nothing.folder)


def test_filler_words_stay_out_of_the_name_but_not_of_the_digest() -> None:
    plain, wordy = replace(H200, model="Xeon"), replace(H200, model="Xeon(R) Processor")
    assert plain.folder.rsplit("_", 1)[0] == wordy.folder.rsplit("_", 1)[0]
    assert plain.folder != wordy.folder


def test_the_digest_is_pinned() -> None:
    # A change here orphans every cache there is.
    assert H200.digest == "f7583978d14115c3c280e6a9d678f1106260fa45b17e99035d9d13fb1075aead"


def test_the_cpu_is_the_same_in_every_process() -> None:
    child = run_python("from kernelkeep.devices.fingerprint import cpu_identity; print(cpu_identity())").stdout
    assert child.strip() == cpu_identity()
    assert re.search(r"[0-9a-f]{12}$", cpu_identity())
