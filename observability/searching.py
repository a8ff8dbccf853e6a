"""Instruments of the search index: its searches, and how far it lags the log."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from observability.facts import RecallMeasured, SearchMode

__all__ = ["RecallInstruments"]

_SEARCH_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class RecallInstruments:
    """Searches, and gauges that are computed at each scrape; all are 0 where the index is off."""

    def __init__(self, registry: CollectorRegistry) -> None:
        searches = Counter(
            "abridged_searches", "How many searches were answered, by what they compared?", ("mode",), registry=registry
        )
        self._searches = {mode: searches.labels(mode.value) for mode in SearchMode}
        self._seconds = Histogram(
            "abridged_search_duration_seconds",
            "How long does a search take, its query's vector included?",
            buckets=_SEARCH_SECONDS,
            registry=registry,
        )
        behind = Gauge(
            "abridged_recall_behind_events",
            "How many positions of the log are not in the search index yet?",
            ("index",),
            registry=registry,
        )
        self._words, self._vectors = behind.labels("words"), behind.labels("vectors")
        position = Gauge(
            "abridged_recall_position", "Up to which position of the log is it indexed?", ("index",), registry=registry
        )
        self._words_position, self._vectors_position = position.labels("words"), position.labels("vectors")
        self._stopped = Gauge(
            "abridged_recall_stopped", "Does the search index follow the log no longer? 1: yes.", registry=registry
        )

    def searched(self, mode: SearchMode, seconds: float) -> None:
        """Count a search."""
        self._searches[mode].inc()
        self._seconds.observe(seconds)

    def measured(self, fact: RecallMeasured) -> None:
        """Set the gauges."""
        self._words.set(fact.words_behind)
        self._vectors.set(fact.vectors_behind)
        self._words_position.set(fact.words_position)
        self._vectors_position.set(fact.vectors_position)
        self._stopped.set(fact.stopped)
