"""What a Prometheus understands of the HTTP port: scraped over real HTTP, read by the reference parser of OpenMetrics,
and put to our own rules."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from observability.facts import PassEnded, PassOutcome, PassTrigger
from observability.metrics import MetricLabels, Metrics
from service.api.http import HttpServer, metrics_route
from tests.support.promql import Samples, evaluate
from tests.support.rule_tests import RuleRun

RULES = Path(__file__).parents[2] / "observability" / "rules" / "abridged.yml"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TARGET = {"job": "abridged", "instance": "a"}
EVERY_S = 15.0
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


async def scraped(port: int, samples: Samples, at_s: float) -> list[Any]:
    """Take every sample of the port into `samples`, as of `at_s`; the samples as they came."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"http://127.0.0.1:{port}/metrics", headers={"accept": OPENMETRICS})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]  # the library's own gap
    found = [sample for family in families for sample in family.samples]
    for sample in found:
        samples.add({**sample.labels, **TARGET, "__name__": sample.name}, at_s, sample.value)
    return found


async def test_a_scrape_carries_our_trace_and_the_success_ratio_of_the_ledger() -> None:
    """Over a thousand random outcomes the recorded ratio equals the ledger's, and an exemplar leads to a trace."""
    metrics = Metrics(version="1.2.3", labels=MetricLabels(models=("ollama:a",)))
    server = HttpServer("127.0.0.1", 0, routes=metrics_route(metrics))
    port = await server.start()
    dice = random.Random(7)
    ledger = Counter(dice.choices(list(PassOutcome), weights=(8, 1, 1, 3, 1), k=1_000))
    samples = Samples()
    run = RuleRun(yaml.safe_load(RULES.read_text())["groups"][:1], samples)

    await scraped(port, samples, 0.0)
    assert evaluate("sum(abridged_summarizations_total)", samples, 0.0) == {frozenset(): 0.0}
    for outcome in ledger.elements():
        fact = PassEnded(outcome, PassTrigger.RATIO, model="ollama:a", duration_s=1.0, trace_id=TRACE_ID)
        metrics.pass_ended(fact)
    found = await scraped(port, samples, EVERY_S)
    run.step(EVERY_S)
    await server.close()

    counted = sum(ledger[outcome] for outcome in (PassOutcome.SUCCESS, PassOutcome.FALLBACK, PassOutcome.ERROR))
    recorded = evaluate("job:abridged_summarizations_success:ratio_rate5m", samples, EVERY_S)
    assert isinstance(recorded, dict)
    assert list(recorded.values()) == [pytest.approx(ledger[PassOutcome.SUCCESS] / counted, abs=1e-9)]
    named = [s for s in found if s.name == "abridged_summarizations_total" and s.labels["outcome"] == "success"]
    assert [s.exemplar.labels for s in named if s.exemplar] == [{"trace_id": TRACE_ID}]
    assert [s.labels["version"] for s in found if s.name == "abridged_build_info"] == ["1.2.3"]
