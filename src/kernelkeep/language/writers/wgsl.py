"""WGSL, the language of WebGPU.

Buffers are at `@group(0) @binding(0)`, `@binding(1)`, …, in the order of the parameters. The scalars are one uniform struct
behind them, 4 bytes each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from ..checker.constants import constant_value
from ..tree import (
    Assign,
    Binary,
    Block,
    Break,
    BuiltinCall,
    Call,
    Case,
    Comma,
    Declare,
    DoWhile,
    Evaluate,
    Expression,
    For,
    Function,
    Increment,
    Index,
    Literal,
    Name,
    Slice,
    Switch,
    Swizzle,
    Ternary,
    Unary,
    Update,
    Variable,
    walk,
)
from ..types import BOOL, F2, F4, I1, I2, I4, U1, U2, U4, VOID, Array, Buffer, Scalar, StructType, Type, Vector, wrapped
from .bindings import BindingWriter, element_of, is_small
from .effects import root_of
from .expressions import ASSIGNMENT, EQUALITY, LEVELS, PRIMARY, RELATION, SHIFT, SUM, UNARY, Text, converted
from .numbers import folded, literal
from .wgsl_functions import FUNCTIONS, HELPERS, TO_INTEGER

_POSITIONS = {
    "kk_global_id": "global_invocation_id", "kk_local_id": "local_invocation_id", "kk_group_id": "workgroup_id",
    "kk_group_count": "num_workgroups",
}  # fmt: skip
_ATOMICS = {"add": "Add", "sub": "Sub", "min": "Min", "max": "Max", "and": "And", "or": "Or", "xor": "Xor",
            "exchange": "Exchange"}  # fmt: skip
_FLOAT_ATOMICS = {"add": "seen + v", "sub": "seen - v", "min": "min(seen, v)", "max": "max(seen, v)", "exchange": "v"}


class WgslWriter(BindingWriter):
    """Writes WGSL. Assignments and `++` are statements there, so those inside an expression are written before it."""

    title = "WGSL"
    is_ordered = True
    types: ClassVar[Mapping[Scalar, str]] = {
        BOOL: "bool", I1: "i32", U1: "i32", I2: "i32", U2: "i32", I4: "i32", U4: "u32", F2: "f32", F4: "f32",
    }  # fmt: skip
    float_suffix = "f"
    target = "wgsl"
    forever = "loop {"

    # --- the module

    def type_name(self, kind: Type) -> str:
        if isinstance(kind, Array):
            return f"array<{self.type_name(kind.element)}, {kind.length}>"
        return super().type_name(kind)

    def vector_name(self, kind: Vector) -> str:
        return f"vec{kind.length}<{self.type_name(kind.element)}>"

    def is_atomic(self, root: Variable) -> bool:
        """Whether an array consists of atomics."""
        if root in self.effects.atomics:
            return True
        return self.is_packed(root) and isinstance(root.type, Buffer) and root.type.access != "r"

    def is_special(self, e: Expression) -> bool:
        if super().is_special(e):
            return True
        root = root_of(e) if isinstance(e, (Index, Name)) and isinstance(e.type, Scalar) else None
        return root is not None and self.is_atomic(self.array(root))

    def stored_type(self, root: Variable, kind: Type) -> str:
        """The type of an array's elements in memory."""
        if isinstance(kind, Array):
            return f"array<{self.stored_type(root, kind.element)}, {kind.length}>"
        word = "u32" if self.is_packed(root) or self.is_bits(root) else self.type_name(kind)
        return f"atomic<{word}>" if self.is_atomic(root) else word

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
        for one in kernel.parameters:
            if one in kernel.changed and one.space == "scalar":
                self.line(f"    var {self.variable(one)} = kk_scalars.{self.names.free(one.name)};")
        self.lines += lines
        self.places += places
        self.line("}")

    def constant(self, constant: Declare) -> None:
        assert constant.value is not None
        self.line(f"const {self.variable(constant.variable)} = {self.x(constant.value)};")

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
                own = f"{self.variable(one)}_given" if one in function.changed else self.variable(one)
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
                self.line(f"    var {self.variable(one)} = {self.variable(one)}_given;")

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

    # --- statements

    def declare(self, variable: Variable, value: Expression | None) -> None:
        if variable.space == "shared":
            return
        if value is None:
            self.line(f"var {self.variable(variable)}: {self.type_name(variable.type)};")
            return
        text = self.x(value)
        changes = variable in self.effects.assigned or isinstance(variable.type, Array)
        self.line(f"{'var' if changes else 'let'} {self.variable(variable)} = {text};")

    def evaluate(self, e: Expression) -> None:
        if isinstance(e, (Assign, Update, Increment, Comma, Ternary, Call, BuiltinCall)):
            if isinstance(e, BuiltinCall) and e.builtin.is_pure:
                self.line(f"_ = {self.x(e)};")
            else:
                super().evaluate(e)
        else:
            self.line(f"_ = {self.x(e)};")

    def plain_increment(self, e: Increment) -> bool:
        return super().plain_increment(e) and e.type in (I4, U4)

    def plain_store(self, target: Expression) -> bool:
        return super().plain_store(target) and not (isinstance(target, Swizzle) and len(target.elements) > 1)

    def for_loop(self, s: For) -> None:
        simple_start = len(s.start) <= 1 and not any(self.emits(_value(one)) for one in s.start)
        if not simple_start:
            self.line("{")
            self.depth += 1
        if not simple_start:
            for one in s.start:
                self.statement(one)
        start = ""
        if simple_start and s.start:
            lines, _ = self.section(lambda: self.statement(s.start[0]))
            start = lines[0].strip().rstrip(";")
        step = [] if s.step is None else self.section(lambda: self.evaluate(s.step))[0]  # type: ignore[arg-type]
        condition = "" if s.condition is None or self.emits(s.condition) else f" {self.x(s.condition)}"
        if len(step) <= 1:
            text = f" {step[0].strip().rstrip(';')}" if step else ""
            self.line(f"for ({start};{condition};{text}) {{")
            if s.condition is not None and not condition:
                self.leave_unless(s.condition)
            self.know_counter(s)
            self.block(s.body)
        else:
            if start:
                self.line("{")
                self.depth += 1
                self.line(f"{start};")
            self.line("loop {")
            if s.condition is not None:
                self.leave_unless(s.condition)
            self.block(s.body)
            self.depth += 1
            self.line("continuing {")
            for text in step:
                self.line(f"    {text}")
            self.line("}")
            self.depth -= 1
            if start:
                self.line("}")
                self.depth -= 1
        self.line("}")
        if not simple_start:
            self.depth -= 1
            self.line("}")

    def do_loop(self, s: DoWhile) -> None:
        self.line("loop {")
        self.block(s.body)
        self.depth += 1
        self.line("continuing {")
        self.depth += 1
        self.line(f"break if {self.x(Unary(s.at, BOOL, '!', s.condition))};")
        self.depth -= 1
        self.line("}")
        self.depth -= 1
        self.line("}")

    def switch(self, s: Switch) -> None:
        self.line(f"switch ({self.x(s.value)}) {{")
        for at, case in enumerate(s.cases):
            last = at
            while s.cases[last].falls_through:
                last += 1
            self._case(case, s.cases[at : last + 1], s.value.type)
        if not any(case.is_default for case in s.cases):
            self.line("    default: {}")
        self.line("}")

    def _case(self, case: Case, bodies: tuple[Case, ...], kind: Type) -> None:
        """A case, and those that it falls through to: WGSL has no fall-through, so these are written again."""
        labels = [self.number(one, kind)[0] for one in case.values] + (["default"] if case.is_default else [])
        self.place = case.at.line or self.place
        self.depth += 1
        self.line("default: {" if labels == ["default"] else f"case {', '.join(labels)}: {{")
        for one in bodies:
            statements = one.body.statements
            if statements and isinstance(statements[-1], Break):
                statements = statements[:-1]
            body = Block(one.body.at, statements)
            if len(bodies) > 1 and any(isinstance(inner, Declare) for inner in statements):
                self.depth += 1
                self.statement(body)
                self.depth -= 1
            else:
                self.block(body)
        self.line("}")
        self.depth -= 1

    # --- `<` and `>` that would be read as the brackets of a template

    def needed(self, operator: str, operand: Expression, level: int) -> int:
        return SUM if LEVELS[operator] in (RELATION, EQUALITY) else super().needed(operator, operand, level)

    def list_of(self, expressions: tuple[Expression, ...]) -> str:
        texts = [self.x(one, SHIFT + 1 if isinstance(one, Binary) else ASSIGNMENT) for one in expressions]
        if texts and all(one.type is I4 and folded(one) is not None for one in expressions):
            texts[0] += "i" if texts[0][-1].isdigit() else ""  # else the call is of no type in particular
        return ", ".join(texts)

    # --- what cannot be an expression

    def needs_statement(self, e: Expression) -> bool:
        if isinstance(e, (Assign, Update, Increment, Comma)):
            return True
        if isinstance(e, Ternary):
            return isinstance(e.type, StructType) or any(map(_has_call, (e.then, e.otherwise)))
        return super().needs_statement(e)

    def ternary(self, e: Ternary) -> Text:
        condition, then, otherwise = self.x(e.condition), self.list_of((e.then,)), self.list_of((e.otherwise,))
        return f"select({otherwise}, {then}, {condition})", PRIMARY

    # --- numbers

    def integer(self, value: int, kind: Scalar) -> Text:
        if kind.size == 8:
            raise self.unsupported(*self.lacking(kind))
        if kind is I4 and value == -(1 << 31):
            return "i32(-2147483648)", PRIMARY
        return f"{value}{'u' if kind is U4 else ''}", PRIMARY if value >= 0 else UNARY

    def not_finite(self, value: float, kind: Scalar) -> Text:
        # A constant that is not finite is refused, so the bits are in a variable.
        bits = "7fc00000" if math.isnan(value) else "ff800000" if value < 0 else "7f800000"
        name = "kk_nan" if math.isnan(value) else "kk_minus_infinity" if value < 0 else "kk_infinity"
        body = f"    var bits = 0x{bits}u;\n    return bitcast<f32>(bits);"
        return f"{self.helper(name, f'fn {name}() -> f32 {{{chr(10)}{body}{chr(10)}}}')}()", PRIMARY

    def round_to_half(self, text: str) -> Text:
        body = "{ return unpack2x16float(pack2x16float(vec2<f32>(x, 0.0f))).x; }"
        return f"{self.helper('kk_round_to_half', f'fn kk_round_to_half(x: f32) -> f32 {body}')}({text})", PRIMARY

    def cast(self, operand: Expression, target: Scalar) -> Text:
        source = operand.type
        assert isinstance(source, Scalar)
        if is_small(target):
            if self.is_within(operand, target):
                return self.x(converted(operand, I4), PRIMARY), PRIMARY
            bits = 8 * target.size
            if target.signed:
                return f"extractBits({self.x(converted(operand, I4))}, 0u, {bits}u)", PRIMARY
            return self.infix("&", converted(operand, I4), Literal(operand.at, I4, (1 << bits) - 1))
        if self.type_name(source) == self.type_name(target):
            return self.x(operand, PRIMARY), PRIMARY
        text = self.x(operand)
        if source.kind == target.kind == "integer" and text.lstrip("-").isdigit():  # else it has no type in particular
            return self.integer(wrapped(int(text), target), target)
        return f"{self.type_name(target)}({text})", PRIMARY

    def float_to_integer(self, text: str, source: Scalar, target: Scalar) -> Text:
        wide = target if target.size >= 4 else I4
        if wide.size == 8:
            raise self.unsupported(*self.lacking(wide))
        name = "kk_to_i32" if wide is I4 else "kk_to_u32"
        self.helper(name, TO_INTEGER[name])
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
        name = f"kk_to_vec{target.length}_{self.type_name(target.element)}"
        self.helper(name, f"fn {name}(v: {source}) -> {result} {{ return {result}({parts}); }}")
        return f"{name}({self.x(operand)})", PRIMARY

    def unary(self, e: Unary) -> Text:
        element = e.type.element if isinstance(e.type, Vector) else e.type
        if e.operator == "-" and element is U4:
            zero = converted(literal(0, U4), e.type)
            return self.infix("-", zero, e.operand)
        return super().unary(e)

    def binary(self, e: Binary) -> Text:
        # WGSL refuses constant expressions that overflow, so those with named constants are computed here, too.
        if e.type in (I4, U4) and (value := constant_value(e)) is not None:
            return self.integer(int(value), e.type)
        return super().binary(e)

    def remainder(self, kind: Type) -> str:
        name = f"kk_remainder_{kind.length}" if isinstance(kind, Vector) else "kk_remainder"
        text = self.type_name(kind)
        return self.helper(name, f"fn {name}(a: {text}, b: {text}) -> {text} {{ return a - a / b * b; }}")

    def shift(self, e: Binary) -> Text:
        amount = self.shift_amount(e.right, e.type)
        left = self.x(e.left, UNARY)
        return f"{left} {e.operator} {self._amount(amount, e.type)}", LEVELS[e.operator]

    def _amount(self, amount: Expression, kind: Type) -> str:
        if isinstance(amount, Literal):
            text = f"{int(amount.value)}u"
        elif isinstance(amount.type, Vector):
            return f"vec{amount.type.length}<u32>({self.x(amount)})"
        else:
            text = self.x(amount, UNARY) if amount.type is U4 else f"u32({self.x(amount)})"
        return f"vec{kind.length}<u32>({text})" if isinstance(kind, Vector) else text

    def update_operand(self, e: Update) -> str:
        if e.operator in ("<<", ">>"):
            return self._amount(self.shift_amount(e.value, e.computed), e.computed)
        return super().update_operand(e)

    # --- arrays

    def loaded(self, e: Expression) -> Text:
        root = root_of(e)
        assert root is not None
        root = self.array(root)
        array = self.variable(root)
        if self.is_packed(root):
            kind = element_of(root.type)
            assert isinstance(kind, Scalar)
            bits, words, shift = (8, 2, 3) if kind.size == 1 else (16, 1, 1)
            word = f"{array}[i >> {words}u]"
            word = f"atomicLoad(&{word})" if self.is_atomic(root) else word
            part = f"u32(i & {shift}) * {bits}u, {bits}u)"
            cut = f"extractBits(bitcast<i32>({word}), {part}" if kind.signed else f"i32(extractBits({word}, {part})"
            name = f"kk_load_{array}"
            self.helper(name, f"fn {name}(i: i32) -> i32 {{ return {cut}; }}")
            return self.element_call(name, e), PRIMARY
        text = f"atomicLoad(&{self.place_of(e)})"
        return (f"bitcast<f32>({text})" if self.is_bits(root) else text), PRIMARY

    def stored(self, target: Expression, value: Expression) -> Text:
        if isinstance(target, Swizzle):
            fixed, kept = self.fixed_target(target.base), self.keep(value, "value")
            base = self.x(fixed, PRIMARY)
            parts = [f"{base}.{one} = {self.x(kept)}.{'xyzw'[at]}" for at, one in enumerate(target.elements)]
            return "; ".join(parts), 1
        root = root_of(target)
        assert root is not None
        root = self.array(root)
        array = self.variable(root)
        if not self.is_packed(root):
            place = self.place_of(target)
            text = f"bitcast<u32>({self.x(value)})" if self.is_bits(root) else self.x(value)
            return f"atomicStore(&{place}, {text})", PRIMARY
        kind = element_of(root.type)
        assert isinstance(kind, Scalar)
        bits, words, shift = (8, 2, 3) if kind.size == 1 else (16, 1, 1)
        name = f"kk_store_{array}"
        self.helper(
            name,
            f"""fn {name}(i: i32, value: i32) {{
    let shift = u32(i & {shift}) * {bits}u;
    let mask = {(1 << bits) - 1}u << shift;
    let bits = (u32(value) << shift) & mask;
    var old = atomicLoad(&{array}[i >> {words}u]);
    loop {{  // other work-items may write to the same word
        let seen = atomicCompareExchangeWeak(&{array}[i >> {words}u], old, (old & ~mask) | bits);
        if (seen.exchanged) {{ break; }}
        old = seen.old_value;
    }}
}}""",
        )
        return self.element_call(name, target, self.x(value)), PRIMARY

    def four_helper(self, rule: str, root: Variable) -> str:
        array = self.variable(root)
        bits = self.is_atomic(root)
        elements = [f"{array}[i{f' + {at}' if at else ''}]" for at in range(4)]
        if rule == "load4":
            parts = ", ".join(f"bitcast<f32>(atomicLoad(&{one}))" if bits else one for one in elements)
            name = f"kk_load4_{array}"
            return self.helper(name, f"fn {name}(i: i32) -> vec4<f32> {{ return vec4<f32>({parts}); }}")
        name = f"kk_store4_{array}"
        stores = [
            f"    atomicStore(&{element}, bitcast<u32>(v.{one}));\n" if bits else f"    {element} = v.{one};\n"
            for element, one in zip(elements, "xyzw", strict=True)
        ]
        return self.helper(name, f"fn {name}(i: i32, v: vec4<f32>) {{\n{''.join(stores)}}}")

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

    def atomic(self, e: BuiltinCall) -> Text:
        element, *values = e.arguments
        operation = e.builtin.name.removeprefix("kk_atomic_")
        root = root_of(element)
        assert root is not None
        root = self.array(root)
        given = [self.x(value) for value in values]
        if operation in ("load", "store"):
            place = f"&{self.place_of(element)}"
            if values:
                return (
                    f"atomicStore({place}, {f'bitcast<u32>({given[0]})' if self.is_bits(root) else given[0]})",
                    PRIMARY,
                )
            return (f"bitcast<f32>(atomicLoad({place}))" if self.is_bits(root) else f"atomicLoad({place})"), PRIMARY
        if self.is_bits(root) or operation == "cas":
            return self.element_call(self._swapped(operation, element, root, e.type), element, *given), PRIMARY
        return f"atomic{_ATOMICS[operation]}(&{self.place_of(element)}, {given[0]})", PRIMARY

    def _swapped(self, operation: str, element: Expression, root: Variable, kind: Type) -> str:
        array = self.variable(root)
        name = f"kk_atomic_{operation}_{array}"
        indices = [f"i{at or ''}" for at in range(len(self.indices(element)))]
        place = array + "".join(f"[{one}]" for one in indices)
        parameters = "".join(f"{one}: i32, " for one in indices)
        word = self.type_name(kind)
        if operation == "cas":
            return self.helper(
                name,
                f"""fn {name}({parameters}expected: {word}, v: {word}) -> {word} {{
    loop {{  // it may fail for no reason
        let found = atomicCompareExchangeWeak(&{place}, expected, v);
        if (found.exchanged || found.old_value != expected) {{ return found.old_value; }}
    }}
    return expected;
}}""",
            )
        return self.helper(
            name,
            f"""fn {name}({parameters}v: f32) -> f32 {{
    var old = atomicLoad(&{place});
    loop {{
        let seen = bitcast<f32>(old);
        let found = atomicCompareExchangeWeak(&{place}, old, bitcast<u32>({_FLOAT_ATOMICS[operation]}));
        if (found.exchanged) {{ break; }}
        old = found.old_value;
    }}
    return bitcast<f32>(old);
}}""",
        )

    def function_call(self, e: BuiltinCall) -> Text:
        name = e.builtin.name
        if name == "kk_barrier":
            return "storageBarrier(); workgroupBarrier()", PRIMARY
        if name == "kk_fence":
            raise self.unsupported("fence", e, "WGSL has no fence between work-items of different groups")
        given = self.list_of(e.arguments)
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
        if not isinstance(kind, Vector):
            return own
        vector, names = self.type_name(kind), "abc"[: HELPERS[name].partition("{")[0].count(": f32")]
        parts = ", ".join(f"{own}({', '.join(f'{one}.{at}' for one in names)})" for at in "xyzw"[: kind.length])
        parameters = ", ".join(f"{one}: {vector}" for one in names)
        return self.helper(
            f"{own}_{kind.length}", f"fn {own}_{kind.length}({parameters}) -> {vector} {{ return {vector}({parts}); }}"
        )


def _arrays(e: Call) -> list[Expression]:
    """The arguments that are given by reference."""
    pairs = zip(e.function.parameters, e.arguments, strict=True)
    return [argument for parameter, argument in pairs if isinstance(parameter.type, Buffer)]


def _value(one: Declare | Evaluate) -> Expression | None:
    return one.value if isinstance(one, Declare) else one.expression


def _has_call(e: Expression) -> bool:
    """Whether it calls a function that may do something."""
    return any(
        isinstance(node, Call) or (isinstance(node, BuiltinCall) and not node.builtin.is_pure) for node in walk(e)
    )
