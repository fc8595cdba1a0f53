"""Elements of arrays in WGSL: packed in words, kept as bits, and atomics."""

from __future__ import annotations

from ..tree import BuiltinCall, Expression, Index, Name, Swizzle, Variable
from ..types import F2, Array, Buffer, Scalar, Type
from .bindings import FLOAT_ATOMICS
from .effects import root_of
from .small_values import element_of, packing
from .texts import PRIMARY, Text
from .wgsl_statements import WgslStatements

_ATOMICS = {"add": "Add", "sub": "Sub", "min": "Min", "max": "Max", "and": "And", "or": "Or", "xor": "Xor",
            "exchange": "Exchange"}  # fmt: skip


class WgslArrays(WgslStatements):
    """Writes loads, stores and atomics."""

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

    def plain_store(self, target: Expression) -> bool:
        return super().plain_store(target) and not (isinstance(target, Swizzle) and len(target.elements) > 1)

    def loaded(self, e: Expression) -> Text:
        root = root_of(e)
        assert root is not None
        root = self.array(root)
        array = self.variable(root)
        if self.is_packed(root):
            kind = element_of(root.type)
            assert isinstance(kind, Scalar)
            bits, words, shift = packing(kind)
            word = f"{array}[i >> {words}u]"
            word = f"atomicLoad(&{word})" if self.is_atomic(root) else word
            name = f"kk_load_{array}"
            if kind is F2:
                self.helper(name, f"fn {name}(i: i32) -> f32 {{ return unpack2x16float({word})[i & 1]; }}")
                return self.element_call(name, e), PRIMARY
            part = f"u32(i & {shift}) * {bits}u, {bits}u)"
            cut = f"extractBits(bitcast<i32>({word}), {part}" if kind.signed else f"i32(extractBits({word}, {part})"
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
        bits, words, shift = packing(kind)
        name = f"kk_store_{array}"
        self.helper(
            name,
            f"""fn {name}(i: i32, value: {self.type_name(kind)}) {{
    let shift = u32(i & {shift}) * {bits}u;
    let mask = {(1 << bits) - 1}u << shift;
    let bits = ({"pack2x16float(vec2<f32>(value, 0.0))" if kind is F2 else "u32(value)"} << shift) & mask;
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
        let found = atomicCompareExchangeWeak(&{place}, old, bitcast<u32>({FLOAT_ATOMICS[operation]}));
        if (found.exchanged) {{ break; }}
        old = found.old_value;
    }}
    return bitcast<f32>(old);
}}""",
        )
