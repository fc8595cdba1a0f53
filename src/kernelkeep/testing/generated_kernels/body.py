"""A whole kernel: parameters, the statements between barriers, inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...programs.portable import Buffer, PortableKernel
from ...programs.portable import Scalar as ScalarParameter
from .choices import Choices, repeated, seeded
from .functions import Definitions
from .scope import ALL, FLOATS, SHORT_NAMES, ArrayName, Features, Scope

SIZE = 24  # statements of a kernel, at most, without those of its functions
_SPECIAL = (0, 1, -1, 2, 7, -7, 255, -128, 32767, 65536, 2**31 - 1, -(2**31), 33, -33)
_WILD = (0.5, -0.5, 300.7, -300.7, 1e20, -1e20, np.nan, np.inf, -np.inf, 2147483520.0, -2147483648.0, 4294967040.0, 127.9,
         -128.9, 65535.5, 9.3e18)  # fmt: skip
# Atomics whose result does not depend on the order, one for each element of `counts`.
_COUNTS = ("add", "sub", "min", "max", "and", "or", "xor", "cas")


@dataclass(frozen=True)
class GeneratedKernel:
    """A kernel without anything undefined in it, and what to launch it with.

    `floats` has six elements for each work-item: two that are exact, two that may be rounded, and two bounds of their sizes
    times the roundings. `decisions` make the same kernel again.
    """

    kernel: PortableKernel
    arrays: tuple[np.ndarray[Any, np.dtype[Any]], ...]
    scalars: tuple[int | float, ...]
    grid: int
    features: Features
    decisions: tuple[int, ...]


def generated_kernel(seed: int, features: Features = ALL, size: int = SIZE) -> GeneratedKernel:
    """The kernel that belongs to a seed: the same one on every machine."""
    return from_choices(seeded(seed), features, size, f"generated{seed}")


def from_decisions(decisions: tuple[int, ...], features: Features, name: str = "repeated") -> GeneratedKernel:
    """The kernel that these decisions lead to."""
    return from_choices(repeated(decisions), features, SIZE, name)


def from_choices(choices: Choices, features: Features, size: int = SIZE, name: str = "generated") -> GeneratedKernel:
    """A kernel."""
    return _KernelGenerator(choices, features, size).kernel(name)


class _KernelGenerator(Definitions):
    """Makes a kernel."""

    def kernel(self, name: str) -> GeneratedKernel:
        c = self.choices
        level = c.below(4)
        self.definitions()
        width, height = c.pick((8, 1), (16, 1), (8, 2), (32, 1))
        self._items = width * height
        groups = 1 + c.below(2)
        mixed, small = self.integer_type(), self._stored_type()
        mixed = "unsigned" if mixed == "bool" else mixed
        number = self._stored_type()
        self._counted = c.pick("int", "unsigned")
        self.scope = scope = Scope(is_kernel=True)
        self._may_return = False
        before = len(self.lines)
        self.line(f"int i = kk_group_id(0) * {width * height} + kk_local_id(1) * {width} + kk_local_id(0);")
        self.line(f"int l = kk_local_id(1) * {width} + kk_local_id(0);")
        scope.readable += ["i", "l", "(int)kk_group_id(0)", "kk_global_size(0)"]
        scope.arrays += [ArrayName("mixed", mixed, 16), ArrayName("ints", "int", 16), ArrayName("reals", "float", 16)]
        scope.integers.append(("n", number))
        scope.floats.append(("a", "float"))
        self.line("int x = ints[l & 15];")
        scope.integers.append(("x", "int"))
        self.statements_left = c.below(self.statements_left + 1)
        shared: list[str] = []
        for _ in range(c.below(3)):
            self.statements(4)
            shared.append(self._exchange())
        self._may_return = True
        self.statements(self.statements_left)
        self._use_everything()
        self.lines[before:before] = shared
        params: list[Buffer | ScalarParameter] = [
            Buffer("ints", "i4", "r"), Buffer("mixed", SHORT_NAMES[mixed], "r"), Buffer("reals", "f4", "r"),
            Buffer("outs", "i4", "rw"), Buffer("smalls", SHORT_NAMES[small], "rw"), Buffer("floats", "f4", "rw"),
            Buffer("counts", SHORT_NAMES[self._counted], "rw"), Buffer("sums", "f4", "rw"),
            ScalarParameter("n", SHORT_NAMES[number]), ScalarParameter("a", "f4"),
        ]  # fmt: skip
        random = np.random.default_rng(c.below(1 << 16))
        items = groups * width * height
        arrays = (
            _integers(random, "i4", 16), _integers(random, SHORT_NAMES[mixed], 16),
            np.concatenate([random.integers(-512, 513, 16) / 8, _WILD]).astype("f4"),
            np.zeros(4 * items, "i4"), np.zeros(2 * items, SHORT_NAMES[small]), np.zeros(6 * items, "f4"),
            np.full(8, 5, SHORT_NAMES[self._counted]), np.zeros(4, "f4"),
        )  # fmt: skip
        scalars = (int(_integers(random, SHORT_NAMES[number], 16)[0]), 1.5)
        group = (width, height) if height > 1 else width
        kernel = PortableKernel(name, params, "\n".join(self.lines) + "\n", group=group, defines={"LEVEL": level})
        return GeneratedKernel(kernel, arrays, scalars, groups, self.features, tuple(c.taken))

    def _stored_type(self) -> str:
        kind = self.integer_type()
        return "unsigned char" if kind == "bool" else kind

    # --- between barriers

    def _exchange(self) -> str:
        """Values that go from work-item to work-item through shared memory. Returns the declaration of that memory."""
        c, items = self.choices, self._items
        name = self.name("tile")
        form = c.below(4)
        if form == 1:
            self.line(f"if (l < 4) {name}[l] = 0;")
            self.line("kk_barrier();")
            self.line(f"kk_atomic_{c.pick('add', 'max', 'xor')}({name}[{self.index(4)}], {self.integer(1)});")
            self.line("kk_barrier();")
            self.scope.arrays.append(ArrayName(name, "int", 4))
            return f"kk_shared(int, {name}, 4);"
        if form == 2:
            rounds, counter = 1 + c.below(3), self.name("r")
            self.line(f"for (int {counter} = 0; {counter} < {rounds}; {counter}++) {{")
            self.line(f"    {name}[0][l] = {self.integer(1)};")
            self.line("    kk_barrier();")
            self.line(f"    x {c.pick('+', '^', '-')}= {name}[0][(l + {counter} + 1) & {items - 1}];")
            self.line("    kk_barrier();")
            self.line("}")
            return f"kk_shared(int, {name}, 2, {items});"
        kind = c.pick("int", "float", "unsigned", "short", "unsigned char")
        value = self.held(self.float_value(0, "float")) if kind == "float" else self.integer()
        self.line(f"{name}[l] = {value};")
        self.line("kk_barrier();")
        self.scope.arrays.append(ArrayName(name, kind, items))
        return f"kk_shared({'uint' if kind == 'unsigned' else kind}, {name}, {items});"

    # --- what is written to memory

    def effect(self) -> None:
        c = self.choices
        forms = (self._store, self._store_small, self._store_float, self._store_near, self._atomic, self._own_atomic,
                 self._float_atomic, self._return)  # fmt: skip
        c.pick(*(forms if self.scope.is_kernel else (self.assign,)))()

    def _store(self) -> None:
        place = f"outs[4 * i + ({self.index(4)})]"
        self.line(f"{place} {self.choices.pick('', '+', '-', '^', '*')}= {self.integer()};")

    def _store_small(self) -> None:
        place = f"smalls[2 * i + ({self.index(2)})]"
        if self.choices.chance(4):
            return self.line(f"{place}{self.choices.pick('++', '--')};")
        self.line(f"{place} {self.choices.pick('', '+', '-', '^', '>>')}= {self.integer()};")

    def _store_float(self) -> None:
        self.line(f"floats[6 * i + ({self.index(2)})] = {self.held(self.float_value())};")

    def _store_near(self) -> None:
        at, near = 2 + self.choices.below(2), self.near_value()
        self.line(f"floats[6 * i + {at}] = {near.text};")
        self.line(f"floats[6 * i + {at + 2}] = {max(near.operations, 1)}.0f * {near.size};")

    def _atomic(self) -> None:
        at = self.choices.below(8)
        value = f"({self._counted}){self.integer(1)}"
        given = f"5, {at + 70}" if _COUNTS[at] == "cas" else value
        self.line(f"kk_atomic_{_COUNTS[at]}(counts[{at}], {given});")

    def _own_atomic(self) -> None:
        """On an element that no other work-item touches, so that the old value can be used."""
        c = self.choices
        place, value = f"outs[4 * i + {2 + c.below(2)}]", self.integer(1)
        operation = c.pick("exchange", "add", "cas", "min", "sub")
        value = f"{self.integer(1)}, {value}" if operation == "cas" else value
        self.line(f"x {c.pick('', '+')}= kk_atomic_{operation}({place}, {value});")

    def _float_atomic(self) -> None:
        if self.scope.rounds > 1:  # the sum must stay exact
            return self._store_float()
        at = self.choices.below(3)
        self.line(f"kk_atomic_{('add', 'min', 'max')[at]}(sums[{at}], {self.held(self.float_value(1, 'float'))});")

    def _return(self) -> None:
        if not self._may_return:
            return self._store()
        self.line(f"if ({self.condition()}) return;")

    def _use_everything(self) -> None:
        """Write all variables to memory, so that nothing is left out because it is not used."""
        scope = self.scope
        integers = [name for name, _ in scope.integers]
        integers += [
            f"{name}.{field}" for name, struct in scope.structs for field, kind in struct.fields if kind != "float"
        ]
        integers += [
            f"{name}.{one}" for name, kind in scope.vectors for one in "xyzw"[: int(kind[-1])] if kind[0] != "f"
        ]
        integers += [
            f"{one.name}[{at}]" for one in scope.arrays if one.is_local and one.element not in FLOATS for at in (0, 1)
        ]
        for at, name in enumerate(integers):
            self.line(f"outs[4 * i + {at % 2}] = outs[4 * i + {at % 2}] * 31 + (int){name};")
        floats = [name for name, _ in scope.floats]
        floats += [f"{name}.{one}" for name, kind in scope.vectors for one in "xyzw"[: int(kind[-1])] if kind[0] == "f"]
        floats += [
            f"{name}.{field}" for name, struct in scope.structs for field, kind in struct.fields if kind == "float"
        ]
        for at, name in enumerate(floats):
            self.line(f"floats[6 * i + {at % 2}] += {name};")


def _integers(random: np.random.Generator, kind: str, count: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Random integers, with the first and last of the type among them."""
    limits = np.iinfo(kind)
    found = random.integers(limits.min, limits.max, count, dtype=kind, endpoint=True)
    special = random.permutation(_SPECIAL)[: count // 2]
    found[: len(special)] = [(int(one) - limits.min) % (limits.max - limits.min + 1) + limits.min for one in special]
    return found
