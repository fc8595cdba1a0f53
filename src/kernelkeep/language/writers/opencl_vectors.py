"""Vectors in OpenCL C."""

from __future__ import annotations

from ..tree import Binary, BuiltinCall, Construct, Expression, Index, Unary, Update
from ..types import F4, I4, U4, StructType, Vector
from .effects import root_of
from .pointers import PointerWriter
from .texts import PRIMARY, UNARY, Text
from .wrapping import WrappingWriter


class OpenCLVectors(PointerWriter):
    """Writes vectors, and four elements of an array at once."""

    def construct(self, e: Construct) -> Text:
        if isinstance(e.type, Vector):
            return f"({e.type.title})({self.list_of(e.arguments)})", UNARY
        if isinstance(e.type, StructType):
            return f"({self.type_name(e.type)}){{{self.list_of(e.arguments)}}}", UNARY
        return super().construct(e)

    def splat(self, operand: Expression, target: Vector) -> Text:
        return f"({target.title})({self.x(operand)})", UNARY

    def vector_cast(self, operand: Expression, target: Vector) -> Text:
        assert isinstance(operand.type, Vector)
        if operand.type.element is not F4:
            return f"convert_{target.title}({self.x(operand)})", PRIMARY
        text = f"convert_{target.title}_sat_rtz"
        if target.element not in (I4, U4):
            return f"{text}({self.x(operand)})", PRIMARY
        name = f"kk_to_{target.title}"
        head = f"static inline {target.title} {name}({operand.type.title} v)"
        # A comparison of vectors gives masks.
        self.helper(name, f"{head} {{ return {text}(v) & as_{target.title}(v == v); }}")
        return f"{name}({self.x(operand)})", PRIMARY

    def vector_operation(self, e: Binary | Unary) -> Text:
        assert isinstance(e.type, Vector)
        if e.type.element is I4 and e.operator in ("+", "-", "*"):
            kind, other = e.type.title, f"u{e.type.title}"
            if isinstance(e, Unary):
                return f"as_{kind}(-as_{other}({self.x(e.operand)}))", PRIMARY
            left, right = self.x(e.left), self.x(e.right)
            return f"as_{kind}(as_{other}({left}) {e.operator} as_{other}({right}))", PRIMARY
        if isinstance(e, Unary):
            return super(WrappingWriter, self).unary(e)
        if e.type.element is I4 and e.operator in ("/", "%") and isinstance(e.right.type, Vector):
            return f"{self._divider(e.operator, e.type)}({self.x(e.left, 2)}, {self.x(e.right, 2)})", PRIMARY
        return self.infix(e.operator, e.left, e.right)

    def _divider(self, operator: str, kind: Vector) -> str:
        """A function that divides one by one: NVIDIA's compiler errs in `v % (int2)(2, 1)`."""
        name = f"kk_{'quotient' if operator == '/' else 'remainder'}_{kind.title}"
        parts = ", ".join(f"a.{one} {operator} b.{one}" for one in "xyzw"[: kind.length])
        head = f"static inline {kind.title} {name}({kind.title} a, {kind.title} b)"
        return self.helper(name, f"{head} {{ return ({kind.title})({parts}); }}")

    def plain_update(self, e: Update) -> bool:
        if isinstance(e.computed, Vector) and e.computed.element in (F4, U4) and e.operator in ("+", "-", "*", "/"):
            return True
        return super().plain_update(e)

    def vector_element(self, e: Index) -> Text:
        return f"{self.x(e.base, PRIMARY)}[{self.index_text(e.index)}]", PRIMARY

    def four(self, e: BuiltinCall) -> Text:
        root = root_of(e.arguments[0])
        assert root is not None
        space = self.space_of(root).strip()
        if not space:
            return super().four(e)
        # Not cast in place: clang then takes the four apart, and conv2d is 12 % slower on an H200.
        name = f"kk_{e.builtin.rule}_{space.strip('_')}"
        place = f"&{self.x(e.arguments[0], PRIMARY)}[{self.index_text(e.arguments[1])}]"
        if e.builtin.rule == "load4":
            space += "" if space == "__constant" else " const"
            text = f"static inline float4 {name}({space} float* p) {{ return *({space} float4*)p; }}"
            return f"{self.helper(name, text)}({place})", PRIMARY
        text = f"static inline void {name}({space} float* p, float4 v) {{ *({space} float4*)p = v; }}"
        return f"{self.helper(name, text)}({place}, {self.x(e.arguments[2], 2)})", PRIMARY
