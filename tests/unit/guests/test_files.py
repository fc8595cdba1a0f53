"""Several files as one run of bytes."""

from __future__ import annotations

import pytest

from kernelkeep.guests.files import pack, unpack
from kernelkeep.storage.files import Damaged

FILES = {"add.cubin": b"\x7fELF" + bytes(range(256)), "add.json": b"{}", "größe.txt": b""}


def test_files_come_back_as_they_were() -> None:
    assert unpack(pack(FILES)) == FILES
    assert unpack(pack({})) == {}


def test_bytes_that_are_cut_off_or_longer_are_damaged() -> None:
    data = pack(FILES)
    for size in range(len(data)):
        with pytest.raises(Damaged):
            unpack(data[:size])
    with pytest.raises(Damaged):
        unpack(data + b"x")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "a\\b", "a\0b"])
def test_a_name_that_is_a_path_is_damaged(name: str) -> None:
    with pytest.raises(Damaged):
        unpack(pack({name: b"x"}))
