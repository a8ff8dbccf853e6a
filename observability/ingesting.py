"""The instrument of the appends of IngestMessages, whose calls end once for many of them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from observability.labels import GRPC_CODES

__all__ = ["ingest_counters"]


def ingest_counters(registry: CollectorRegistry) -> dict[str, Counter]:
    """A counter for each status."""
    counter = Counter(
        "abridged_ingested_appends",
        "How many appends of IngestMessages ended, and with which status?",
        ("code",),
        registry=registry,
    )
    return {code: counter.labels(code) for code in GRPC_CODES}
