"""Reads the figures of a scrape: counts over the read table, sizes of the log.

A look never runs on the event loop, and one runs at a time however many ask: a disk that hangs costs one thread of the
pool, and scrapes report within `LOOK_S` that the figures are unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from abridged.eventlog.errors import EventLogError
from abridged.observability.facts import ConversationsCounted, LogMeasured, RecallMeasured
from abridged.observability.metrics import Metrics
from abridged.service.conversations.table import ConversationTable

LOOK_S = 2.0
"""A scrape has 10 s by Prometheus' default; a count reads only the conversations that it counts."""


class Look:
    """Calling it sets the gauges.

    `measured` says how large the log is, None for a log without a file; `recall` how far the search index is, None
    without one.
    """

    def __init__(
        self,
        metrics: Metrics,
        table: ConversationTable,
        measured: Callable[[], LogMeasured] | None,
        *,
        recall: Callable[[], RecallMeasured] | None = None,
        patience_s: float = LOOK_S,
    ) -> None:
        self._metrics = metrics
        self._table = table
        self._measured = measured
        self._recall = recall
        self._patience_s = patience_s
        self._looking: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(asyncio.to_thread(self._look))
        finished, _ = await asyncio.wait({self._looking}, timeout=self._patience_s)
        if not finished:
            self._metrics.conversations_counted(None)
            self._metrics.log_measured(None)
        for look in finished:
            look.result()

    def _look(self) -> None:
        self._metrics.log_measured(self._log())
        self._metrics.conversations_counted(self._conversations())
        if self._recall is not None:
            self._metrics.recall_measured(self._recall())

    def _log(self) -> LogMeasured | None:
        try:
            return self._measured() if self._measured is not None else None
        except OSError:
            return None

    def _conversations(self) -> ConversationsCounted | None:
        try:
            standing = self._table.standing()
        except EventLogError:
            return None
        held = {reason.value: count for reason, count in standing.held.items()}
        return ConversationsCounted(standing.over_budget, held)
