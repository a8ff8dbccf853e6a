"""A small evaluator of PromQL over samples in memory: what the rules need, after Prometheus' own engine.

It reads expressions with the parser of the lock, whose grammar and types are those of Prometheus. Whatever it does not
evaluate raises Unsupported, so that no rule passes unseen. Times are seconds. Prometheus 2 looks back over windows that
hold their first instant, Prometheus 3 over ones that do not: `left_open` chooses.
"""

from __future__ import annotations

import math
import operator
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import promql_parser as ast

__all__ = ["LOOKBACK_S", "Labels", "Samples", "Unsupported", "Vector", "evaluate"]

LOOKBACK_S = 300.0
NAME = "__name__"

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
_Points = tuple[list[float], list[float | None]]


class Unsupported(NotImplementedError):
    """An expression that this evaluator does not know."""


@dataclass(slots=True)
class Samples:
    """Series by their labels, each with rising times; None is a staleness marker."""

    left_open: bool = False
    _series: dict[Labels, tuple[list[float], list[float | None]]] = field(default_factory=dict)
    _by_name: dict[str, list[Labels]] = field(default_factory=lambda: defaultdict(list))

    def add(self, labels: Mapping[str, str], at_s: float, value: float | None) -> None:
        """One more sample of a series."""
        key = frozenset(labels.items())
        if key not in self._series:
            self._series[key] = ([], [])
            self._by_name[labels[NAME]].append(key)
        times, values = self._series[key]
        times.append(at_s)
        values.append(value)

    def window(self, selector: ast.VectorSelector, at_s: float, range_s: float) -> Iterator[tuple[Labels, _Points]]:
        """Times and values of each matching series in the window that ends at `at_s`, staleness markers included."""
        if selector.at is not None or selector.matchers.or_matchers or not selector.name:
            raise Unsupported(str(selector))
        end_s = at_s - (selector.offset.total_seconds() if selector.offset else 0.0)
        begin = bisect_right if self.left_open else bisect_left
        for labels in self._matching(selector):
            times, values = self._series[labels]
            first, after = begin(times, end_s - range_s), bisect_right(times, end_s)
            if first < after:
                yield labels, (times[first:after], values[first:after])

    def _matching(self, selector: ast.VectorSelector) -> list[Labels]:
        candidates, matchers = self._by_name[selector.name or ""], selector.matchers.matchers
        return [labels for labels in candidates if all(_matches(m, dict(labels)) for m in matchers)]


def _matches(matcher: ast.Matcher, labels: Mapping[str, str]) -> bool:
    value = labels.get(matcher.name, "")
    if matcher.op in (ast.MatchOp.Equal, ast.MatchOp.NotEqual):
        return bool((value == matcher.value) == (matcher.op == ast.MatchOp.Equal))
    return bool(re.fullmatch(matcher.value, value)) == bool(matcher.op == ast.MatchOp.Re)


def evaluate(expression: str, samples: Samples, at_s: float) -> Vector | float:
    """The value of an expression at one instant; raises ValueError when it cannot be parsed."""
    found: Vector | float = _Instant(samples, at_s).value(_parsed(expression))
    return found


_parsed = cache(ast.parse)


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else math.nan if not a or math.isnan(a) else math.copysign(math.inf, a),
}
_COMPARISON: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_AGGREGATION: dict[str, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "min": min,
    "max": max,
    "count": len,
    "avg": lambda values: math.fsum(values) / len(values),
}
_OVER_TIME: dict[str, Callable[[list[float]], float]] = {
    "min_over_time": min,
    "max_over_time": max,
    "sum_over_time": math.fsum,
    "count_over_time": len,
    "avg_over_time": lambda values: math.fsum(values) / len(values),
    "last_over_time": lambda values: values[-1],
}


