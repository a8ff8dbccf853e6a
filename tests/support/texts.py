"""Texts to summarize, and SummarizeText's answers about one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abridged.v1 import text_service_pb2 as api
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Sidecar


@dataclass(frozen=True)
class Summarized:
    """The whole answer: progress as it came, and the summary."""

    progress: list[Any]
    summary: Any


def document(paragraphs: int) -> str:
    """A report of that many paragraphs of about 60 tokens, each with names of its own."""
    return "\n\n".join(
        f"Section {n}. The importer reads table orders_{n} on host db-{n:02d}.example.com and writes ledger_{n}.csv. "
        f"In review OPS-{4000 + n} the team measured {n * 17} rows per second and decided to keep batch size {n + 100}."
        for n in range(1, paragraphs + 1)
    )


async def summarized(s: Sidecar, text: str, **fields: Any) -> Summarized:
    """Return all that comes back, to the end."""
    call = s.texts.SummarizeText(api.SummarizeTextRequest(text=text, **fields), timeout=PATIENCE_S, metadata=s.metadata)
    progress: list[Any] = []
    async for item in call:
        if item.HasField("summary"):
            return Summarized(progress, item.summary)
        progress.append(item.progress)
    raise AssertionError("the stream ended without a summary")
