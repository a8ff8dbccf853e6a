"""A history brought in bulk: as fast as appends go, in the largest batches, to a model with a small context."""

from __future__ import annotations

from tests.support.sidecar import Chat, said

BATCH = 500


async def brought_in(chat: Chat, messages: int) -> None:
    """Append that many messages, each of some twenty tokens."""
    for first in range(1, messages + 1, BATCH):
        await chat.append(*(said(n) for n in range(first, min(first + BATCH, messages + 1))))
