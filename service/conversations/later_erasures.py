"""Carries erasures out again in a log that was restored from an earlier copy: the keys were erased since.

Nobody can read the contents of these conversations any more. The repeated erasures end them for callers, too, and have
them purged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from abridged.eventlog.backend import StreamKeys
from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.purges import nothing_required
from abridged.service.domain.commands import EraseConversation
from abridged.service.domain.errors import ConversationNotFound

_log = structlog.get_logger()


async def erase_again(keys: StreamKeys, log: EventLog, conversations: Conversations, new_id: Callable[[], str]) -> None:
    """Erase the conversations that later events erased. Call it at a start, before the first append; purges follow."""
    streams = await asyncio.to_thread(keys.erased_later)
    command = EraseConversation(new_id(), len(streams), None)
    for stream in streams:
        try:
            events = await conversations.end(stream, command, require=nothing_required)
        except ConversationNotFound:
            events = []
        except LogCorrupt as error:
            _log.error("erasure.not_repeated", conversation_id=stream.name, hint=str(error))
            continue
        if not events:  # it is not in this log, or another sidecar was as fast
            await asyncio.to_thread(_settled, keys, log, stream)
    if streams:
        _log.info("erasure.repeated", conversations=len(streams))


def _settled(keys: StreamKeys, log: EventLog, stream: StreamId) -> None:
    keys.erase(stream, log.head())
