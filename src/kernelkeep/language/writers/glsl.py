"""GLSL 4.30 compute shaders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from ..tree import (
    BuiltinCall,
    Case,
    Construct,
    Declare,
    Expression,
    Function,
    Literal,
    Module,
    Switch,
    Variable,
)
from ..types import (
    BOOL,
    F2,
    F4,
    F8,
    I1,
    I2,
    I4,
    I8,
    U1,
    U2,
    U4,
    U8,
    VOID,
    Array,
    Buffer,
    Scalar,
    StructType,
    Type,
    Vector,
)
from .base import Entry
from .bindings import BindingWriter, element_of, is_small
from .effects import root_of
from .expressions import PRIMARY, SUM, UNARY, Text, converted
from .glsl_functions import DOUBLE_FUNCTIONS, FLOAT_FUNCTIONS, HELPERS, helper_text

_POSITIONS = {
    "kk_global_id": "gl_GlobalInvocationID{0}", "kk_local_id": "gl_LocalInvocationID{0}", "kk_group_id": "gl_WorkGroupID{0}",
    "kk_group_size": "gl_WorkGroupSize{0}", "kk_group_count": "gl_NumWorkGroups{0}",
    "kk_global_size": "gl_WorkGroupSize{0} * gl_NumWorkGroups{0}",
}  # fmt: skip
_ATOMICS = {"add": "Add", "sub": "Add", "min": "Min", "max": "Max", "and": "And", "or": "Or", "xor": "Xor",
            "exchange": "Exchange", "cas": "CompSwap"}  # fmt: skip
_FLOAT_ATOMICS = {"add": "seen + v", "sub": "seen - v", "min": "min(seen, v)", "max": "max(seen, v)", "exchange": "v"}
_TO_INTEGER = {
    I4: "int kk_to_int({0} x) {{\n"
    "    return x >= 2147483648.0{1} ? 2147483647 : x > -2147483648.0{1} ? int(x) : isnan(x) ? 0 : -2147483647 - 1;\n}}",
    U4: "uint kk_to_uint({0} x) {{ return x >= 4294967296.0{1} ? 4294967295u : x > 0.0{1} ? uint(x) : 0u; }}",
    I8: "int64_t kk_to_long({0} x) {{\n    return x >= 9223372036854775808.0{1} ? 9223372036854775807l"
    " : x > -9223372036854775808.0{1} ? int64_t(x) : isnan(x) ? 0l : -9223372036854775807l - 1l;\n}}",
    U8: "uint64_t kk_to_ulong({0} x) {{ return x >= 18446744073709551616.0{1} ? 18446744073709551615ul"
    " : x > 0.0{1} ? uint64_t(x) : 0ul; }}",
}  # fmt: skip


class GlslWriter(BindingWriter):
    """Writes GLSL. A half is kept in a float, rounded after each operation.

    `native_float_atomics`: the device has GL_NV_shader_atomic_float, so that adding and exchanging floats need no loop.
    `nonnegative_remainders`: no operand of `%` is negative, so that the driver's own, undefined for these, can be used.
    """

    title = "GLSL"
    types: ClassVar[Mapping[Scalar, str]] = {
        BOOL: "bool", I1: "int", U1: "int", I2: "int", U2: "int", I4: "int", U4: "uint", I8: "int64_t", U8: "uint64_t",
        F2: "float", F4: "float", F8: "double",
    }  # fmt: skip
    suffixes: ClassVar[dict[Scalar, str]] = {U4: "u", I8: "l", U8: "ul"}
    double_suffix = "lf"
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
        self._extensions: dict[str, None] = {}
        self._given_names: dict[Variable, str] = {}
        self.nonnegative_remainders = nonnegative_remainders
        if native_float_atomics:
            self.float_atomics = frozenset(  # type: ignore[misc]
                ("kk_atomic_add", "kk_atomic_sub", "kk_atomic_exchange")
            )

    # --- the module

    def head(self) -> None:
        self.line("#version 430")
        super().head()
        for extension in self._extensions:
            self.line(f"#extension {extension} : require")
        x, y, z = self.group
        self.line(f"layout(local_size_x = {x}, local_size_y = {y}, local_size_z = {z}) in;")

    def type_name(self, kind: Type) -> str:
        if kind is I8 or kind is U8:
            self._extensions["GL_ARB_gpu_shader_int64"] = None
        if isinstance(kind, Array):
            sizes, element = "", kind
            while isinstance(element, Array):
                sizes, element = f"{sizes}[{element.length}]", element.element  # type: ignore[assignment]
            return f"{self.type_name(element)}{sizes}"
        return super().type_name(kind)

    def vector_name(self, kind: Vector) -> str:
        return f"{ {F4: '', I4: 'i', U4: 'u'}[kind.element] }vec{kind.length}"

    def bindings(self) -> None:
        binding = 0
        kernel = self.module.kernel
        scalars = []
        for one in kernel.parameters:
            if not isinstance(one.type, Buffer):
                name = self._given(one) if one in kernel.changed else self.variable(one)
                scalars.append((one, name))
                continue
            name = self.variable(one)
            readonly = "readonly " if one.type.access == "r" else ""
            kind = "uint" if self.is_packed(one) or self.is_bits(one) else self.type_name(one.type.element)
            self.line(
                f"layout(std430, binding = {binding}) {readonly}buffer kk_block_{name.strip('_')} {{ {kind} {name}[]; }};"
            )
            binding += 1
        if scalars:
            # A block, not loose uniforms: two threads that launch one program would overwrite each other's.
            members = " ".join(f"{self.type_name(one.type)} {name};" for one, name in scalars)
            self.line(f"layout(std140, binding = 0) uniform kk_scalars {{ {members} }};")
        for one in self.shared:
            self.line(f"shared {self.declared(one)};")

    def _given(self, scalar: Variable) -> str:
        """The name of a scalar as it is passed, where the kernel changes its own copy."""
        if scalar not in self._given_names:
            self._given_names[scalar] = self.names.new(f"{scalar.name}_given")
        return self._given_names[scalar]

    def kernel(self) -> None:
        kernel = self.module.kernel
        start = self.section(lambda: self.block(kernel.body))
        self.line("void main() {")
        for one in kernel.parameters:
            if one in kernel.changed and not isinstance(one.type, Buffer):
                self.line(f"    {self.type_name(one.type)} {self.variable(one)} = {self._given(one)};")
        self.lines += start[0]
        self.places += start[1]
        self.line("}")

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

    def declare(self, variable: Variable, value: Expression | None) -> None:
        if variable.space != "shared":
            super().declare(variable, value)

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

    def switch(self, s: Switch) -> None:
        if s.value.type in (I4, U4):
            return super().switch(s)
        # GLSL switches on 32 bits only, so the cases are numbered.
        value = self.x(self.keep(s.value))
        numbers: dict[int, int] = {}
        for case in s.cases:
            for one in case.values:
                numbers[one] = len(numbers)
        chosen = "".join(f"{value} == {self.number(one, s.value.type)[0]} ? {at} : " for one, at in numbers.items())
        self.line(f"switch ({chosen}-1) {{")
        for case in s.cases:
            values = tuple(numbers[one] for one in case.values)
            self.case(Case(case.at, values, case.is_default, case.body, case.falls_through), Literal(s.at, I4, 0))
        self.line("}")

    # --- numbers

    def integer(self, value: int, kind: Scalar) -> Text:
        suffix = self.suffixes.get(kind, "")
        if kind is I8 or kind is U8:
            self.type_name(kind)
        if kind.signed and kind.size >= 4 and value == -(1 << (8 * kind.size - 1)):
            return f"{value + 1}{suffix} - 1{suffix}", SUM
        return f"{value}{suffix}", PRIMARY if value >= 0 else UNARY

    def not_finite(self, value: float, kind: Scalar) -> Text:
        sign = value < 0
        if kind is F8:
            bits = "7ff80000" if math.isnan(value) else "fff00000" if sign else "7ff00000"
            return f"packDouble2x32(uvec2(0u, 0x{bits}u))", PRIMARY
        bits = "7fc00000" if math.isnan(value) else "ff800000" if sign else "7f800000"
        return f"uintBitsToFloat(0x{bits}u)", PRIMARY

    def round_to_half(self, text: str) -> Text:
        body = "{ return unpackHalf2x16(packHalf2x16(vec2(x, 0.0))).x; }"
        return f"{self.helper('kk_round_to_half', f'float kk_round_to_half(float x) {body}')}({text})", PRIMARY

    def cast(self, operand: Expression, target: Scalar) -> Text:
        source = operand.type
        assert isinstance(source, Scalar)
        if is_small(target):
            return self.narrowed(operand, target)
        if self.type_name(source) == self.type_name(target):
            return self.x(operand, PRIMARY), PRIMARY
        if target is I8 and source.kind == "integer" and self.type_name(source) == "int":
            # Mesa 22 takes `int64_t(i) < 0` for false, whatever i is.
            self.type_name(target)
            self.helper("kk_long", "int64_t kk_long(int x) { return packInt2x32(ivec2(x, x >> 31)); }")
            return f"kk_long({self.x(operand)})", PRIMARY
        return super().cast(operand, target)

    def narrowed(self, operand: Expression, target: Scalar) -> Text:
        """The low bits of an integer, in an int."""
        if self.is_within(operand, target):
            return self.x(converted(operand, I4), PRIMARY), PRIMARY
        bits = 8 * target.size
        if target.signed:
            return f"bitfieldExtract({self.x(converted(operand, I4))}, 0, {bits})", PRIMARY
        mask = (1 << bits) - 1
        return self.infix("&", converted(operand, I4), Literal(operand.at, I4, mask))

    def float_to_integer(self, text: str, source: Scalar, target: Scalar) -> Text:
        wide = target if target.size >= 4 else I4
        kind = "double" if source is F8 else "float"
        name = _TO_INTEGER[wide].partition("(")[0].split()[1]
        self.type_name(wide)
        self.helper(f"{name} {kind}", _TO_INTEGER[wide].format(kind, "lf" if source is F8 else ""))
        if wide is target:
            return f"{name}({text})", PRIMARY
        bits = 8 * target.size
        least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if target.signed else (0, (1 << bits) - 1)
        return f"clamp({name}({text}), {least}, {most})", PRIMARY

    def vector_cast(self, operand: Expression, target: Vector) -> Text:
        assert isinstance(operand.type, Vector)
        if operand.type.element is not F4:
            return f"{self.type_name(target)}({self.x(operand)})", PRIMARY
        parts = ", ".join(self.float_to_integer(f"v.{one}", F4, target.element)[0] for one in "xyzw"[: target.length])
        result, source = self.type_name(target), self.type_name(operand.type)
        name = f"kk_to_{result}"
        self.helper(name, f"{result} {name}({source} v) {{ return {result}({parts}); }}")
        return f"{name}({self.x(operand)})", PRIMARY

    def construct(self, e: Construct) -> Text:
        return f"{self.type_name(e.type)}({self.list_of(e.arguments)})", PRIMARY

    def shift_amount(self, amount: Expression, kind: Type) -> Expression:
        found = super().shift_amount(amount, kind)
        return (
            converted(found, I4) if found.type in (I8, U8) else found
        )  # no operand of 64 bits is allowed on the right

    def remainder(self, kind: Type) -> str:
        text = self.type_name(kind)
        self.helper(f"kk_remainder {text}", f"{text} kk_remainder({text} a, {text} b) {{ return a - a / b * b; }}")
        return "kk_remainder"

    # --- arrays

    def loaded(self, e: Expression) -> Text:
        root = root_of(e)
        assert root is not None
        root = self.array(root)
        if not self.is_packed(root):
            return f"uintBitsToFloat({self.place_of(e)})", PRIMARY
        kind = element_of(root.type)
        assert isinstance(kind, Scalar)
        bits, words, shift = _packing(kind)
        name, array = f"kk_load_{self.variable(root).strip('_')}", self.variable(root)
        word = f"{array}[i >> {words}], (i & {shift}) * {bits}, {bits})"
        cut = f"bitfieldExtract(int({word.replace(']', '])', 1)}" if kind.signed else f"int(bitfieldExtract({word})"
        self.helper(name, f"int {name}(int i) {{ return {cut}; }}")
        return self.element_call(name, e), PRIMARY

    def stored(self, target: Expression, value: Expression) -> Text:
        root = root_of(target)
        assert root is not None
        root = self.array(root)
        if not self.is_packed(root):
            return f"{self.place_of(target)} = floatBitsToUint({self.x(value)})", 2
        kind = element_of(root.type)
        assert isinstance(kind, Scalar)
        bits, words, shift = _packing(kind)
        array = self.variable(root)
        name = f"kk_store_{array.strip('_')}"
        self.helper(
            name,
            f"""void {name}(int i, int value) {{
    const int shift = (i & {shift}) * {bits};
    const uint mask = {(1 << bits) - 1}u << shift;
    const uint bits = (uint(value) << shift) & mask;
    uint old = {array}[i >> {words}];
    for (;;) {{  // other work-items may write to the same word
        const uint seen = atomicCompSwap({array}[i >> {words}], old, (old & ~mask) | bits);
        if (seen == old) break;
        old = seen;
    }}
}}""",
        )
        return self.element_call(name, target, self.x(value, 2)), PRIMARY

    def four_helper(self, rule: str, root: Variable) -> str:
        array = self.variable(root)
        bits = self.is_bits(root)
        elements = [f"{array}[i{f' + {at}' if at else ''}]" for at in range(4)]
        if rule == "load4":
            parts = ", ".join(f"uintBitsToFloat({one})" if bits else one for one in elements)
            name = f"kk_load4_{array.strip('_')}"
            return self.helper(name, f"vec4 {name}(int i) {{ return vec4({parts}); }}")
        name = f"kk_store4_{array.strip('_')}"
        values = [f"floatBitsToUint(v.{one})" if bits else f"v.{one}" for one in "xyzw"]
        body = "".join(f"    {one} = {value};\n" for one, value in zip(elements, values, strict=True))
        return self.helper(name, f"void {name}(int i, vec4 v) {{\n{body}}}")

    # --- built-ins

    def position(self, name: str, dimension: Expression) -> Text:
        at = f".{'xyz'[int(dimension.value)]}" if isinstance(dimension, Literal) else f"[{self.x(dimension)}]"
        if name == "kk_global_size" and not self.simple(dimension):
            text = _POSITIONS[name].format("[d]")
            return f"{self.helper(name, f'int {name}(int d) {{ return int({text}); }}')}({at[1:-1]})", PRIMARY
        return f"int({_POSITIONS[name].format(at)})", PRIMARY

    def atomic(self, e: BuiltinCall) -> Text:
        element, *values = e.arguments
        operation = e.builtin.name.removeprefix("kk_atomic_")
        root = root_of(element)
        assert root is not None
        root = self.array(root)
        if operation in ("load", "store"):
            return self._ordered_access(element, values, is_bits=self.is_bits(root))
        if self.is_bits(root):
            return self.element_call(
                self._float_atomic(operation, element, root), element, self.x(values[0], 2)
            ), PRIMARY
        if e.type is F4:
            self._extensions["GL_NV_shader_atomic_float"] = None
        place = self.place_of(element)
        given = ", ".join(self.x(value, 2) for value in values)
        if operation == "sub":
            given = f"-{self.x(values[0], UNARY)}" if given[0] != "-" else f"-({given})"
        return f"atomic{_ATOMICS[operation]}({place}, {given})", PRIMARY

    def _ordered_access(self, element: Expression, values: list[Expression], *, is_bits: bool) -> Text:
        place = self.place_of(element)
        if values:
            value = self.x(values[0])
            return f"atomicExchange({place}, {f'floatBitsToUint({value})' if is_bits else value})", PRIMARY
        text = f"atomicOr({place}, {'0' if element.type is I4 else '0u'})"
        return (f"uintBitsToFloat({text})" if is_bits else text), PRIMARY

    def _float_atomic(self, operation: str, element: Expression, root: Variable) -> str:
        array = self.variable(root)
        name = f"kk_atomic_{operation}_{array.strip('_')}"
        indices = [f"i{at or ''}" for at in range(len(self.indices(element)))]
        place = array + "".join(f"[{one}]" for one in indices)
        parameters = "".join(f"int {one}, " for one in indices)
        return self.helper(
            name,
            f"""float {name}({parameters}float v) {{
    uint old = {place};
    for (;;) {{
        const float seen = uintBitsToFloat(old);
        const uint found = atomicCompSwap({place}, old, floatBitsToUint({_FLOAT_ATOMICS[operation]}));
        if (found == old) return seen;
        old = found;
    }}
}}""",
        )

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
        if isinstance(kind, Vector):
            vector = self.type_name(kind)
            names = "abc"[: HELPERS[name].partition(")")[0].partition("(")[2].count("T ")]
            parts = ", ".join(f"{own}({', '.join(f'{one}.{at}' for one in names)})" for at in "xyzw"[: kind.length])
            head = f"{vector} {own}({', '.join(f'{vector} {one}' for one in names)})"
            self.helper(f"{own} {vector}", f"{head} {{ return {vector}({parts}); }}")
        return own

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


def _packing(kind: Scalar) -> tuple[int, int, int]:
    """Of a small type: its bits, the shift from an element to its word, and the mask of its place there."""
    return (8, 2, 3) if kind.size == 1 else (16, 1, 1)
