"""Which expressions change something, and where the order of evaluation needs a statement of its own.

C leaves the order of operands open. Where one operand writes what another reads, the first is kept in a variable before the
second is evaluated, and so is whatever a target cannot write as an expression. All other expressions stay as they are.

Variables are bits of a mask. All buffers, and all arrays that a helper function is given, share one bit: they may be the same
memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from ..tree import (
    CHAINED,
    Assign,
    Binary,
    BuiltinCall,
    Call,
    Comma,
    Construct,
    Convert,
    Evaluate,
    Expression,
    Field,
    For,
    Increment,
    Index,
    Literal,
    Logical,
    Module,
    Name,
    Node,
    Slice,
    Swizzle,
    Ternary,
    Unary,
    Update,
    Variable,
    children,
    long_chain,
)
from ..types import Buffer

_MEMORY = 1
_SHARED = 2
OLD_VALUE = 2  # the position of an Update's old value, beside those of its target and its value


class Facts(Struct, frozen=True, gc=False):
    """What an expression does."""

    reads: int
    calls: int  # written by calls, which are complete when their value is there
    direct: int  # written by `=`, `+=` and `++`, which C may put off
    emits: bool  # statements are written before the expression


NOTHING = Facts(0, 0, 0, False)


def union(parts: Iterable[Facts]) -> Facts:
    """What all of them do."""
    reads = calls = direct = 0
    emits = False
    for part in parts:
        reads |= part.reads
        calls |= part.calls
        direct |= part.direct
        emits = emits or part.emits
    return Facts(reads, calls, direct, emits)


def root_of(expression: Expression) -> Variable | None:
    """The variable that an assigned expression is a part of."""
    while isinstance(expression, (Index, Field, Swizzle)):
        expression = expression.base
    return expression.variable if isinstance(expression, Name) else None


def array_of(argument: Expression) -> Variable | None:
    """The array that a helper function is given, from some element on."""
    if isinstance(argument, Slice):
        argument = argument.base
    return argument.variable if isinstance(argument, Name) else None


class Effects:
    """What is found in the functions of a module.

    `needs_statement` tells whether a target cannot write an expression as one. `is_ordered`: the target evaluates from left to
    right itself.
    """

    def __init__(self, module: Module, needs_statement: Callable[[Expression], bool], *, is_ordered: bool) -> None:
        self.spilled: dict[int, frozenset[int]] = {}  # by id of a node: positions of operands to keep in variables
        self.hoisted: set[int] = set()  # ids of expressions that are written as statements
        self.emits: set[int] = set()  # ids of expressions that have statements before them
        self.assigned: Counter[Variable] = Counter()  # how often each variable is a target
        self.atomics: dict[Variable, set[str]] = {}  # by array: the operations
        self.vectors: set[Variable] = set()  # arrays that kk_load4 and kk_store4 are used on
        self._needs_statement = needs_statement
        self._is_ordered = is_ordered
        self._bits: dict[Variable, int] = {}
        self._long_chains: dict[int, Facts] = {}
        for function in (*module.functions, module.kernel):
            self._statement(function.body)

    def _statement(self, node: Node) -> None:
        if isinstance(node, Evaluate):
            self._unused(node.expression)
            return
        if isinstance(node, For) and node.step is not None:
            self._unused(node.step)
        for child in children(node):
            if isinstance(child, Expression):
                if not (isinstance(node, For) and child is node.step) and not _only_computes(child):
                    self._visit(child)
            else:
                self._statement(child)

    def _unused(self, expression: Expression) -> Facts:
        """An expression whose value is not used: it can be a statement."""
        if isinstance(expression, Comma):
            first, last = self._unused(expression.first), self._unused(expression.last)
            facts = union((first, last))
        elif isinstance(expression, Ternary):
            branches = (self._unused(expression.then), self._unused(expression.otherwise))
            facts = union((self._visit(expression.condition), *branches))
        elif isinstance(expression, (Assign, Update, Increment)):
            if all(map(_only_computes, children(expression))):  # most assignments: nothing in them has to come first
                root = root_of(expression.target)
                assert root is not None
                self.assigned[root] += 1
                return NOTHING
            facts = self._written(expression)
        else:
            return self._visit(expression)
        if facts.emits:
            self.emits.add(id(expression))
        return facts

    def _bit(self, variable: Variable) -> int:
        found = self._bits.get(variable)
        if found is None:
            if variable.space == "buffer" or isinstance(variable.type, Buffer):
                found = _MEMORY
            else:
                found = _SHARED if variable.space == "shared" else 4 << len(self._bits)
            self._bits[variable] = found
        return found

    def _visit(self, e: Expression) -> Facts:
        kind = type(e)
        if kind is Name:
            return Facts(self._bit(e.variable), 0, 0, False)  # type: ignore[attr-defined]
        if kind is Literal:
            return NOTHING
        if kind in CHAINED:
            if (known := self._long_chains.get(id(e))) is not None:
                return known
            for one in long_chain(e, self._long_chains):
                self._long_chains[id(one)] = self._visit(one)
        if kind in _SINGLE:
            facts = self._visit(e.operand if kind is Unary or kind is Convert else e.base)  # type: ignore[attr-defined]
        elif kind is Binary:
            facts = self._operands(e, (e.left, e.right))  # type: ignore[attr-defined]
        elif kind is Index:
            facts = self._operands(e, (e.base, e.index))  # type: ignore[attr-defined]
        elif kind is Slice:
            facts = self._operands(e, (e.base, e.offset))  # type: ignore[attr-defined]
        elif kind is Construct:
            facts = self._operands(e, e.arguments)  # type: ignore[attr-defined]
        elif isinstance(e, (Assign, Update, Increment)):
            facts = self._written(e)
        elif isinstance(e, BuiltinCall):
            facts = self._builtin(e)
        elif isinstance(e, Call):
            facts = self._call(e)
        else:
            facts = self._branches(e)
        if kind not in _ONLY_COMPUTES and self._needs_statement(e):
            self.hoisted.add(id(e))
            facts = replace(facts, emits=True)
        if facts.emits:
            self.emits.add(id(e))
        return facts

    def _branches(self, e: Expression) -> Facts:
        assert isinstance(e, (Logical, Ternary, Comma))
        parts = [self._visit(child) for child in children(e) if isinstance(child, Expression)]
        facts = union(parts)
        # What is evaluated only sometimes, or after something else, cannot be preceded by statements.
        if any(part.emits for part in parts[1:]) or (isinstance(e, Comma) and parts[0].emits):
            self.hoisted.add(id(e))
        return facts

    def _operands(self, e: Expression, operands: tuple[Expression, ...]) -> Facts:
        parts = [self._visit(one) for one in operands]
        facts = union(parts)
        if facts.emits or facts.calls or facts.direct:
            spilled = self._conflicts(parts)
            if spilled:
                self.spilled[id(e)] = spilled
                facts = replace(facts, emits=True)
        return facts

    def _conflicts(self, parts: list[Facts]) -> frozenset[int]:
        """The positions of operands that must be evaluated before a later one is."""
        found: set[int] = set()
        for i in range(len(parts) - 2, -1, -1):
            one = parts[i]
            writes = one.calls | one.direct
            for j in range(i + 1, len(parts)):
                other = parts[j]
                later = other.calls | other.direct
                if (writes & (other.reads | later) or one.reads & later) and (
                    not self._is_ordered or other.emits or j in found
                ):
                    found.add(i)
                    break
        return frozenset(found)

    def _target(self, target: Expression) -> tuple[Facts, int, Variable | None]:
        """The facts of the indices of a target, and the bit of what is written."""
        root = root_of(target)
        parts = []
        while isinstance(target, (Index, Field, Swizzle)):
            if isinstance(target, Index):
                parts.append(self._visit(target.index))
            target = target.base
        bit = 0 if root is None else self._bit(root)
        if root is not None:
            self.assigned[root] += 1
        return union(parts), bit, root

    def _written(self, e: Assign | Update | Increment) -> Facts:
        target, bit, _ = self._target(e.target)
        if isinstance(e, Increment):
            return Facts(target.reads | bit, target.calls, target.direct | bit, target.emits)
        value = self._visit(e.value)
        spilled = set(self._conflicts([target, value]))
        writes = value.calls | value.direct
        if isinstance(e, Update) and writes & bit:
            spilled |= {0, OLD_VALUE}
        if value.direct & bit and not self._is_ordered:
            spilled.add(1)  # C leaves open which of the two writes comes last
        if spilled:
            self.spilled[id(e)] = frozenset(spilled)
        reads = target.reads | value.reads | (bit if isinstance(e, Update) else 0)
        emits = target.emits or value.emits or bool(spilled)
        return Facts(reads, target.calls | value.calls, target.direct | value.direct | bit, emits)

    def _call(self, e: Call) -> Facts:
        facts = self._operands(e, e.arguments)
        writes = _MEMORY | _SHARED if e.function.has_barrier else 0
        for parameter, argument in zip(e.function.parameters, e.arguments, strict=True):
            if not isinstance(parameter.type, Buffer) or (root := array_of(argument)) is None:
                continue
            if parameter.type.access != "r":
                writes |= self._bit(root)
                self.assigned[root] += 1
            if parameter in self.atomics:
                self.atomics.setdefault(root, set()).update(self.atomics[parameter])
            if parameter in self.vectors:
                self.vectors.add(root)
        return replace(facts, calls=facts.calls | writes)

    def _builtin(self, e: BuiltinCall) -> Facts:
        facts = self._operands(e, e.arguments)
        builtin = e.builtin
        if builtin.is_pure:
            return facts
        rule = builtin.rule
        if rule == "print":
            return facts
        if rule == "fixed":
            return replace(facts, calls=facts.calls | _MEMORY | _SHARED)
        root = root_of(e.arguments[0])
        assert root is not None
        if rule == "atomic":
            self.atomics.setdefault(root, set()).add(builtin.name)
        else:
            self.vectors.add(root)
            if rule == "load4":
                return facts
        self.assigned[root] += 1
        return replace(facts, calls=facts.calls | self._bit(root))


_SINGLE = frozenset((Unary, Convert, Field, Swizzle))
_ONLY_COMPUTES = frozenset((Unary, Binary, Logical, Convert, Construct, Index, Slice, Field, Swizzle))


def _only_computes(e: Node) -> bool:
    """Whether an expression changes nothing, and every target can write it as one."""
    rest = [e]
    while rest:
        node = rest.pop()
        kind = type(node)
        if kind in _ONLY_COMPUTES or (kind is BuiltinCall and node.builtin.is_pure):  # type: ignore[attr-defined]
            rest += children(node)
        elif kind is not Name and kind is not Literal:
            return False
    return True
