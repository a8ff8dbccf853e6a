"""The instrument of records that are prepared before their trigger."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from observability.facts import PreparationOutcome

__all__ = ["preparation_counters"]


def preparation_counters(registry: CollectorRegistry) -> dict[PreparationOutcome, Counter]:
    """Five series: a counter for each outcome."""
    counter = Counter(
        "abridged_preparations",
        "What became of records that were prepared before their trigger?",
        ("outcome",),
        registry=registry,
    )
    return {outcome: counter.labels(outcome.value) for outcome in PreparationOutcome}
