"""Carries erasures out again in a log that was restored from an earlier copy: the keys were erased since.

Nobody can read the contents of these conversations any more. The repeated erasures end them for callers, too, and have
them purged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from abridged.eventlog.backend import StreamKeys
from abridged.eventlog.errors import KeyLost, LogCorrupt
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.purges import nothing_required
from abridged.service.domain.commands import EraseConversation
from abridged.service.domain.errors import ConversationNotFound

_log = structlog.get_logger()


async def erase_again(keys: StreamKeys, conversations: Conversations, new_id: Callable[[], str]) -> None:
    """Erase what later events erased. Called at a start before anything is appended; purges follow."""
    streams = await asyncio.to_thread(keys.erased_later)
    command = EraseConversation(new_id(), len(streams), None)
    settled, repeated = [], 0
    for stream in streams:
        try:
            is_another = await asyncio.to_thread(keys.has_key, stream)  # begun after an earlier restore
            events = [] if is_another else await conversations.end(stream, command, require=nothing_required)
        except ConversationNotFound:
            events = []
        except (LogCorrupt, KeyLost) as error:
            _log.error("erasure.not_repeated", conversation_id=stream.name, hint=str(error))
            continue
        repeated += bool(events)
        if not events:  # it is not in this log, it is erased, or another sidecar was as fast
            settled.append(stream)
    if settled:
        await asyncio.to_thread(keys.settle, settled)
    if repeated:
        _log.info("erasure.repeated", conversations=repeated)
