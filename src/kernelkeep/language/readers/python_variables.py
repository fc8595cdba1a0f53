"""Where the variables of a Python function are declared.

In Python a variable belongs to its function; in the tree it belongs to a block. Its home is the innermost block that contains
all its uses. In a loop that is only right where each round begins by assigning it; else the home is the block around the loop.
A variable that only `for` assigns, and that only its bodies use, is one of the loop.
"""

from __future__ import annotations

import ast

_Path = tuple[
    tuple[int, bool], ...
]  # the blocks around a use, outermost first, each by id(), and whether it is a loop's body


class Variables:
    """The variables of a function: `homes` has the id() of each one's block, `stores` how often it is assigned."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.parameters = {one.arg for one in function.args.args}
        self.stores: dict[str, int] = {}
        self.homes: dict[str, int] = {}
        self.of_loops: set[str] = set()
        self.stored_in: dict[
            int, set[str]
        ] = {}  # the names that the body of each `for` assigns, by the id() of the loop
        self._storing: list[set[str]] = [set()]  # the names that are assigned in the loops around
        self._not_of_loops: set[str] = set(self.parameters)
        self._loops: list[str] = []  # the variables of the loops around
        self._paths: dict[str, _Path] = {}
        self._first: dict[
            str, tuple[_Path, bool]
        ] = {}  # where it is used first, and whether that is a plain assignment
        self._block(function.body, ((id(function.body), False),))
        self.of_loops -= self._not_of_loops
        for name in self.stores:
            self.homes[name] = self._home(name)

    def is_local(self, name: str) -> bool:
        """Whether a name is a variable or a parameter of the function."""
        return name in self.stores or name in self.parameters

    def _home(self, name: str) -> int:
        path, (first, is_plain) = self._paths[name], self._first[name]
        if not (is_plain and first == path):
            # A round may use what an earlier one has assigned.
            while any(is_loop for _, is_loop in path):
                path = path[:-1]
        return path[-1][0]

    # --- one pass over all uses

    def _block(self, statements: list[ast.stmt], path: _Path) -> None:
        for statement in statements:
            self._statement(statement, path)

    def _statement(self, node: ast.stmt, path: _Path) -> None:
        if isinstance(node, ast.For):
            self._for(node, path)
        elif isinstance(node, ast.If | ast.While):
            self._uses(node.test, path)
            self._block(node.body, (*path, (id(node.body), isinstance(node, ast.While))))
            self._block(node.orelse, (*path, (id(node.orelse), False)))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            self._uses(node.value, path)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._target(target, path)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt):
                    self._statement(child, path)
                else:
                    self._uses(child, path)

    def _for(self, node: ast.For, path: _Path) -> None:
        self._uses(node.iter, path)
        if isinstance(node.target, ast.Name):
            name = node.target.id
            self.stores[name] = self.stores.get(name, 0) + 1
            self._at(name, path, is_plain=False)
            (self._not_of_loops if name in self._loops else self.of_loops).add(name)
            self._storing[-1].add(name)
            self._loops.append(name)
        self._storing.append(set())
        self._block(node.body, (*path, (id(node.body), True)))
        self.stored_in[id(node)] = self._storing.pop()
        self._storing[-1] |= self.stored_in[id(node)]
        if isinstance(node.target, ast.Name):
            self._loops.pop()
        self._block(node.orelse, (*path, (id(node.orelse), False)))

    def _target(self, node: ast.expr, path: _Path) -> None:
        if isinstance(node, ast.Name):
            self._use(node.id, path, is_store=True, is_plain=True)
        elif isinstance(node, ast.Tuple | ast.List):
            for element in node.elts:
                self._target(element, path)
        else:
            self._uses(node, path)

    def _uses(self, node: ast.AST, path: _Path) -> None:
        for name, is_store in _names_in(node, []):
            self._use(name, path, is_store=is_store, is_plain=False)

    def _use(self, name: str, path: _Path, *, is_store: bool, is_plain: bool) -> None:
        if is_store:
            self.stores[name] = self.stores.get(name, 0) + 1
            self._storing[-1].add(name)
        if is_store or name not in self._loops:
            self._not_of_loops.add(name)
        self._at(name, path, is_plain=is_plain)

    def _at(self, name: str, path: _Path, *, is_plain: bool) -> None:
        known = self._paths.get(name)
        if known is None:
            self._first[name] = (path, is_plain)
            self._paths[name] = path
            return
        same = 0
        while same < min(len(known), len(path)) and known[same] == path[same]:
            same += 1
        self._paths[name] = known[:same]


_NO_NAMES = frozenset(("ctx", "op", "ops"))


def _names_in(node: ast.AST, found: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """The names in a node, and whether each is assigned. `ast.walk` takes far longer."""
    if isinstance(node, ast.Name):
        found.append((node.id, isinstance(node.ctx, ast.Store)))
    elif not isinstance(node, ast.Constant):
        for field in node._fields:
            if field not in _NO_NAMES:
                value = getattr(node, field, None)
                for one in value if isinstance(value, list) else (value,):
                    if isinstance(one, ast.AST):
                        _names_in(one, found)
    return found
