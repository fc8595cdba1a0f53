"""WGSL, the language of WebGPU.

Buffers are at `@group(0) @binding(0)`, `@binding(1)`, …, in the order of the parameters. The scalars are one uniform struct
behind them, 4 bytes each.
"""

from __future__ import annotations

from ..tree import (
    BuiltinCall,
    Call,
    Declare,
    Expression,
    Function,
    Literal,
    Name,
    Slice,
    Variable,
)
from ..types import F2, VOID, Buffer, StructType, Type, Vector
from .texts import PRIMARY, Text
from .wgsl_arrays import WgslArrays
from .wgsl_constants import is_finite
from .wgsl_functions import FUNCTIONS, HELPERS

_POSITIONS = {
    "kk_global_id": "global_invocation_id", "kk_local_id": "local_invocation_id", "kk_group_id": "workgroup_id",
    "kk_group_count": "num_workgroups",
}  # fmt: skip


class WgslWriter(WgslArrays):
    """Writes WGSL. Assignments and `++` are statements there, so those inside an expression are written before it."""

    title = "WGSL"
    target = "wgsl"

    # --- the module

    def bindings(self) -> None:
        kernel = self.module.kernel
        buffers = [one for one in kernel.parameters if isinstance(one.type, Buffer)]
        scalars = [one for one in kernel.parameters if not isinstance(one.type, Buffer)]
        for binding, one in enumerate(buffers):
            assert isinstance(one.type, Buffer)
            access = "read" if one.type.access == "r" else "read_write"
            kind = self.stored_type(one, one.type.element)
            self.line(f"@group(0) @binding({binding}) var<storage, {access}> {self.variable(one)}: array<{kind}>;")
        if scalars:
            self.line("struct kk_Scalars {")
            for one in scalars:
                self.line(f"    {self.names.free(one.name)}: {self.type_name(one.type)},")
            self.line("}")
            self.line(f"@group(0) @binding({len(buffers)}) var<uniform> kk_scalars: kk_Scalars;")
        for one in self.shared:
            self.line(f"var<workgroup> {self.variable(one)}: {self.stored_type(one, one.type)};")
        for name in self._private:
            self.line(f"var<private> {name}: vec3<u32>;")

    def variable(self, variable: Variable) -> str:
        if variable.space == "scalar" and variable not in self.module.kernel.changed:
            return f"kk_scalars.{self.names.free(variable.name)}"
        return super().variable(variable)

    def kernel(self) -> None:
        self._positions: dict[str, None] = {}
        self._private: dict[str, None] = {}
        kernel = self.module.kernel
        lines, places = self.section(lambda: self.block(kernel.body))
        x, y, z = self.group
        self.line(f"@compute @workgroup_size({x}, {y}, {z})")
        parameters = []
        for name in {**self._positions, **self._private}:
            own = f"{name}_given" if name in self._private else name
            parameters.append(f"@builtin({_POSITIONS[name]}) {own}: vec3<u32>")
        self.line(f"fn {self.entry.symbol}({', '.join(parameters)}) {{")
        for name in self._private:
            self.line(f"    {name} = {name}_given;")
        for constant in self.module.constants:
            if constant.value is not None and not is_finite(constant.value):
                self.line(f"    {self.variable(constant.variable)} = {self.x(constant.value)};")
        for one in kernel.parameters:
            if one in kernel.changed and one.space == "scalar":
                self.line(f"    var {self.variable(one)} = kk_scalars.{self.names.free(one.name)};")
        self.lines += lines
        self.places += places
        self.line("}")

    def constant(self, constant: Declare) -> None:
        assert constant.value is not None
        name = self.variable(constant.variable)
        if is_finite(constant.value):
            self.line(f"const {name} = {self.x(constant.value)};")
        else:  # the kernel sets it
            self.line(f"var<private> {name}: {self.type_name(constant.variable.type)};")

    def struct(self, struct: StructType) -> None:
        self.line(f"struct {self.type_name(struct)} {{")
        for name, kind in struct.fields:
            self.line(f"    {self.field_name(struct, name)}: {self.type_name(kind)},")
        self.line("}")

    def function_head(self, function: Function, name: str) -> str:
        parameters: list[str] = []
        seen: set[Variable] = set()
        for one in function.parameters:
            if not isinstance(one.type, Buffer):
                own = self._given(one) if one in function.changed else self.variable(one)
                parameters.append(f"{own}: {self.type_name(one.type)}")
                continue
            if (array := self.arrays[one]).space == "parameter" and array not in seen:
                seen.add(array)
                parameters.append(f"{self.variable(array)}: ptr<function, {self.type_name(array.type)}>")
            if one in self.offsets:
                parameters.append(f"{self.variable(self.offsets[one])}: i32")
        result = "" if function.result is VOID else f" -> {self.type_name(function.result)}"
        return f"fn {name}({', '.join(parameters)}){result}"

    def function_start(self, function: Function) -> None:
        for one in function.parameters:
            if one in function.changed and not isinstance(one.type, Buffer):
                self.line(f"    var {self.variable(one)} = {self._given(one)};")

    def _given(self, parameter: Variable) -> str:
        """The name of a parameter as it is passed, where the function changes its own copy."""
        return self.names.derived(f"{parameter.name}_given")

    def call(self, e: Call) -> Text:
        name, arguments = self.specialised(e.function, e.arguments)
        given = []
        taken = {id(one.base if isinstance(one, Slice) else one) for one in _arrays(e)}
        for one in arguments:
            if id(one) in taken and isinstance(one, Name):
                array = self.array(one.variable)
                given.append(self.variable(array) if array.space == "parameter" else f"&{self.variable(array)}")
            else:
                given.append(self.list_of((one,)))
        return f"{name}({', '.join(given)})", PRIMARY

    def name(self, e: Name) -> Text:
        if e.variable.space == "shared" and self.is_special(e):
            return self.loaded(e)
        return self.place_of(e), PRIMARY

    def place_of(self, e: Expression) -> str:
        if not isinstance(e, Name):
            return super().place_of(e)
        array = self.array(e.variable)
        if array is not e.variable and array.space == "parameter":
            return f"(*{self.variable(array)})"
        return self.variable(array)

    # --- built-ins

    def position(self, name: str, dimension: Expression) -> Text:
        at = f".{'xyz'[int(dimension.value)]}" if isinstance(dimension, Literal) else f"[{self.x(dimension)}]"
        x, y, z = self.group
        size = f"vec3<u32>({x}u, {y}u, {z}u)"
        if name == "kk_group_size":
            if isinstance(dimension, Literal):
                return str(self.group[int(dimension.value)]), PRIMARY
            return f"i32({size}{at})", PRIMARY
        factor = ""
        if name == "kk_global_size":
            name = "kk_group_count"
            factor = f" * {self.group[int(dimension.value)]}u" if isinstance(dimension, Literal) else f" * {size}{at}"
        if self._in_helper:
            self._private[name] = None
        else:
            self._positions[name] = None
        return f"i32({name}{at}{factor})", PRIMARY

    _in_helper = False

    def function(self, function: Function, key: object, name: str, arrays: dict[Variable, Variable]) -> str:
        before, self._in_helper = self._in_helper, True
        found = super().function(function, key, name, arrays)
        self._in_helper = before
        return found

    def function_call(self, e: BuiltinCall) -> Text:
        name = e.builtin.name
        if name == "kk_barrier":
            return "storageBarrier(); workgroupBarrier()", PRIMARY
        if name == "kk_fence":
            raise self.unsupported("fences", e, "WGSL has no fence between work-items of different groups")
        given = self.arguments(e.arguments)
        first = e.arguments[0].type
        if e.builtin.rule == "bits":
            return f"bitcast<{self.type_name(e.type)}>({given})", PRIMARY
        if name == "abs" or e.builtin.rule in ("reduce", "direction"):
            return f"{name}({given})", PRIMARY
        function = FUNCTIONS[name] or self._helper_function(name, first)
        text = f"{function}({given})"
        return self.round_to_half(text) if e.type is F2 else (text, PRIMARY)

    def _helper_function(self, name: str, kind: Type) -> str:
        """A function that WGSL lacks. Vectors get it element by element."""
        own = f"kk_{name}"
        self.helper(own, HELPERS[name])
        count = HELPERS[name].partition("{")[0].count(": f32")
        return self.by_element(own, count, kind) if isinstance(kind, Vector) else own


def _arrays(e: Call) -> list[Expression]:
    """The arguments that are given by reference."""
    pairs = zip(e.function.parameters, e.arguments, strict=True)
    return [argument for parameter, argument in pairs if isinstance(parameter.type, Buffer)]
