"""Two small portable kernels with NumPy references: what `kernelkeep demo` and `kernelkeep doctor` run.

They are samples of the API, not tuned kernels. Their sizes are odd on purpose: the last group of a grid is not full, so
a missing bounds check or a wrong row length shows as a wrong result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..programs.portable import Buffer, PortableKernel, Scalar

if TYPE_CHECKING:
    from ..devices.array import Array
    from ..devices.base import Device


@dataclass(frozen=True)
class Sample:
    """A portable kernel with inputs, a grid and a reference to check it against.

    `inputs` makes one value per parameter, by name, the same at every call. `reference` takes them and returns what the
    buffer `output` must hold after one launch, to within `tolerance` in every element.
    """

    kernel: PortableKernel
    grid: int | tuple[int, ...]
    inputs: Callable[[], Mapping[str, Any]]
    output: str
    reference: Callable[[Mapping[str, Any]], np.ndarray[Any, Any]]
    tolerance: float

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    def upload(self, device: Device, inputs: Mapping[str, Any]) -> tuple[tuple[Any, ...], Array]:
        """The kernel's arguments with the arrays on a device, and the one of them that is the output."""
        values = {name: device.array(v) if isinstance(v, np.ndarray) else v for name, v in inputs.items()}
        return tuple(values[param.name] for param in self.kernel.params), values[self.output]

    def what_is_wrong(self, error: float) -> str:
        """What to say about a result whose largest error this is; "" where that is within the tolerance."""
        if error <= self.tolerance:  # false for NaN as well
            return ""
        return f"{self.name} differs from NumPy's result by {error:.3g}, and {self.tolerance:.3g} is allowed"


def largest_error(result: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """How far the worst element is off."""
    return float(np.abs(result.astype("f8") - expected.astype("f8")).max())


_SAXPY_ITEMS, _SAXPY_GROUP = 1_000_003, 256


def _saxpy_inputs() -> dict[str, Any]:
    random = np.random.default_rng(1)
    x, y = random.random((2, _SAXPY_ITEMS), dtype=np.float32)
    return {"x": x, "y": y, "a": np.float32(2.5), "n": np.int32(_SAXPY_ITEMS)}


def _saxpy_reference(inputs: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    result: np.ndarray[Any, Any] = inputs["a"] * inputs["x"] + inputs["y"]
    return result


SAXPY = Sample(
    kernel=PortableKernel(
        "saxpy",
        params=[Buffer("x", "f4", "r"), Buffer("y", "f4", "rw"), Scalar("a", "f4"), Scalar("n", "i4")],
        body="int i = kk_global_id(0); if (i < n) y[i] = a * x[i] + y[i];",
        group=_SAXPY_GROUP,
    ),
    grid=-(-_SAXPY_ITEMS // _SAXPY_GROUP),
    inputs=_saxpy_inputs,
    output="y",
    reference=_saxpy_reference,
    tolerance=1e-6,  # a device may fuse the multiplication and the addition, NumPy does not
)

_STENCIL_SHAPE, _STENCIL_TILE = (509, 767), (16, 16)


def _stencil_inputs() -> dict[str, Any]:
    height, width = _STENCIL_SHAPE
    u = np.random.default_rng(2).random(_STENCIL_SHAPE, dtype=np.float32)
    zeros = np.zeros_like(u)
    return {"u": u, "u_next": zeros, "k": np.float32(0.2), "width": np.int32(width), "height": np.int32(height)}


def _stencil_reference(inputs: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    u, k = inputs["u"], inputs["k"]
    result: np.ndarray[Any, Any] = u.copy()
    neighbours = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    result[1:-1, 1:-1] += k * (neighbours - 4 * u[1:-1, 1:-1])
    return result


STENCIL = Sample(
    kernel=PortableKernel(
        "stencil",
        params=[
            Buffer("u", "f4", "r"),
            Buffer("u_next", "f4", "w"),
            Scalar("k", "f4"),
            Scalar("width", "i4"),
            Scalar("height", "i4"),
        ],
        body="""int x = kk_global_id(0), y = kk_global_id(1);
if (x < width && y < height) {
  int i = y * width + x;
  float next = u[i];
  if (x > 0 && x < width - 1 && y > 0 && y < height - 1)
    next += k * (u[i - width] + u[i + width] + u[i - 1] + u[i + 1] - 4.0f * u[i]);
  u_next[i] = next;
}""",
        group=_STENCIL_TILE,
    ),
    grid=(-(-_STENCIL_SHAPE[1] // _STENCIL_TILE[0]), -(-_STENCIL_SHAPE[0] // _STENCIL_TILE[1])),
    inputs=_stencil_inputs,
    output="u_next",
    reference=_stencil_reference,
    tolerance=2e-6,
)

SAMPLES = (SAXPY, STENCIL)
