"""Elements of arrays in GLSL: packed in words, kept as bits, and changed by atomics."""

from __future__ import annotations

from ..tree import BuiltinCall, Expression, Variable
from ..types import F2, F4, I4, Buffer, Scalar
from .bindings import FLOAT_ATOMICS
from .effects import root_of
from .glsl_numbers import GlslNumbers
from .small_values import element_of, packing
from .texts import PRIMARY, Text

_ATOMICS = {"add": "Add", "sub": "Add", "min": "Min", "max": "Max", "and": "And", "or": "Or", "xor": "Xor",
            "exchange": "Exchange", "cas": "CompSwap"}  # fmt: skip


class GlslArrays(GlslNumbers):
    """Writes loads, stores and atomics."""

    owners: dict[str, Variable]  # arrays by the names that were made from theirs

    def name_for(self, stem: str, root: Variable) -> str:
        """A name for a part of the text that belongs to an array. GLSL keeps names with two underscores in a row for itself."""
        name = f"{stem}_{self.variable(root).strip('_')}"
        while self.owners.setdefault(name, root) is not root:
            name += "2"
        return name

    def loaded(self, e: Expression) -> Text:
        root = root_of(e)
        assert root is not None
        root = self.array(root)
        if not self.is_packed(root):
            return f"uintBitsToFloat({self.place_of(e)})", PRIMARY
        kind = element_of(root.type)
        assert isinstance(kind, Scalar)
        name, array = self.name_for("kk_load", root), self.variable(root)
        if kind is F2:
            # The mask changes nothing; without it NVIDIA's compiler makes 0 of the value where it becomes a double.
            value = f"floatBitsToUint(unpackHalf2x16({array}[i >> 1])[i & 1]) & 0xffffe000u"
            self.helper(name, f"float {name}(int i) {{ return uintBitsToFloat({value}); }}")
            return self.element_call(name, e), PRIMARY
        bits, words, shift = packing(kind)
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
        bits, words, shift = packing(kind)
        array = self.variable(root)
        name = self.name_for("kk_store", root)
        self.helper(
            name,
            f"""void {name}(int i, {self.type_name(kind)} value) {{
    const int shift = (i & {shift}) * {bits};
    const uint mask = {(1 << bits) - 1}u << shift;
    const uint bits = ({"packHalf2x16(vec2(value, 0.0))" if kind is F2 else "uint(value)"} << shift) & mask;
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
            name = self.name_for("kk_load4", root)
            return self.helper(name, f"vec4 {name}(int i) {{ return vec4({parts}); }}")
        name = self.name_for("kk_store4", root)
        values = [f"floatBitsToUint(v.{one})" if bits else f"v.{one}" for one in "xyzw"]
        body = "".join(f"    {one} = {value};\n" for one, value in zip(elements, values, strict=True))
        return self.helper(name, f"void {name}(int i, vec4 v) {{\n{body}}}")

    def atomic(self, e: BuiltinCall) -> Text:
        element, *values = e.arguments
        operation = e.builtin.name.removeprefix("kk_atomic_")
        root = root_of(element)
        assert root is not None
        root = self.array(root)
        if operation == "load" and isinstance(root.type, Buffer) and root.type.access == "r":
            return self.x(element), PRIMARY  # GLSL has no atomics on what is read only, and nobody writes to it
        if operation in ("load", "store"):
            return self._ordered_access(element, values, is_bits=self.is_bits(root))
        if self.is_bits(root):
            return self.element_call(
                self._float_atomic(operation, element, root), element, self.x(values[0], 2)
            ), PRIMARY
        if e.type is F4:
            self.extensions["GL_NV_shader_atomic_float"] = None
        place = self.place_of(element)
        given = ", ".join(self.x(value, 2) for value in values)
        if operation == "sub":
            given = f"-{given}" if given.isidentifier() or given.isdigit() else f"-({given})"
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
        name = self.name_for(f"kk_atomic_{operation}", root)
        indices = [f"i{at or ''}" for at in range(len(self.indices(element)))]
        place = array + "".join(f"[{one}]" for one in indices)
        parameters = "".join(f"int {one}, " for one in indices)
        return self.helper(
            name,
            f"""float {name}({parameters}float v) {{
    uint old = {place}, prior;
    do {{
        prior = old;
        const float seen = uintBitsToFloat(prior);
        old = atomicCompSwap({place}, prior, floatBitsToUint({FLOAT_ATOMICS[operation]}));
    }} while (old != prior);
    return uintBitsToFloat(old);
}}""",
        )
