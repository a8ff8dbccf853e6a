"""Rules and dashboard: they parse, they do what they say, and they name nothing that is not there."""

from __future__ import annotations

import ast
import fnmatch
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from abridged.observability.metrics import Metrics
from abridged.service.telemetry.telemetry import metric_labels
from tests.support.patience import PATIENCE_S

OBSERVABILITY = Path(__file__).parents[2] / "observability"
RULES = OBSERVABILITY / "rules" / "abridged.yml"
RULE_TESTS = sorted(RULES.parent.glob("*_test.yml"))
DASHBOARD = OBSERVABILITY / "dashboards" / "abridged.json"
DEPLOY = OBSERVABILITY.parent / "deploy"
DOCS = OBSERVABILITY.parent / "docs"
PRODUCT = [OBSERVABILITY, OBSERVABILITY.parent / "service", OBSERVABILITY.parent / "eventlog"]

_NAME = re.compile(r"\b(?:abridged|process|python)_[a-z_]+\b(?!:)|\b(?:job|instance):[a-z_]+:[a-z0-9_]+\b")
_LABELS = re.compile(r"\{([^}]*)\}")
_LOGS = re.compile(r"(?:_?log|structlog\.get_logger\(\))\.(?:debug|info|warning|error|critical)")
_EVENT = re.compile(r"[a-z_]+\.[a-z_]+")


def promtool(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool; skip where Prometheus is not installed."""
    return checker("promtool", *arguments, package="prometheus", stdin=stdin)


def checker(name: str, *arguments: str, package: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a tool of Prometheus' own; skip where its package is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install {package})")
    return subprocess.run([path, *arguments], input=stdin, capture_output=True, text=True, timeout=PATIENCE_S)


def live() -> Metrics:
    return Metrics(
        version="1",
        labels=metric_labels(
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
    """promtool accepts the file."""
    checked = promtool("check", "rules", str(RULES))

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: path.stem)
def test_each_rule_fires_when_it_should_and_only_then(path: Path) -> None:
    """promtool's own tests of every row pass."""
    tested = promtool("test", "rules", str(path))

    assert tested.returncode == 0, tested.stdout + tested.stderr


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
    assert {name for name, fires in rows if not fires} >= alerts - {"AbridgedBreakerOpen"}


def test_every_alert_pages_or_is_a_ticket_and_leads_to_its_runbook():
    """The base of the link is one label of the operator who loads the rules."""
    base = '{{ or $externalLabels.abridged_runbooks "docs/runbook.md" }}'

    alerts = [rule for rule in rules() if "alert" in rule]

    assert {rule["labels"]["severity"] for rule in alerts} == {"page", "ticket"}
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"{base}#{rule['alert'].lower()}"


def test_an_outage_is_tested_by_all_the_alerts_that_it_fires():
    """Rows that name single alerts would not see one more."""
    whole = [
        test["name"]
        for path in RULE_TESTS
        for test in yaml.safe_load(path.read_text())["tests"]
        for row in test.get("promql_expr_test", ())
        if "ALERTS" in row["expr"]
    ]

    assert len(whole) >= 5


def test_the_configuration_of_prometheus_holds_where_compose_puts_it(tmp_path: Path) -> None:
    """The rules lie beside it."""
    (tmp_path / "rules").mkdir()
    shutil.copy(RULES, tmp_path / "rules")
    shutil.copy(DEPLOY / "prometheus.yml", tmp_path)

    checked = promtool("check", "config", str(tmp_path / "prometheus.yml"))

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_inhibitions_are_lawful_and_name_alerts_that_there_are() -> None:
    """Every alert but those that nothing explains is the target of one."""
    path = DEPLOY / "alertmanager.yml"
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    named = set(re.findall(r"Abridged[A-Z]\w+", path.read_text()))
    explained = re.search(r"Abridged\(([^)]+)\)", path.read_text())
    assert explained is not None
    targets = {f"Abridged{name}" for name in explained.group(1).split("|")}

    checked = checker("amtool", "check-config", str(path), package="prometheus-alertmanager")

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert (named | targets) <= alerts
    tickets = {rule["alert"] for rule in rules() if "alert" in rule and rule["labels"]["severity"] == "ticket"}
    assert targets == tickets - {"AbridgedDiskFilling", "AbridgedSearchStopped", "AbridgedSearchLags"}


def test_the_exposition_passes_the_lint_of_prometheus() -> None:
    """promtool check metrics finds nothing to say of our own families."""
    families = [
        line for line in live().exposition()[0].decode().splitlines() if " abridged_" in line or "abridged_" in line
    ]

    checked = promtool("check", "metrics", stdin="\n".join(families) + "\n")

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


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

    assert len(families) > 20
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
    assert taken


def test_the_expressions_of_the_dashboard_parse() -> None:
    """Prometheus itself reads each of them, as a rule."""
    as_rules = [
        {"record": f"panel:n{number}:expr", "expr": expression} for number, expression in enumerate(expressions())
    ]
    text = yaml.safe_dump({"groups": [{"name": "panels", "rules": as_rules}]}).replace("$__rate_interval", "5m")

    checked = promtool("check", "rules", "/dev/stdin", stdin=text)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_instrument_and_alert_is_explained_in_its_page() -> None:
    """One page has a line for each metric, the other a heading for each alert, and neither names a metric that is
    gone."""
    page, runbook = ((DOCS / name).read_text() for name in ("monitoring.md", "runbook.md"))
    anchors = {"#" + heading.strip().lower() for heading in re.findall(r"^#+ (.+)$", runbook, re.MULTILINE)}
    families = {
        family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        for family in live().collect()
        if family.name.startswith("abridged_")
    }

    assert {name for name in families if f"`{name}" not in page} == set()
    assert {f"#{rule['alert'].lower()}" for rule in rules() if "alert" in rule} <= anchors
    listed = set(re.findall(r"`(abridged_[a-z_]+)", page + runbook))
    assert listed - {"abridged_runbooks"} <= families | exposed_names()


def logged(source: Path) -> Iterator[str]:
    """Names of the events that a file logs; of one whose end is computed, the beginning and `*`. A file that logs an
    event by a variable logs all names in it."""
    tree = ast.parse(source.read_text())
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=function, args=[event, *_]) if _LOGS.fullmatch(ast.unparse(function)):
                match event:
                    case ast.Constant(value=str(name)):
                        yield name
                    case ast.JoinedStr(values=[ast.Constant(value=str(begun)), *_]):
                        yield f"{begun}*"
                    case _:
                        texts = (constant.value for constant in ast.walk(tree) if isinstance(constant, ast.Constant))
                        yield from (text for text in texts if isinstance(text, str) and _EVENT.fullmatch(text))


def test_every_line_of_the_log_is_explained_in_its_page() -> None:
    """The page has a row for each event that the code logs, and no event that no code names."""
    sources = [path for folder in PRODUCT for path in folder.rglob("*.py")]
    rows = re.findall(r"^\| (`[a-z_]+\.[a-z_]+`[^|]*) \|", (DOCS / "monitoring.md").read_text(), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    names = {name for path in sources for name in logged(path)}
    code = "".join(path.read_text() for path in sources)

    assert {name for name in names if not fnmatch.filter(listed, name)} == set()
    assert len(names) > 60
    computed = {known for name in names if "*" in name for known in fnmatch.filter(listed, name)}
    assert {name for name in listed - computed if f'"{name}"' not in code} == set()
