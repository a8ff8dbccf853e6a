"""The evaluator of rules: each figure as Prometheus' engine has it, and a refusal where it would have to guess."""

from __future__ import annotations

import pytest

from tests.support.promql import Samples, Unsupported, Vector, evaluate
from tests.support.rule_tests import RuleRun, expanded, rendered


def samples(left_open: bool = False) -> Samples:
    """Ten minutes of two counters, one of which begins anew after five, and of two gauges."""
    found = Samples(left_open)
    for minute in range(11):
        found.add({"__name__": "calls", "code": "OK", "i": "a"}, 60.0 * minute, 6.0 * minute)
        found.add({"__name__": "calls", "code": "NO", "i": "a"}, 60.0 * minute, 6.0 * (minute % 6))
        found.add({"__name__": "up", "i": "a"}, 60.0 * minute, 1.0)
        if minute < 4:
            found.add({"__name__": "up", "i": "b"}, 60.0 * minute, 0.0)
    found.add({"__name__": "gone"}, 0.0, 1.0)
    found.add({"__name__": "gone"}, 60.0, None)
    return found


def at_ten(expression: str, left_open: bool = False) -> dict[str, float]:
    value = evaluate(expression, samples(left_open), 600.0)
    return {",".join(sorted(v for k, v in labels if k != "__name__")): n for labels, n in vector(value).items()}


def vector(value: Vector | float) -> Vector:
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("calls", {"OK,a": 60.0, "NO,a": 24.0}),
        ('calls{code!="OK"}', {"NO,a": 24.0}),
        ('calls{code=~"O.|X"}', {"OK,a": 60.0}),
        ("up", {"a": 1.0}),
        ("up offset 5m", {"a": 1.0, "b": 0.0}),
        ('increase(calls{code="OK"}[5m])', {"OK,a": 30.0}),
        ('rate(calls{code="OK"}[5m])', {"OK,a": 0.1}),
        ('increase(calls{code="NO"}[5m])', {"NO,a": 24.0}),
        ("sum(calls)", {"": 84.0}),
        ("sum by (code) (calls)", {"OK": 60.0, "NO": 24.0}),
        ("sum without (code) (calls)", {"a": 84.0}),
        ("max by (i) (calls) - min by (i) (calls)", {"a": 36.0}),
        ("count(calls) * 2", {"": 4.0}),
        ("avg(calls)", {"": 42.0}),
        ("calls > 50", {"OK,a": 60.0}),
        ("calls > bool 50", {"OK,a": 1.0, "NO,a": 0.0}),
        ("100 - calls", {"OK,a": 40.0, "NO,a": 76.0}),
        ("calls / on (i) group_left () sum by (i) (calls) > 0.5", {"OK,a": 60 / 84}),
        ("calls and on (i) up", {"OK,a": 60.0, "NO,a": 24.0}),
        ("calls unless on (i) up", {}),
        ('sum by (i) (calls{code="OK"}) or up', {"a": 60.0}),
        ("min_over_time(calls[3m])", {"OK,a": 42.0, "NO,a": 6.0}),
        ("last_over_time(up[1h])", {"a": 1.0, "b": 0.0}),
        ("time() - (up > 0) * 100", {"a": 500.0}),
        ("round(calls / 7, 0.5)", {"OK,a": 8.5, "NO,a": 3.5}),
        ("gone", {}),
        ("rate(gone[1h])", {}),
    ],
)
def test_an_expression_has_the_value_that_prometheus_gives_it(expression, value):
    """Selectors, windows with a reset, groups, filters and matching."""
    assert at_ten(expression) == {labels: pytest.approx(number) for labels, number in value.items()}


def test_the_two_generations_differ_at_the_beginning_of_a_window():
    """The sample that lies just there is in it, or is not."""
    assert at_ten("count_over_time(up[5m])") == {"a": 6.0}
    assert at_ten("count_over_time(up[5m])", left_open=True) == {"a": 5.0}
    assert at_ten('increase(calls{code="OK"}[5m])', left_open=True) == {"OK,a": pytest.approx(30.0)}


@pytest.mark.parametrize(
    "expression",
    ["absent(up)", "up @ 5", "quantile(0.5, up)", "max_over_time(up[5m:1m])", "-up", "up * on (i) group_right () up"],
)
def test_what_it_does_not_know_is_refused(expression):
    """Rather than be taken for nothing."""
    with pytest.raises(Unsupported):
        evaluate(expression, samples(), 600.0)


@pytest.mark.parametrize("expression", ["rate(up)", "sum by (", "nothing_such(up)"])
def test_what_is_no_promql_is_refused(expression):
    """By the grammar, and by the types of functions."""
    with pytest.raises(ValueError, match=r"\w"):
        evaluate(expression, samples(), 600.0)


def test_a_recorded_series_ends_where_its_expression_ends():
    """A staleness marker, as Prometheus writes one: the last value is not seen for five minutes more."""
    found = samples()
    run = RuleRun([{"name": "g", "rules": [{"record": "r", "expr": "up == 0"}]}], found)

    run.step(180.0)
    seen = evaluate("r", found, 180.0)
    run.step(600.0)

    assert vector(seen) == {frozenset({("__name__", "r"), ("i", "b")}): 0.0}
    assert evaluate("r", found, 600.0) == {}


def test_an_alert_fires_when_its_time_has_passed_without_a_break():
    """And not before; its labels are those of the series and of the rule."""
    rule = {"alert": "A", "expr": "up == 1", "for": "2m", "labels": {"s": "page"}, "annotations": {"x": "{{ $value }}"}}
    run = RuleRun([{"name": "g", "rules": [rule]}], samples())
    fired = []
    for minute in range(4):
        run.step(60.0 * minute)
        fired.append(run.firing("A"))

    alert = {"exp_labels": {"i": "a", "s": "page"}, "exp_annotations": {"x": "1"}}
    assert fired == [[], [], [alert], [alert]]


def test_a_line_of_values_is_written_out():
    """Steps, repetitions and gaps."""
    assert expanded("1+2x3 5x1 _ _x2 -1") == [1, 3, 5, 7, 5, 5, None, None, None, -1]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ $labels.job }}: {{ $value }}", "abridged: 2400"),
        ("{{ $value | humanize }}", "2.4k"),
        ("{{ $value | humanizeDuration }}", "40m 0s"),
        ("{{ $value | humanizePercentage }}", "2.4e+05%"),
    ],
)
def test_an_annotation_is_written_as_prometheus_writes_it(template, text):
    """Labels, and the value in its forms."""
    assert rendered(template, {"job": "abridged"}, 2_400.0) == text


def test_an_unknown_template_is_refused():
    """It would be sent to somebody at night."""
    with pytest.raises(Unsupported):
        rendered("{{ query `up` }}", {}, 1.0)
