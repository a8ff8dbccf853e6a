"""Finds, in the source of a test, what makes it depend on the speed of the machine that runs it.

Two patterns. A *time assertion* orders the difference of two readings of a clock, or a reading and one plus an offset,
against something that no clock measured: `monotonic() - begun < 1.0`, `while monotonic() < until`. A *short wait* ends
in an error after a literal number of seconds under PATIENCE_FLOOR_S: `asyncio.wait_for(x, 5)`. Two measurements
compared with each other are neither; nor is a wait that a test expects to end so: in `pytest.raises`, or after `not`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import IntEnum

PATIENCE_FLOOR_S = 60.0
"""A wait below this may end before a busy machine got round to the work."""

_CLOCKS = {
    f"{name}{unit}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
    for unit in ("", "_ns")
}
_ARITHMETIC = {"min", "max", "sum", "abs", "round", "float", "int", "sorted", "list"}
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_LIMIT_PLACE = {"asyncio.wait_for": 1, "asyncio.timeout": 0}
_WAITING_METHODS = {"wait", "join", "result", "communicate", "exception"}
_NOT_WAITING = {"asyncio.wait"}
"""Returns what is not yet done, and raises nothing."""


class _Kind(IntEnum):
    """The relation of an expression to a clock."""

    NONE = 0
    READING = 1
    OFFSET = 2
    """A reading, and so much later or earlier."""
    SPAN = 3


def time_assertions(tree: ast.Module) -> list[int]:
    """The lines of `tree` on which a measured time is held against one that was not measured."""
    clocks = _clock_names(tree)
    scopes = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    return sorted({line for scope in scopes for line in _Scope(scope, clocks).findings()})


def _clock_names(tree: ast.Module) -> set[str]:
    """Return the names by which this module calls the clocks of `time`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {f"{a.asname or a.name}.{clock}" for a in node.names if a.name == "time" for clock in _CLOCKS}
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            names |= {a.asname or a.name for a in node.names if a.name in _CLOCKS}
    return names


class _Scope:
    """A function or class with all that it holds; a name keeps the strongest kind it was given anywhere in it."""

    def __init__(self, scope: ast.AST, clocks: set[str]) -> None:
        self._nodes = list(ast.walk(scope))
        self._clocks = clocks
        self._names: dict[str, _Kind] = {}
        while self._learned():
            pass

    def findings(self) -> Iterator[int]:
        for node in self._nodes:
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                for left, order, right in zip(sides, node.ops, sides[1:], strict=False):
                    if isinstance(order, _ORDER) and _is_bound(self._kind(left), self._kind(right)):
                        yield node.lineno

    def _learned(self) -> bool:
        before = dict(self._names)
        for node in self._nodes:
            for target, value in _bindings(node):
                self._give(target, self._kind(value))
        return before != self._names

    def _give(self, target: ast.expr, kind: _Kind) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._give(part, kind)
        elif kind:
            name = ast.unparse(target)
            self._names[name] = max(kind, self._names.get(name, _Kind.NONE))

    def _kind(self, node: ast.expr) -> _Kind:
        match node:
            case ast.Name() | ast.Attribute():
                return self._names.get(ast.unparse(node), _Kind.NONE)
            case ast.Call():
                return self._kind_of_call(node)
            case ast.BinOp(left=left, op=op, right=right):
                return _combined(self._kind(left), op, self._kind(right))
            case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
                return self._kind(inner)
            case ast.NamedExpr(value=inner) | ast.Await(value=inner):
                return self._kind(inner)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return max(map(self._kind, parts), default=_Kind.NONE)
            case ast.GeneratorExp(elt=inner) | ast.ListComp(elt=inner) | ast.SetComp(elt=inner):
                return self._kind(inner)
        return _Kind.NONE

    def _kind_of_call(self, call: ast.Call) -> _Kind:
        name = ast.unparse(call.func)
        if name in self._clocks or name.endswith(("loop.time", "_loop().time")):
            return _Kind.READING
        if name in _ARITHMETIC | {"pairwise", "zip"}:
            return max(map(self._kind, call.args), default=_Kind.NONE)
        return _Kind.NONE


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value):
            yield target, value
        case ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            yield target, value
        case ast.Call(func=ast.Attribute(value=target, attr="append"), args=[value]):
            yield target, value


def _combined(left: _Kind, op: ast.operator, right: _Kind) -> _Kind:
    if isinstance(op, ast.Sub) and left and right:
        return _Kind.SPAN
    if _Kind.SPAN in (left, right):
        # A reading and a span make a reading again; a scaled or shifted span is one still.
        return _Kind.OFFSET if {left, right} & {_Kind.READING, _Kind.OFFSET} else _Kind.SPAN
    if isinstance(op, ast.Add | ast.Sub) and (left or right):
        return _Kind.OFFSET
    return max(left, right)


def _is_bound(left: _Kind, right: _Kind) -> bool:
    return {left, right} in ({_Kind.SPAN, _Kind.NONE}, {_Kind.READING, _Kind.OFFSET})


def short_waits(tree: ast.Module) -> list[int]:
    """The lines of `tree` on which a wait fails after a literal number of seconds below PATIENCE_FLOOR_S."""
    expected = {id(inner) for node in ast.walk(tree) if _expects_the_end(node) for inner in ast.walk(node)}
    return sorted(
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and id(node) not in expected and 0 < _limit_s(node) < PATIENCE_FLOOR_S
    )


def _expects_the_end(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, ast.With | ast.AsyncWith) and any(
        ast.unparse(item.context_expr).startswith("pytest.raises") for item in node.items
    )


def _limit_s(call: ast.Call) -> float:
    """The literal limit of a call that waits; infinity without such a limit."""
    name = ast.unparse(call.func)
    method = name.rpartition(".")[2]
    candidates: list[ast.expr] = []
    if name in _LIMIT_PLACE or name.startswith("subprocess.") or (method in _WAITING_METHODS and "." in name):
        candidates += [keyword.value for keyword in call.keywords if keyword.arg == "timeout"]
    if name in _LIMIT_PLACE:
        candidates += call.args[_LIMIT_PLACE[name] :]
    elif method in _WAITING_METHODS and "." in name and name not in _NOT_WAITING:
        candidates += call.args[:1]
    if name in _NOT_WAITING:
        return float("inf")
    literals = [c.value for c in candidates if isinstance(c, ast.Constant) and isinstance(c.value, int | float)]
    return min(map(float, literals), default=float("inf"))
