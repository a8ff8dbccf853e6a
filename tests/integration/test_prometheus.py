"""A real Prometheus scrapes the HTTP port, and its own query API returns the samples."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import time
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from abridged.observability.facts import PassEnded, PassOutcome
from abridged.observability.metrics import Metrics
from abridged.service.api.http import HttpServer, metrics_route
from abridged.service.domain.events import Trigger
from abridged.service.telemetry.telemetry import metric_labels

RULES = Path(__file__).parents[2] / "observability" / "rules" / "abridged.yml"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
DEADLINE_S = 40
POLL_S = 0.2


class Prometheus:
    """The query API of a running server."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1/"

    async def ask(self, path: str, **parameters: str | float) -> Any:
        """The `data` of one answer; None if the server does not answer."""

        def read() -> Any:
            try:
                with urlopen(f"{self._base}{path}?{urlencode(parameters)}", timeout=5) as answer:
                    return json.load(answer)["data"]
            except (URLError, ConnectionError):
                return None

        return await asyncio.to_thread(read)

    async def value(self, query: str) -> float | None:
        """The value of a query that has one series; None while it has none."""
        data = await self.ask("query", query=query)
        return float(data["result"][0]["value"][1]) if data and data["result"] else None

    async def until(self, query: str, expected: float) -> float | None:
        """The value when it is as expected, or the last one seen when the time is up."""
        seen = None
        for _ in range(int(DEADLINE_S / POLL_S)):
            seen = await self.value(query)
            if seen == pytest.approx(expected, abs=1e-9):
                break
            await asyncio.sleep(POLL_S)
        return seen


@asynccontextmanager
async def scraping(binary: str, target: int, folder: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes port `target` every second with our rules loaded."""
    config = folder / "prometheus.yml"
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "abridged", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
    }
    config.write_text(json.dumps(settings))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
        "--log.level=error",
    )
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        await process.wait()


async def test_prometheus_finds_our_trace_and_the_success_ratio_of_the_ledger(tmp_path: Path) -> None:
    """The recorded ratio of a thousand random outcomes equals the ledger's, and an exemplar leads to a trace."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    metrics = Metrics(version="1.2.3", labels=metric_labels(models=("ollama:a",)))
    server = HttpServer("127.0.0.1", 0, routes=metrics_route(metrics))
    port = await server.start()
    dice = random.Random(7)
    ledger = Counter(dice.choices(list(PassOutcome), weights=(8, 1, 1, 1, 3, 1), k=1_000))

    async with scraping(binary, port, tmp_path) as prometheus:
        assert await prometheus.until('up{job="abridged"}', 1) == 1
        assert await prometheus.until("sum(abridged_summarizations_total)", 0) == 0
        for outcome in ledger.elements():
            fact = PassEnded(outcome, Trigger.RATIO, model="ollama:a", duration_s=1.0, trace_id=TRACE_ID)
            metrics.pass_ended(fact)

        counted = sum(ledger[outcome] for outcome in (PassOutcome.SUCCESS, PassOutcome.FALLBACK, PassOutcome.ERROR))
        ratio = ledger[PassOutcome.SUCCESS] / counted
        seen = await prometheus.until("job:abridged_summarizations_success:ratio_rate5m", ratio)
        exemplars = await prometheus.ask(
            "query_exemplars",
            query='abridged_summarizations_total{outcome="success"}',
            start=time() - 60,
            end=time() + 60,
        )
        build = await prometheus.value('abridged_build_info{version="1.2.3"}')

    await server.close()
    assert seen == pytest.approx(ratio, abs=1e-9)
    assert [e["labels"] for found in exemplars for e in found["exemplars"]] == [{"trace_id": TRACE_ID}]
    assert build == 1
