"""GLSL 4.30 compute shaders."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..tree import (
    BuiltinCall,
    Declare,
    DoWhile,
    Expression,
    For,
    Function,
    Literal,
    Module,
    Variable,
    While,
    walk,
)
from ..types import (
    F2,
    F4,
    F8,
    I4,
    I8,
    U4,
    U8,
    VOID,
    Array,
    Buffer,
    StructType,
    Type,
    Vector,
)
from .base import Entry
from .glsl_functions import DOUBLE_FUNCTIONS, FLOAT_FUNCTIONS, HELPERS, helper_text
from .glsl_statements import GlslStatements
from .texts import PRIMARY, SUM, Text, converted

_POSITIONS = {
    "kk_global_id": "gl_GlobalInvocationID{0}", "kk_local_id": "gl_LocalInvocationID{0}", "kk_group_id": "gl_WorkGroupID{0}",
    "kk_group_size": "gl_WorkGroupSize{0}", "kk_group_count": "gl_NumWorkGroups{0}",
    "kk_global_size": "gl_WorkGroupSize{0} * gl_NumWorkGroups{0}",
}  # fmt: skip


class GlslWriter(GlslStatements):
    """Writes GLSL. A half is kept in a float, rounded after each operation.

    `native_float_atomics`: the device has GL_NV_shader_atomic_float, so that adding and exchanging floats need no loop.
    `nonnegative_remainders`: no operand of `%` is negative, so that the driver's own, undefined for these, can be used.
    """

    title = "GLSL"
    target = "glsl"

    def __init__(
        self,
        module: Module,
        entry: Entry,
        calls: Mapping[str, str] | None = None,
        *,
        native_float_atomics: bool = False,
        nonnegative_remainders: bool = False,
    ) -> None:
        super().__init__(module, entry, calls)
        self.extensions: dict[str, None] = {}
        self.owners: dict[str, Variable] = {}
        self.nonnegative_remainders = nonnegative_remainders
        if native_float_atomics:
            self.float_atomics = frozenset(  # type: ignore[misc]
                ("kk_atomic_add", "kk_atomic_sub", "kk_atomic_exchange")
            )

    # --- the module

    def head(self) -> None:
        self.line("#version 430")
        super().head()
        for extension in self.extensions:
            self.line(f"#extension {extension} : require")
        x, y, z = self.group
        self.line(f"layout(local_size_x = {x}, local_size_y = {y}, local_size_z = {z}) in;")

    def type_name(self, kind: Type) -> str:
        if kind is I8 or kind is U8:
            self.extensions["GL_ARB_gpu_shader_int64"] = None
        if isinstance(kind, Array):
            sizes, element = "", kind
            while isinstance(element, Array):
                sizes, element = f"{sizes}[{element.length}]", element.element  # type: ignore[assignment]
            return f"{self.type_name(element)}{sizes}"
        return super().type_name(kind)

    def bindings(self) -> None:
        binding = 0
        kernel = self.module.kernel
        scalars = []
        for one in kernel.parameters:
            if not isinstance(one.type, Buffer):
                name = self._given(one) if one in kernel.changed else self.variable(one)
                scalars.append((one, name))
                continue
            name, block = self.variable(one), self.name_for("kk_block", one)
            readonly = "readonly " if one.type.access == "r" else ""
            kind = "uint" if self.is_packed(one) or self.is_bits(one) else self.type_name(one.type.element)
            self.line(f"layout(std430, binding = {binding}) {readonly}buffer {block} {{ {kind} {name}[]; }};")
            binding += 1
        if scalars:
            # A block, not loose uniforms: two threads that launch one program would overwrite each other's.
            members = " ".join(f"{self.type_name(one.type)} {name};" for one, name in scalars)
            self.line(f"layout(std140, binding = 0) uniform kk_scalars {{ {members} }};")
        for one in self.shared:
            self.line(f"shared {self.declared(one)};")

    def _given(self, scalar: Variable) -> str:
        """The name of a scalar as it is passed, where the kernel changes its own copy."""
        return self.names.derived(f"{scalar.name}_given")

    def kernel(self) -> None:
        kernel = self.module.kernel
        start = self.section(lambda: self.block(kernel.body))
        self.line("void main() {")
        if self._may_loop_beyond_group():
            items = math.prod(self.group)
            self.line(f"    if (gl_LocalInvocationIndex >= {items}u) return;  // llvmpipe runs up to 15 more")
        for one in kernel.parameters:
            if one in kernel.changed and not isinstance(one.type, Buffer):
                self.line(f"    {self.type_name(one.type)} {self.variable(one)} = {self._given(one)};")
        self.lines += start[0]
        self.places += start[1]
        self.line("}")

    def _may_loop_beyond_group(self) -> bool:
        """Whether llvmpipe's idle work-items may use up its 65,535 rounds.

        It runs 8 or 16 at a time, and those beyond the group read 0 wherever they read, so that a loop which waits for another
        value does not end for them. They cannot leave a kernel with barriers.
        """
        if math.prod(self.group) % 16 == 0 or self.module.kernel.has_barrier:
            return False
        functions = (*self.module.functions, self.module.kernel)
        return any(isinstance(node, (For, While, DoWhile)) for one in functions for node in walk(one.body))

    def constant(self, constant: Declare) -> None:
        self.line(f"{self.declaration(constant.variable, constant.value)};")

    def struct(self, struct: StructType) -> None:
        self.line(f"struct {self.type_name(struct)} {{")
        for name, kind in struct.fields:
            field = Variable(name, kind, "local")
            self.variables[field] = self.field_name(struct, name)
            self.line(f"    {self.declared(field)};")
        self.line("};")

    def declared(self, variable: Variable) -> str:
        kind, sizes = variable.type, ""
        while isinstance(kind, Array):
            sizes += f"[{kind.length}]"
            kind = kind.element
        word = "uint" if self.is_bits(variable) else self.type_name(kind)
        return f"{word} {self.variable(variable)}{sizes}"

    def declaration(self, variable: Variable, value: Expression | None) -> str:
        start = f" = {self.x(value, 2)}" if value is not None else ""
        const = "const " if variable.is_const and value is not None else ""
        return f"{const}{self.declared(variable)}{start}"

    def function_head(self, function: Function, name: str) -> str:
        parameters: list[str] = []
        seen: set[Variable] = set()
        for one in function.parameters:
            if not isinstance(one.type, Buffer):
                parameters.append(f"{self.type_name(one.type)} {self.variable(one)}")
                continue
            if (own := self.arrays[one]).space == "parameter" and own not in seen:
                seen.add(own)
                parameters.append(f"{'in' if one.type.access == 'r' else 'inout'} {self.declared(own)}")
            if one in self.offsets:
                parameters.append(f"int {self.variable(self.offsets[one])}")
        result = "void" if function.result is VOID else self.type_name(function.result)
        return f"{result} {name}({', '.join(parameters)})"

    def shift_amount(self, amount: Expression, kind: Type) -> Expression:
        found = super().shift_amount(amount, kind)
        return (
            converted(found, I4) if found.type in (I8, U8) else found
        )  # no operand of 64 bits is allowed on the right

    # --- built-ins

    def position(self, name: str, dimension: Expression) -> Text:
        at = f".{'xyz'[int(dimension.value)]}" if isinstance(dimension, Literal) else f"[{self.x(dimension)}]"
        if name == "kk_global_size" and not self.simple(dimension):
            text = _POSITIONS[name].format("[d]")
            return f"{self.helper(name, f'int {name}(int d) {{ return int({text}); }}')}({at[1:-1]})", PRIMARY
        return f"int({_POSITIONS[name].format(at)})", PRIMARY

    def function_call(self, e: BuiltinCall) -> Text:
        name = e.builtin.name
        if name == "kk_barrier":
            return "memoryBarrierShared(); memoryBarrierBuffer(); barrier()", PRIMARY
        if name == "kk_fence":
            return "memoryBarrierBuffer()", PRIMARY
        first = e.arguments[0].type
        given = self.list_of(e.arguments)
        if e.builtin.rule == "bits":
            function = {
                (F4, "as_int"): "floatBitsToInt", (F4, "as_uint"): "floatBitsToUint", (I4, "as_float"): "intBitsToFloat",
                (U4, "as_float"): "uintBitsToFloat", (I4, "as_uint"): "uint", (U4, "as_int"): "int",
            }[first, name]  # type: ignore[index]  # fmt: skip
            return f"{function}({given})", PRIMARY
        if e.builtin.rule == "integer":
            return self._counted_bits(name, given, first)
        if e.builtin.rule in ("reduce", "direction", "number") and not (name == "abs" and first is F8):
            return f"{name}({given})", PRIMARY
        element = first.element if isinstance(first, Vector) else first
        known = DOUBLE_FUNCTIONS if element is F8 else FLOAT_FUNCTIONS
        if name not in known:
            raise self.unsupported("float64", e, f"{self.title} has no {name} of doubles")
        function = known[name] or self._helper_function(name, first)
        text = f"{function}({given})"
        return self.round_to_half(text) if e.type is F2 else (text, PRIMARY)

    def _helper_function(self, name: str, kind: Type) -> str:
        """A function that GLSL lacks. Vectors get it element by element."""
        element = kind.element if isinstance(kind, Vector) else kind
        text = self.type_name(element)
        own = f"kk_{name}"
        self.helper(f"{own} {text}", helper_text(name, text))
        count = HELPERS[name].partition(")")[0].partition("(")[2].count("T ")
        return self.by_element(own, count, kind) if isinstance(kind, Vector) else own

    def _counted_bits(self, name: str, given: str, kind: Type) -> Text:
        result = self.type_name(kind)
        if kind in (I4, U4):
            text = f"bitCount({given})" if name == "popcount" else f"31 - findMSB(uint({given}))"
            if kind is U4:
                return f"uint({text})", PRIMARY
            return text, PRIMARY if name == "popcount" else SUM
        own = f"kk_{name}"
        halves = "const uvec2 halves = unpackUint2x32(uint64_t(x));"
        if name == "popcount":
            body = "bitCount(halves.x) + bitCount(halves.y)"
        else:
            body = "halves.y != 0u ? 31 - findMSB(halves.y) : 63 - findMSB(halves.x)"
        self.helper(f"{own} {result}", f"{result} {own}({result} x) {{\n    {halves}\n    return {result}({body});\n}}")
        return f"{own}({given})", PRIMARY
