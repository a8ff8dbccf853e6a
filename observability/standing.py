"""Gauges of current state, computed at each scrape: conversations over budget or held, room on the log's volume.

An unknown value is NaN: a 0 would be good news, and NaN makes no alert's comparison true.
"""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, Gauge

from observability.facts import ConversationsCounted, HeldBy, LogMeasured

__all__ = ["StandingInstruments"]


class StandingInstruments:
    """The gauges; all are 0 until they are first set."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._over_budget = Gauge(
            "abridged_conversations_over_budget",
            "How many conversations have a window over their budget?",
            registry=registry,
        )
        held = Gauge(
            "abridged_conversations_held",
            "How many windows past their trigger did their last event leave as they are, and why?",
            ("held_by",),
            registry=registry,
        )
        self._held = {reason: held.labels(reason.value) for reason in HeldBy}
        self._size = Gauge(
            "abridged_log_size_bytes", "How large is the log's file, write-ahead log included?", registry=registry
        )
        self._free = Gauge(
            "abridged_log_free_bytes", "How much may still be written on the log's volume?", registry=registry
        )

    def conversations(self, fact: ConversationsCounted | None) -> None:
        """Set the counts; None means unknown."""
        self._over_budget.set(math.nan if fact is None else fact.over_budget)
        for reason, gauge in self._held.items():
            gauge.set(math.nan if fact is None else fact.held.get(reason, 0))

    def log(self, fact: LogMeasured | None) -> None:
        """Set the sizes; None means unknown."""
        self._size.set(math.nan if fact is None else fact.size_bytes)
        self._free.set(math.nan if fact is None else fact.free_bytes)
