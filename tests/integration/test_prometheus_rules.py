"""Rules and dashboard: they parse, they do what they say, and they name nothing that is not there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import Metric

from observability.metrics import MetricLabels, Metrics
from tests.support.metric_lint import lint
from tests.support.rule_tests import problems_of, rendered

OBSERVABILITY = Path(__file__).parents[2] / "observability"
RULES = OBSERVABILITY / "rules" / "abridged.yml"
RULE_TESTS = sorted(RULES.parent.glob("*_test.yml"))
DASHBOARD = OBSERVABILITY / "dashboards" / "abridged.json"
OPERATIONS = OBSERVABILITY.parent / "docs" / "operations.md"

_NAME = re.compile(r"\b(?:abridged|process|python)_[a-z_]+\b(?!:)|\bjob:[a-z_]+:[a-z0-9_]+\b")
_LABELS = re.compile(r"\{([^}]*)\}")


def live() -> Metrics:
    return Metrics(
        version="1",
        labels=MetricLabels(
            models=("m",), hosts=("h:1",), methods=("s/m",), timed_methods=("s/m",), event_types=("E",)
        ),
    )


def exposed_names() -> set[str]:
    return {sample.name for family in live().collect() for sample in family.samples}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


def test_the_rules_are_lawful() -> None:
    """Groups and rules have names, each once; expressions, durations and templates can be read."""
    document = yaml.safe_load(RULES.read_text())
    groups = [group["name"] for group in document["groups"]]
    names = [rule.get("record") or rule["alert"] for rule in rules()]

    assert set(document) == {"groups"}
    assert sorted(set(groups)) == sorted(groups)
    assert sorted(set(names)) == sorted(names)
    for rule in rules():
        assert ("record" in rule) != ("alert" in rule)
        assert re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", rule.get("record") or rule["alert"])
        promql_parser.parse(rule["expr"])
        if "for" in rule:
            promql_parser.parse_duration(rule["for"])
        for annotation in rule.get("annotations", {}).values():
            assert "{{" not in rendered(annotation, {}, 60.0)


@pytest.mark.parametrize("left_open", [False, True], ids=["as-prometheus-2", "as-prometheus-3"])
@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: path.stem)
def test_each_rule_fires_when_it_should_and_only_then(path: Path, left_open: bool) -> None:
    """The tests of every row, in promtool's own format, pass by an evaluation that needs no promtool."""
    assert problems_of(path, left_open=left_open) == []


@pytest.mark.parametrize(
    ("rule", "instead"),
    [
        ("> 14.4 * 0.01", "> 30 * 0.01"),
        ("> 3 * 0.01", "> 1 * 0.01"),
        ("increase1h >= 20", "increase1h >= 2000"),
        ("for: 15m", "for: 40m"),
        ("for: 2m", "for: 30m"),
        ("> 1800", "> 60"),
        ("min_over_time(", "max_over_time("),
        ("[7d]", "[1d]"),
        ("sum by (job, instance, code)", "sum by (job, instance)"),
        ("> 0.01\n        for: 5m", "> 0.5\n        for: 5m"),
        ('code="DATA_LOSS"', 'code="OK"'),
        ('outcome=~"success|fallback|error"}[5m', 'outcome=~".+"}[5m'),
        ("severity: page", "severity: ticket"),
        ("humanizeDuration", "humanize"),
    ],
)
def test_a_rule_that_was_changed_fails_its_tests(tmp_path: Path, rule: str, instead: str) -> None:
    """Thresholds, windows, waits, labels and texts: the tests hold each of them, and their evaluation sees it."""
    assert rule in RULES.read_text()
    (tmp_path / RULES.name).write_text(RULES.read_text().replace(rule, instead))
    for path in RULE_TESTS:
        (tmp_path / path.name).write_text(path.read_text())

    # The test of minutes first: it finds most of them, sooner than the one of days.
    assert any(problems_of(tmp_path / path.name, left_open=False) for path in reversed(RULE_TESTS))


