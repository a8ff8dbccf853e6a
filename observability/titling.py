"""The instrument of titles."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from observability.facts import TitleOutcome

__all__ = ["title_counters"]


def title_counters(registry: CollectorRegistry) -> dict[TitleOutcome, Counter]:
    """Three series: a counter for each outcome."""
    counter = Counter("abridged_titles", "What came of asking a model for a title?", ("outcome",), registry=registry)
    return {outcome: counter.labels(outcome.value) for outcome in TitleOutcome}
