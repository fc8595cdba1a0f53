"""A kernel as Python functions, and the loop over groups and phases that runs them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...language.problems import nested_too_deeply
from ...language.types import Array, Buffer, Scalar, StructType, Type, Vector
from .arithmetic import NAMES, UNSET
from .breakpoints import Breakpoints, Stop
from .checks import Checks, WatchedArray
from .memory import FORMATS, Halves, Memory, MemoryPart, whole_of
from .records import Elements
from .text import KernelText, read_kernel
from .writing.array_use import array_use
from .writing.code import python_name
from .writing.module import ModuleWriter, Plan, Written
from .writing.storage import Storage, count_elements, flat_element

if TYPE_CHECKING:
    from ...language.tree import Variable
    from .device import ReferenceDevice

Place3 = tuple[int, int, int]


class KernelCode:
    """One kernel: its tree, and its Python for each way of watching its arrays. Reads nothing before the first launch."""

    def __init__(self, text: KernelText) -> None:
        self.text = text
        self.module = read_kernel(text)
        try:
            self.use = array_use(self.module)
        except RecursionError:
            raise nested_too_deeply(text.signature.name) from None
        self._compiled: dict[tuple[Any, ...], tuple[Written, Callable[..., Any]]] = {}

    @property
    def shared_bytes(self) -> int:
        """How much memory the shared arrays take."""
        return sum(_size_of(variable.type) for variable in self.use.shared)

    def run(self, device: ReferenceDevice, values: Sequence[Any], grid: Place3, group: Place3) -> None:
        """Run a whole launch. Raises `KernelFault`."""
        run = _Run(self, device, values, grid, group)
        run.groups()

    def written(self, plan: Plan) -> tuple[Written, Callable[..., Any]]:
        """The text for a plan, and its function `make`."""
        storages = tuple((one.title, one.is_watched, one.must_be_written, one.has_atomics) for _, one in plan.storages)
        key = plan.group, storages, plan.breakpoints
        if key not in self._compiled:
            name = f"<kernel {self.text.signature.name} on the reference device>"
            scope = dict(NAMES)
            try:
                written = ModuleWriter(self.module, self.use, plan).text()
                # Of the user's text there are only numbers, names with a prefix, and quoted labels in it.
                exec(compile(written.text, name, "exec"), scope)
            except (RecursionError, MemoryError, SyntaxError):  # Python has limits for blocks and parentheses as well
                raise nested_too_deeply(self.text.signature.name) from None
            self._compiled[key] = written, scope.pop("make")
        return self._compiled[key]


class _Run:
    """One launch."""

    def __init__(
        self, kernel: KernelCode, device: ReferenceDevice, values: Sequence[Any], grid: Place3, group: Place3
    ) -> None:
        self._kernel = kernel
        self._device = device
        self._grid = grid
        self._group = group
        self._values = dict(zip(kernel.module.kernel.parameters, values, strict=True))
        self._breakpoints: Breakpoints = device.breakpoints
        self._storages = tuple(
            (variable, self._storage(variable))
            for variable in (*kernel.module.kernel.parameters, *kernel.use.shared)
            if variable.space in ("buffer", "shared")
        )
        lines = self._lines_with_breakpoints()
        plan = Plan(kernel.text.signature.group, self._storages, lines)
        self._written, self._make = kernel.written(plan)
        self._checks = Checks(kernel.text, self._written.points, group, device.last_stamp, device.print)

    def groups(self) -> None:
        """Run all groups, one after the other."""
        checks, items = self._checks, math.prod(self._group)
        names: dict[str, Any] = {
            "rt": checks, "F": memoryview(bytearray(4)).cast("f"), "B": self._device.last_stamp,
            "ROUNDS": self._device.max_loop_rounds,
            **{f"S{d}": size for d, size in enumerate(self._group)},
            **{f"C{d}": size for d, size in enumerate(self._grid)},
        }  # fmt: skip
        for variable, value in self._values.items():
            if variable.space == "scalar":
                names[python_name("p", variable.name)] = value.item() if isinstance(value, np.generic) else value
        shared: list[WatchedArray] = []
        for variable, storage in self._storages:
            array, found = self._bound(variable, storage)
            names |= found
            checks.arrays[storage.title] = array
            if storage.is_shared:
                shared.append(array)
        if self._breakpoints.lines(self._kernel.text.signature.name):
            checks.on_stop = self._stop
        run_group = self._make(**names)
        has_barrier = self._kernel.module.kernel.has_barrier
        x, y, z = self._grid
        try:
            for gz, gy, gx in itertools.product(range(z), range(y), range(x)):
                start = checks.begin_group((gx, gy, gz))
                for array in shared:
                    array.writes[:] = array.reads[:] = array.atomics[:] = [0] * array.length
                waiting = run_group(start, start + items, gx, gy, gz)
                if has_barrier:
                    self._phases(waiting)
                elif shared:
                    checks.end_phase()
        finally:
            self._device.last_stamp = checks.next_stamp

    def _phases(self, items: list[Generator[int, tuple[int, int, int], None]]) -> None:
        """Run the work-items of a group up to each barrier."""
        checks, count = self._checks, len(items)
        start = checks.phase_start
        stamps: tuple[int, int, int] | None = None
        while True:
            points: list[int] = []
            for number, item in enumerate(items):
                try:
                    points.append(item.send(stamps and (start + number, start, start + count)))  # type: ignore[arg-type]
                except StopIteration:
                    points.append(-1)
            checks.end_phase()
            first = points[0]
            if points.count(first) != count:
                self._report_divergence(points, start)
            if first < 0:
                return
            start = checks.begin_phase()
            stamps = (start, start, start)

    def _report_divergence(self, points: list[int], start: int) -> None:
        """Some work-items wait at a barrier, and others have ended or wait at another one."""
        checks = self._checks
        waits = next(number for number, point in enumerate(points) if point >= 0)
        point = points[waits]
        other = next(number for number, found in enumerate(points) if found != point)
        where = "has ended" if points[other] < 0 else f"waits at another, in line {checks.line_of(points[other])}"
        missing = sum(found != point for found in points)
        who = ", ".join(map(str, checks.place_of(start + other)))
        sentence = f"this barrier is not reached by {missing} of {len(points)} work-items of the group: ({who}) {where}"
        checks.barrier(point, start + waits, sentence)

    # --- arrays

    def _storage(self, variable: Variable) -> Storage:
        prefix, title = python_name("a", variable.name), variable.written or variable.name
        element, has_atomics = flat_element(variable.type), variable in self._kernel.use.atomic
        if variable.space == "shared":
            return Storage(prefix, title, element, True, True, "launch", has_atomics)
        memory: Memory | MemoryPart = self._values[variable]
        written = [one for one in self._kernel.use.written if one.space == "buffer" and self._is_in(one, memory)]
        assert isinstance(variable.type, Buffer)
        must = "launch" if variable.type.access == "w" else "ever" if memory.is_fresh else ""
        is_watched = bool(written) and title not in self._kernel.text.trusted
        if title in self._kernel.text.trusted:
            must = ""
        atomic = any(one in self._kernel.use.atomic for one in written)
        return Storage(prefix, title, element, False, is_watched, must, atomic and is_watched)  # type: ignore[arg-type]

    def _is_in(self, variable: Variable, memory: Memory | MemoryPart) -> bool:
        """Whether the buffer of a variable is in the same memory."""
        other = self._values.get(variable)
        return other is not None and whole_of(other) is whole_of(memory)

    def _bound(self, variable: Variable, storage: Storage) -> tuple[WatchedArray, dict[str, Any]]:
        """The names that generated code has for an array."""
        data: Any
        writes: list[float]
        reads: list[float]
        atomics: list[float]
        if storage.is_shared:
            length = count_elements(variable.type)
            data = _shared_elements(storage.element, length)
            writes, reads, atomics = [0] * length, [0] * length, [0] * length if storage.has_atomics else []
        else:
            memory: Memory | MemoryPart = self._values[variable]
            is_number = isinstance(storage.element, Scalar)
            data = memory.elements(storage.element.name) if is_number else Elements(memory.bytes, storage.element)  # type: ignore[attr-defined]
            length, size = len(data), data.itemsize
            writes = memory.writes(size) if storage.is_watched or storage.must_be_written else []
            reads = memory.reads(size) if storage.is_watched else []
            atomics = memory.atomics(size) if storage.has_atomics else []
        has_swaps = variable in self._kernel.use.swapped
        is_array = isinstance(variable.type, Array | Buffer)
        must = storage.must_be_written
        is_shared, sizes = storage.is_shared, _inner_sizes(variable.type)
        array = WatchedArray(
            storage.title, data, length, writes, reads, atomics, must, is_shared, is_array, has_swaps, sizes
        )
        ends = {"": data, "_n": length, "_W": writes, "_R": reads, "_A": atomics, "_S": array}
        return array, {f"{storage.prefix}{end}": value for end, value in ends.items()}

    # --- breakpoints

    def _lines_with_breakpoints(self) -> frozenset[int]:
        wanted = self._breakpoints.lines(self._kernel.text.signature.name)
        return frozenset(wanted).intersection(self._kernel.text.lines)

    def _stop(self, line: int, item: Place3, variables: dict[str, Any]) -> None:
        names = self._written.names
        found = {names[name]: value for name, value in variables.items() if name in names}
        for variable, value in self._values.items():
            if variable.space == "scalar":
                found.setdefault(variable.name, value)
        arrays = {
            title: np.array(array.data)
            for title, array in self._checks.arrays.items()
            if isinstance(array.data, (memoryview, Halves))
        }
        self._breakpoints.meet(Stop(self._kernel.text.signature.name, line, item, found, arrays))


def _size_of(kind: Type) -> int:
    if isinstance(kind, Array):
        return kind.length * _size_of(kind.element)
    if isinstance(kind, StructType):
        return sum(_size_of(field) for _, field in kind.fields)
    if isinstance(kind, Vector):
        return (2 if kind.length == 2 else 4) * kind.element.size
    return kind.size if isinstance(kind, Scalar) else 0


def _inner_sizes(kind: Type) -> tuple[int, ...]:
    """The size of each dimension of an array but the first."""
    found: list[int] = []
    kind = kind.element if isinstance(kind, Array | Buffer) else kind
    while isinstance(kind, Array):
        found.append(kind.length)
        kind = kind.element
    return tuple(found)


def _shared_elements(kind: Type, length: int) -> Any:
    if isinstance(kind, Scalar) and kind.name in FORMATS:
        return memoryview(bytearray(length * kind.size)).cast(FORMATS[kind.name])
    return [_unset(kind) for _ in range(length)]


def _unset(kind: Type) -> Any:
    """A value of which nothing was written."""
    if isinstance(kind, Array):
        return [_unset(kind.element) for _ in range(kind.length)]
    if isinstance(kind, StructType):
        return [_unset(field) for _, field in kind.fields]
    return (UNSET,) * kind.length if isinstance(kind, Vector) else UNSET