def test_every_alert_is_tested_both_ways() -> None:
    """Each alert has a row in which it fires and one in which it does not; rows of single instances do both at once."""
    rows = [
        (row["alertname"], bool(row["exp_alerts"]))
        for path in RULE_TESTS
        for test in yaml.safe_load(path.read_text())["tests"]
        for row in test.get("alert_rule_test", ())
    ]
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}

    assert {name for name, fires in rows if fires} == alerts
    by_instance = {"AbridgedBreakerOpen", "AbridgedProjectionBehind"}
    assert {name for name, fires in rows if not fires} >= alerts - by_instance


def test_the_exposition_passes_the_lint_of_prometheus() -> None:
    """Names, units, types and help texts of our own families are as Prometheus advises."""
    families = [family for family in live().collect() if family.name.startswith("abridged_")]

    assert [fault for family in families for fault in lint(family)] == []
    assert len(families) > 15


@pytest.mark.parametrize(
    "family",
    [
        Metric("abridged_passes", "", "gauge"),
        Metric("abridged_wait_milliseconds", "Waits.", "gauge"),
        Metric("abridged_wait_ms", "Waits.", "gauge"),
        Metric("abridged_openPasses", "Passes.", "gauge"),
        Metric("abridged:passes", "Passes.", "gauge"),
        Metric("abridged_passes_gauge", "Passes.", "gauge"),
        Metric("abridged_passes_total", "Passes.", "gauge"),
        Metric("abridged_passes_count", "Passes.", "gauge"),
    ],
    ids=lambda family: family.name,
)
def test_a_planted_metric_of_bad_form_is_found(family: Metric) -> None:
    """Each kind of fault that the linter knows."""
    assert list(lint(family))


def test_rules_and_dashboard_name_only_what_exists() -> None:
    """Every metric in an expression is exposed by the service or recorded by a rule."""
    known = exposed_names() | {rule["record"] for rule in rules() if "record" in rule}
    named = {name for expression in expressions() for name in _NAME.findall(_LABELS.sub("", expression))}

    assert named <= known
    assert len(named) > 20


def test_the_dashboard_shows_every_instrument() -> None:
    """No metric is counted that nobody can see."""
    shown = " ".join(expressions())
    families = {family.name for family in live().collect() if family.name.startswith("abridged_")}

    assert {name for name in families if name not in shown} == set()


def test_the_dashboard_can_be_imported_anywhere() -> None:
    """Fixed uid, a data source variable, the rate interval of the data source, a unit and a description a panel."""
    board = json.loads(DASHBOARD.read_text())

    assert board["uid"] == "abridged"
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "job", "instance"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels():
        assert panel["description"].strip()
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert re.search(r"rate\(", target["expr"]) is None or "[$__rate_interval]" in target["expr"]


def test_panels_do_not_overlap() -> None:
    """The grid is 24 wide and each cell belongs to one panel."""
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_expressions_of_the_dashboard_parse() -> None:
    """Each of them, with the interval that Grafana puts in."""
    for expression in expressions():
        promql_parser.parse(expression.replace("$__rate_interval", "5m"))


def test_every_instrument_and_alert_is_explained_in_the_operations_page() -> None:
    """The page has a line for each metric and a heading for each runbook, and names no metric that is gone."""
    page = OPERATIONS.read_text()
    anchors = {"#" + heading.strip().lower() for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    families = {
        family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        for family in live().collect()
        if family.name.startswith("abridged_")
    }

    assert {name for name in families if f"`{name}" not in page} == set()
    assert {
        rule["annotations"]["runbook"].partition("docs/operations.md")[2] for rule in rules() if "alert" in rule
    } <= anchors
    listed = set(re.findall(r"`(abridged_[a-z_]+)", page))
    assert listed <= families | exposed_names()