@dataclass(frozen=True, slots=True)
class _Instant:
    samples: Samples
    at_s: float

    def value(self, node: Any) -> Any:
        match node:
            case ast.NumberLiteral():
                return node.val
            case ast.ParenExpr():
                return self.value(node.expr)
            case ast.VectorSelector():
                return self._latest(node)
            case ast.AggregateExpr():
                return self._aggregated(node)
            case ast.Call():
                return self._called(node)
            case ast.BinaryExpr():
                return self._combined(node)
        raise Unsupported(str(node))

    def _latest(self, selector: ast.VectorSelector) -> Vector:
        window = self.samples.window(selector, self.at_s, LOOKBACK_S)
        return {labels: values[-1] for labels, (_, values) in window if values[-1] is not None}

    def _aggregated(self, node: ast.AggregateExpr) -> Vector:
        if str(node.op) not in _AGGREGATION or node.param is not None:
            raise Unsupported(str(node))
        groups: dict[Labels, list[float]] = defaultdict(list)
        for labels, value in self.value(node.expr).items():
            groups[_grouped(labels, node.modifier)].append(value)
        return {labels: float(_AGGREGATION[str(node.op)](values)) for labels, values in groups.items()}

    def _called(self, node: ast.Call) -> Any:
        name, arguments = node.func.name, node.args
        if name == "time":
            return self.at_s
        if name == "round":
            step = self.value(arguments[1]) if len(arguments) > 1 else 1.0
            return {_nameless(k): math.floor(v / step + 0.5) * step for k, v in self.value(arguments[0]).items()}
        if name in {"rate", "increase", *_OVER_TIME}:
            (matrix,) = arguments
            if not isinstance(matrix, ast.MatrixSelector):
                raise Unsupported(str(node))
            return self._ranged(name, matrix)
        raise Unsupported(name)

    def _ranged(self, name: str, matrix: ast.MatrixSelector) -> Vector:
        range_s, result = matrix.range.total_seconds(), {}
        offset = matrix.vector_selector.offset
        end_s = self.at_s - (offset.total_seconds() if offset else 0.0)
        for labels, (times, marked) in self.samples.window(matrix.vector_selector, self.at_s, range_s):
            points = [(at, value) for at, value in zip(times, marked, strict=True) if value is not None]
            values = [value for _, value in points]
            if name in _OVER_TIME and values:
                result[labels if name == "last_over_time" else _nameless(labels)] = float(_OVER_TIME[name](values))
            elif name not in _OVER_TIME and len(values) > 1:
                grown = _increase(points[0][0], points[-1][0], values, end_s, range_s)
                result[_nameless(labels)] = grown / range_s if name == "rate" else grown
        return result

    def _combined(self, node: ast.BinaryExpr) -> Any:
        op, left, right = str(node.op), self.value(node.lhs), self.value(node.rhs)
        keeps = op in _COMPARISON and not (node.modifier and node.modifier.return_bool)
        if isinstance(left, dict) and isinstance(right, dict):
            return _of_vectors(op, left, right, node.modifier, keeps=keeps)
        if isinstance(left, dict):
            pairs = {labels: (value, right, value) for labels, value in left.items()}
        elif isinstance(right, dict):
            pairs = {labels: (left, value, value) for labels, value in right.items()}
        else:
            return float((_ARITHMETIC | _COMPARISON)[op](left, right))
        return _applied(op, pairs, keeps=keeps)


def _applied(op: str, pairs: Mapping[Labels, tuple[float, float, float]], *, keeps: bool) -> Vector:
    """Left side, right side and what a filter keeps, for each result."""
    if keeps:
        return {labels: kept for labels, (a, b, kept) in pairs.items() if _COMPARISON[op](a, b)}
    function = (_ARITHMETIC | _COMPARISON)[op]
    return {_nameless(labels): float(function(a, b)) for labels, (a, b, _) in pairs.items()}


def _of_vectors(op: str, left: Vector, right: Vector, modifier: ast.BinModifier | None, *, keeps: bool) -> Vector:
    matching = modifier.matching if modifier else None
    if op in ("and", "unless"):
        there = {_key(labels, matching) for labels in right}
        return {k: v for k, v in left.items() if (_key(k, matching) in there) == (op == "and")}
    if op == "or":
        there = {_key(labels, matching) for labels in left}
        return left | {k: v for k, v in right.items() if _key(k, matching) not in there}
    card = modifier.card if modifier else ast.VectorMatchCardinality.OneToOne
    if card == ast.VectorMatchCardinality.OneToMany or (modifier and modifier.group_labels):
        raise Unsupported(f"{op} with group_right or with labels of the other side")
    many = card == ast.VectorMatchCardinality.ManyToOne
    others: dict[Labels, float] = {}
    for labels, value in right.items():
        if others.setdefault(_key(labels, matching), value) is not value:
            raise ValueError(f"{op}: several series of the right side match")
    pairs: dict[Labels, tuple[float, float, float]] = {}
    for labels, value in left.items():
        key = _key(labels, matching)
        if key in others:
            result = labels if many or keeps else key
            if result in pairs:
                raise ValueError(f"{op}: several series of the left side match")
            pairs[result] = (value, others[key], value)
    return _applied(op, pairs, keeps=keeps)


def _key(labels: Labels, matching: ast.LabelModifier | None) -> Labels:
    """The labels that two series have to share."""
    if matching is None:
        return _nameless(labels)
    listed = matching.type == ast.LabelModifierType.Include
    return frozenset(p for p in labels if p[0] != NAME and (p[0] in matching.labels) == listed)


def _grouped(labels: Labels, modifier: ast.AggModifier | None) -> Labels:
    if modifier is None:
        return frozenset()
    by = modifier.type == ast.AggModifierType.By
    return frozenset(p for p in labels if (p[0] in modifier.labels) == by and (by or p[0] != NAME))


def _nameless(labels: Labels) -> Labels:
    return frozenset(pair for pair in labels if pair[0] != NAME)


def _increase(first_s: float, last_s: float, values: Sequence[float], end_s: float, range_s: float) -> float:
    """By how much a counter grew, resets added and extrapolated to the window as Prometheus does."""
    first = values[0]
    resets = sum(before for before, after in pairwise(values) if after < before)
    grown = values[-1] - first + resets
    sampled_s = last_s - first_s
    between_s = sampled_s / (len(values) - 1)
    to_start_s, to_end_s = first_s - (end_s - range_s), end_s - last_s
    if to_start_s >= 1.1 * between_s:
        to_start_s = between_s / 2
    if grown > 0 and first >= 0:
        # A counter is not extrapolated below zero.
        to_start_s = min(to_start_s, sampled_s * first / grown)
    if to_end_s >= 1.1 * between_s:
        to_end_s = between_s / 2
    return grown * (sampled_s + to_start_s + to_end_s) / sampled_s
