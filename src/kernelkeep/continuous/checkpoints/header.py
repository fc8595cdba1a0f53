"""The header of a checkpoint: the same facts for every program, whatever its state is."""

from __future__ import annotations

import math
import re
import secrets
import sys
import time
from typing import Annotated, Any

import msgspec
import numpy as np

from ... import __version__
from ...escaping import escaped

Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
# Up to the year 9999, beyond which no calendar function goes.
_Moment = Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]
_Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

# The types an array or a scalar may have, as NumPy writes them. All are little-endian; `long double` is left out because it
# means something else on every machine, objects because they would have to be pickled.
DTYPES = frozenset("|b1 |i1 |u1 <i2 <u2 <f2 <i4 <u4 <f4 <i8 <u8 <f8 <c8 <c16".split())
_DIMENSIONS = 32
_LINEAGE = re.compile("(?:[0-9a-f]{32})?")
_LONGEST_BODY = 1 << 20


class ScalarValue(msgspec.Struct, frozen=True):
    """A scalar parameter: its value as a Python number and its dtype, such as `<f4`.

    JSON cannot hold values that are not finite: they are the texts `nan`, `inf` and `-inf`.
    """

    value: bool | int | float | str
    dtype: str

    @classmethod
    def of(cls, value: Any, dtype: Any = None) -> ScalarValue:
        """A number, NumPy's or Python's, as a header holds it."""
        number = np.asarray(value, dtype)[()]
        return cls(plain_number(number.item()), number.dtype.newbyteorder("<").str)

    def numpy(self) -> np.generic:
        """The value as a NumPy scalar of its type."""
        number = np.dtype(self.dtype).type(self.value)
        assert isinstance(number, np.generic)
        return number


class ArrayInfo(msgspec.Struct, frozen=True):
    """One array of the state: its name, its dtype, such as `<f4`, and its shape."""

    name: str
    dtype: str
    shape: tuple[Natural, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of the array, uncompressed."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class CheckpointHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a state beside its arrays; the same for every program.

    `arrays` is filled in when the checkpoint is written, from the arrays that come with it; `lineage` and `file` as well, by
    whoever writes the files of a run.
    """

    program: str  # its name, for people
    program_digest: str
    layout_digest: str
    coupling: str
    items: Natural
    iteration: Natural
    generation: Natural  # how often the state was committed
    phase: _Integer = 0
    queue_head: Natural = 0
    queue_tail: Natural = 0
    finished: bool = False
    scalars: dict[str, ScalarValue] = {}
    device: str = ""  # its spec, such as "opencl:0"
    device_name: str = ""
    created: _Moment = msgspec.field(default_factory=time.time)  # seconds since 1970
    version: str = __version__  # of kernelkeep
    arrays: tuple[ArrayInfo, ...] = ()
    body: str = ""  # what an iteration does; empty where it is too long, or an older kernelkeep wrote the file
    lineage: str = ""  # 32 hexadecimal digits that all files of one run share
    file: str = ""  # the name that the run gave its newest file

    def __str__(self) -> str:
        done = ", finished" if self.finished else ""
        return f"iteration {self.iteration:,} of {escaped(self.program)} (generation {self.generation:,}{done})"


def new_lineage() -> str:
    """A random lineage for a run that begins, so that no other run has it."""
    return secrets.token_hex(16)


def stored_body(body: str) -> str:
    """The body as a header holds it: empty where it is too long."""
    return body if len(body) <= _LONGEST_BODY else ""


def plain_number(value: Any) -> bool | int | float | str:
    """A Python number as JSON can hold it."""
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    raise TypeError(f"{value!r} is not a real number")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a header cannot hold {value!r}")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder(CheckpointHeader)


def encode_header(header: CheckpointHeader) -> bytes:
    """The header as JSON; ValueError says what is wrong in it."""
    try:
        data = _encoder.encode(header)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from None
    decode_header(data)  # finds a mistake when a checkpoint is written, not when it is needed
    return data


def decode_header(data: bytes) -> CheckpointHeader:
    """The header of this JSON; ValueError says what is wrong in it. Unknown fields are ignored."""
    try:
        header = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise ValueError(str(error)) from None
    names = [info.name for info in header.arrays]
    if len(set(names)) != len(names):
        raise ValueError("two arrays have the same name")
    if not _LINEAGE.fullmatch(header.lineage):
        raise ValueError("its lineage is not 32 hexadecimal digits")
    for info in header.arrays:
        if info.dtype not in DTYPES:
            raise ValueError(f"the array {info.name!r} has the unknown dtype {info.dtype!r}")
        # A length of 0 makes an array empty, but not its other lengths possible.
        least = math.prod(max(1, length) for length in info.shape) * np.dtype(info.dtype).itemsize
        if len(info.shape) > _DIMENSIONS or least >= 1 << 63:
            raise ValueError(f"the array {info.name!r} has an impossible shape")
    for name, scalar in header.scalars.items():
        _check_scalar(name, scalar)
    return header


def _check_scalar(name: str, scalar: ScalarValue) -> None:
    if scalar.dtype not in DTYPES or not _fits(scalar.value, scalar.dtype):
        raise ValueError(f"the scalar {name!r} cannot be {scalar.value!r} of dtype {scalar.dtype!r}")


def _fits(value: bool | int | float | str, dtype: str) -> bool:
    kind = np.dtype(dtype).kind
    if kind in "iu":
        limits = np.iinfo(dtype)
        return isinstance(value, int) and limits.min <= value <= limits.max
    if kind == "b":
        return value in (False, True)
    if isinstance(value, str):
        return kind == "f" and value in ("nan", "inf", "-inf")
    if kind != "f" or abs(value) > sys.float_info.max:
        return False
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.dtype(dtype).type(value)))
