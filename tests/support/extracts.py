"""Extracts and their records, as tests of the extractive summarizer make them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from abridged.service.domain.message import Message
from abridged.service.domain.record import MessageRange, Provenance, SummaryRecord
from abridged.service.extraction.extract import Extract, extract
from abridged.service.tokenizers.estimated import EstimatingCounter


def extract_of(
    messages: Sequence[Message],
    *,
    previous: SummaryRecord | None = None,
    tokens_max: int = 600,
    superseded: Mapping[str, int] = MappingProxyType({}),
    in_ledger: Collection[str] | None = None,
) -> Extract:
    """The extract of `messages`, counted by the estimate."""
    count = EstimatingCounter().count
    return extract(
        messages,
        previous=previous,
        tokens_max=tokens_max,
        count_tokens=count,
        superseded=superseded,
        in_ledger=in_ledger,
    )


def record_of(extracted: Extract, *, depth: int = 0) -> SummaryRecord:
    """The record that a pass would commit of an extract."""
    return SummaryRecord(
        id=f"r{depth}", create_time_us=0, depth=depth, parent_id="", summary=extracted.summary,
        key_points=extracted.key_points, context=extracted.context, covered=(MessageRange(1, 9),), tokens_before=900,
        tokens_after=300, model="extractive:default", prompt_name="", prompt_version="",
        provenance=Provenance.EXTRACTIVE, attempts=1, latency_ms=1,
    )  # fmt: skip
