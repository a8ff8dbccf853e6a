"""Searches of a sidecar, made when its index has caught up with all appends."""

from __future__ import annotations

import asyncio
from typing import Any

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2, message_pb2
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Sidecar, said

WORDS: dict[str, Any] = {"recall.index": "words"}
"""Settings under which words are indexed."""

BOTH: dict[str, Any] = {"recall.index": "both", "recall.embedder": "wordllama", "recall.dimension": 64}
"""Settings under which words and meaning are."""

MEANING = api.SEARCH_MODE_MEANING


def exchange(number: int, content: str) -> message_pb2.Message:
    """Message `number`, of the user: an exchange of its own."""
    return said(number, content, role=message_pb2.ROLE_USER)


async def search(s: Sidecar, query: str, *, conversation_id: str = "", **fields: Any) -> Any:
    """One search, however far the index is."""
    request = api.SearchHistoryRequest(query=query, conversation_id=conversation_id, **fields)
    return await s.conversations.SearchHistory(request, timeout=PATIENCE_S, metadata=s.metadata)


async def searched(s: Sidecar, query: str, *, conversation_id: str = "", **fields: Any) -> Any:
    """A search of everything that the caller's namespace has now."""
    head = await s.event_log.GetHead(event_log_service_pb2.GetHeadRequest(), metadata=s.metadata)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = await search(s, query, conversation_id=conversation_id, **fields)
            if answer.indexed_position >= head.position:
                return answer


def numbers(answer: Any) -> list[int]:
    """The numbers of the messages that were found, best first."""
    return [hit.messages.first for hit in answer.hits if hit.message_id]


def snippets(answer: Any) -> list[str]:
    """Return the text that was shown of each hit."""
    return [hit.snippet for hit in answer.hits]
