"""A tuned kernel for one problem on one device, ready to be called."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices.array import Array
from ..errors import ArgumentError
from ..programs.signature import Parameter
from .select import Selection
from .template import Launch

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache
    from ..devices.base import Device
    from .definition import Definition

# The output, or a dict of several, which is `Any` here: a caller knows how many there are, and a type checker does not.
Results = Array | Any


class Call:
    """The chosen variant and the arguments it expects. Made once for each problem; the launch is prepared at the first call."""

    __slots__ = ("_arguments", "_definition", "_device", "_launch", "explorer", "problem", "selection")

    def __init__(self, definition: Definition, device: Device, problem: dict[str, Any], selection: Selection) -> None:
        self.problem = problem
        self.selection = selection
        self.explorer: Any = None  # the `Explorer` of this call, which knows this class
        self._definition = definition
        self._device = device
        self._launch: Launch | None = None
        self._arguments: list[tuple[Parameter, Any, int]] | None = None

    @property
    def launch(self) -> Launch:
        """The chosen variant's launch."""
        if self._launch is None:
            values = self._definition.template.values(self.problem)
            self._launch = self._definition.launch(self._device, values, self.selection.variant)
        return self._launch

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What the kernel takes, in its order."""
        return self._definition.template.params(self._device.language)

    def choose(self, selection: Selection, launch: Launch) -> None:
        """Run another variant from now on."""
        self.selection, self._launch = selection, launch

    def run(self, cache: ProgramCache, given: Mapping[str, Any]) -> Results:
        """Launch the chosen variant."""
        launch = self._launch or self.launch
        args, outputs = self.arguments(given)
        with cache.get(launch.source) as lease:
            lease.kernel(launch.kernel).launch(launch.grid, args, launch.group, shared_bytes=launch.shared_bytes)
        return results(outputs)

    def arguments(self, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Array]]:
        """The kernel's arguments in order, and those of them that are outputs. Arrays are copied to the device."""
        expected = self._arguments or self._expected()
        args: list[Any] = []
        outputs: dict[str, Array] = {}
        used = 0
        for param, wanted, size in expected:
            value = given.get(param.name)
            used += value is not None
            if param.kind == "scalar":
                if value is None:
                    value = wanted
                    if value is None:
                        raise ArgumentError(f"{self._definition.name} needs {param.name}")
                args.append(value)
                continue
            if value is None:
                if param.access == "r":
                    raise ArgumentError(f"{self._definition.name} needs {param.name}")
                value = self._device.empty(wanted, param.dtype)
                if param.access == "rw":
                    value.copy_from(np.zeros(wanted, param.dtype))  # the kernel may read it; as in a Job
            elif not isinstance(value, Array):
                value = self._device.array(value)
            if value.size != size:
                raise ArgumentError(f"{param.name} must have the shape {wanted} for this problem, got {value.shape}")
            if param.access != "r":
                outputs[param.name] = value
            args.append(value)
        if used < len(given):
            unknown = sorted(given.keys() - {param.name for param, _, _ in expected})
            if unknown:
                raise ArgumentError(f"{self._definition.name} does not take {', '.join(unknown)}")
        return tuple(args), outputs

    def _expected(self) -> list[tuple[Parameter, Any, int]]:
        """Each parameter with a scalar's default, or an array's shape and size."""
        template = self._definition.template
        values = template.values(self.problem)
        expected: list[tuple[Parameter, Any, int]] = []
        for param in template.params(self._device.language):
            if param.kind == "scalar":
                expected.append((param, template.scalar(param.name, values, None), 0))
            else:
                shape = template.shape(param.name, values)
                expected.append((param, shape, prod(shape)))
        self._arguments = expected
        return expected


def results(outputs: dict[str, Array]) -> Results:
    """The output; all of them by name where there are several."""
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs
