"""Runs rule tests of Prometheus' own format without it: what `promtool test rules` does, over tests.support.promql.

Differences to it are refused, not guessed: a key that is not known here raises, and so does an expression.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import promql_parser
import yaml

from tests.support.promql import Labels, Samples, Unsupported, Vector, evaluate

__all__ = ["RuleRun", "expanded", "problems_of", "rendered"]

_ITEM = re.compile(r"(?P<value>_|-?[\d.]+)(?P<step>[+-][\d.]+)?(?:x(?P<times>\d+))?")
_LABEL = re.compile(r'\s*(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"\s*')
_TEMPLATE = re.compile(r"\{\{\s*(?:\$labels\.(?P<label>\w+)|\$value(?:\s*\|\s*(?P<function>\w+))?)\s*\}\}")
_NAME = re.compile(r"[A-Za-z_:][\w:]*")
_TEST_KEYS = {"name", "interval", "input_series", "alert_rule_test", "promql_expr_test"}
_RULE_KEYS = {"record", "alert", "expr", "for", "labels", "annotations"}


@dataclass
class _Alert:
    active_since_s: float
    value: float


@dataclass
class RuleRun:
    """The rules of some groups, evaluated at one instant after the other."""

    groups: Sequence[Mapping[str, Any]]
    samples: Samples
    _alerts: dict[str, dict[Labels, _Alert]] = field(default_factory=dict)
    _recorded: dict[tuple[int, int], set[Labels]] = field(default_factory=dict)
    _at_s: float = 0.0

    def step(self, at_s: float) -> None:
        """Evaluate every rule once, in order: a later rule sees what an earlier one has recorded."""
        self._at_s = at_s
        for number, group in enumerate(self.groups):
            for place, rule in enumerate(group["rules"]):
                if strange := set(rule) - _RULE_KEYS:
                    raise Unsupported(f"{strange} of a rule")
                found = evaluate(rule["expr"], self.samples, at_s)
                assert isinstance(found, dict), f"{rule} is no vector"
                if "record" in rule:
                    self._record(rule, found, (number, place))
                else:
                    self._alert(rule, found)

    def firing(self, name: str) -> list[dict[str, Any]]:
        """The alerts of this name that fire after the last step: labels and annotations."""
        (rule,) = [rule for group in self.groups for rule in group["rules"] if rule.get("alert") == name]
        for_s = _seconds(rule["for"]) if "for" in rule else 0.0
        return [
            {
                "exp_labels": dict(labels) | rule.get("labels", {}),
                "exp_annotations": {k: rendered(v, dict(labels), alert.value) for k, v in rule["annotations"].items()},
            }
            for labels, alert in self._alerts.get(name, {}).items()
            if self._at_s - alert.active_since_s >= for_s
        ]

    def _record(self, rule: Mapping[str, Any], found: Vector, place: tuple[int, int]) -> None:
        gone = self._recorded.get(place, set()) - set(found)
        self._recorded[place] = set(found)
        for labels in (*found, *gone):
            named = dict(labels) | rule.get("labels", {}) | {"__name__": rule["record"]}
            self.samples.add(named, self._at_s, found.get(labels))

    def _alert(self, rule: Mapping[str, Any], found: Vector) -> None:
        known = self._alerts.get(rule["alert"], {})
        active: dict[Labels, _Alert] = {}
        for labels, value in found.items():
            nameless = frozenset(pair for pair in labels if pair[0] != "__name__")
            since_s = known[nameless].active_since_s if nameless in known else self._at_s
            active[nameless] = _Alert(since_s, value)
        self._alerts[rule["alert"]] = active


def problems_of(path: Path, *, left_open: bool) -> list[str]:
    """What is not as the file of tests expects; each sentence names test and time."""
    document = _read(path)
    groups = [group for name in document["rule_files"] for group in _read(path.parent / name)["groups"]]
    order = document.get("group_eval_order", [])
    groups.sort(key=lambda group: order.index(group["name"]) if order else 0)
    interval_s = _seconds(document.get("evaluation_interval", "1m"))
    return [p for test in document["tests"] for p in _problems_of_test(test, groups, interval_s, left_open)]


def _read(path: Path) -> Any:
    """Every scalar as the text that it is: `0x60` of a series is no number in hexadecimal."""
    return yaml.load(path.read_text(), yaml.BaseLoader)


def _problems_of_test(
    test: Mapping[str, Any], groups: Sequence[Mapping[str, Any]], interval_s: float, left_open: bool
) -> Iterator[str]:
    if strange := set(test) - _TEST_KEYS:
        raise Unsupported(f"{strange} of a rule test")
    samples = Samples(left_open)
    for series in test["input_series"]:
        labels = _series(series["series"])
        for place, value in enumerate(expanded(series["values"])):
            if value is not None:
                samples.add(labels, place * _seconds(test["interval"]), value)
    expected = sorted(
        [*test.get("alert_rule_test", ()), *test.get("promql_expr_test", ())], key=lambda e: _seconds(e["eval_time"])
    )
    run = RuleRun(_needed(groups, expected), samples)
    next_s = 0.0
    for expectation in expected:
        at_s = _seconds(expectation["eval_time"])
        while next_s <= at_s:
            run.step(next_s)
            next_s += interval_s
        where = f"{test['name']!r} at {expectation['eval_time']}"
        if "alertname" in expectation:
            yield from _alert_problems(where, expectation, run.firing(expectation["alertname"]))
        else:
            yield from _value_problems(where, expectation, evaluate(expectation["expr"], samples, at_s))


def _needed(groups: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The groups with the rules that the expectations are about, and those that these read; the others cost time."""
    named = {name for e in expected for name in _NAME.findall(e.get("alertname") or e["expr"])}
    rules = [rule for group in groups for rule in group["rules"]]
    while found := {n for r in rules if _name(r) in named for n in _NAME.findall(r["expr"])} - named:
        named |= found
    return [{**group, "rules": [rule for rule in group["rules"] if _name(rule) in named]} for group in groups]


def _name(rule: Mapping[str, Any]) -> str:
    return str(rule.get("alert") or rule["record"])


def _alert_problems(where: str, expectation: Mapping[str, Any], firing: list[dict[str, Any]]) -> Iterator[str]:
    left = list(firing)
    for wanted in expectation["exp_alerts"]:
        if wanted in left:
            left.remove(wanted)
        else:
            yield f"{where}: {expectation['alertname']} does not fire as {wanted}, but as {firing}"
    yield from (f"{where}: {expectation['alertname']} fires as {alert}" for alert in left)


def _value_problems(where: str, expectation: Mapping[str, Any], found: Vector | float) -> Iterator[str]:
    values = found if isinstance(found, dict) else {frozenset[tuple[str, str]](): found}
    wanted = {frozenset(_series(s["labels"]).items()): float(s["value"]) for s in expectation["exp_samples"]}
    same = values.keys() == wanted.keys() and all(math.isclose(values[k], wanted[k], rel_tol=1e-9) for k in wanted)
    if not same:
        yield f"{where}: {expectation['expr']} is {values}, not {wanted}"


def expanded(values: str) -> list[float | None]:
    """The samples that a line of `values` stands for, None for a gap: `1+2x3` is 1 3 5 7, `_x2` is two gaps."""
    result: list[float | None] = []
    for item in values.split():
        parts = _ITEM.fullmatch(item)
        if parts is None:
            raise Unsupported(f"{item} in values")
        times = int(parts["times"] or 0)
        if parts["value"] == "_":
            result += [None] * (times or 1)
        else:
            result += [float(parts["value"]) + n * float(parts["step"] or 0) for n in range(times + 1)]
    return result


def _series(text: str) -> dict[str, str]:
    name, _, labels = text.partition("{")
    found = dict(_LABEL.findall(labels))
    return found | ({"__name__": name.strip()} if name.strip() else {})


def _seconds(duration: str) -> float:
    return promql_parser.parse_duration(duration).total_seconds()


def rendered(template: str, labels: Mapping[str, str], value: float) -> str:
    """An annotation; raises Unsupported for what is neither a label nor the value by a function that is known here."""

    def part(found: re.Match[str]) -> str:
        if found["label"]:
            return labels.get(found["label"], "")
        if found["function"] and found["function"] not in _HUMANIZE:
            raise Unsupported(found["function"])
        return _HUMANIZE[found["function"]](value) if found["function"] else f"{value:.15g}"

    text = _TEMPLATE.sub(part, template)
    if "{{" in text:
        raise Unsupported(text)
    return text


def _percentage(value: float) -> str:
    return f"{value * 100:.4g}%"


def _humanized(value: float) -> str:
    for power, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= power:
            return f"{value / power:.4g}{prefix}"
    if 0 < abs(value) < 1:
        raise Unsupported(f"humanize of {value}")
    return f"{value:.4g}"


def _humanized_duration(value: float) -> str:
    if value < 60:
        raise Unsupported(f"humanizeDuration of {value}")
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    while parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{count}{unit}" for count, unit in parts)


_HUMANIZE: Mapping[str, Callable[[float], str]] = {
    "humanize": _humanized,
    "humanizeDuration": _humanized_duration,
    "humanizePercentage": _percentage,
}
