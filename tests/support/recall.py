"""An index beside a log, without a sidecar: caught up, searched, closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append, EventLog
from abridged.service.codec.events import encode
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import Event
from abridged.service.recall.projection import Pace, Projection
from abridged.service.recall.recall import Recall
from tests.support.patience import PATIENCE_S

AT_ONCE = Pace(rest_share=0.0, rest_s=0.0, retry_s=0.0)


def append(log: EventLog, stream: StreamId, events: Sequence[Event]) -> int:
    """Append events; returns the position of the last one."""
    version = log.stream_version(stream)
    new = []
    for place, event in enumerate(events, start=version + 1):
        name, schema_version, payload = encode(event)
        new.append(NewEvent(place.to_bytes(16, "big"), name, payload, schema_version))
    return log.submit(Append(stream, new)).result().last_position


async def untouched(stream: StreamId) -> Conversation:
    """The state of a conversation that has taken nothing back."""
    return Conversation()


@asynccontextmanager
async def indexed(
    log: Any,
    path: Path,
    *,
    state_of: Callable[[StreamId], Awaitable[Conversation]] = untouched,
    **options: Any,
) -> AsyncIterator[Recall]:
    """The index of a log, caught up with it."""
    recall = Recall(log, Projection(log, path, **{"embedder": None, "pace": AT_ONCE, **options}), state_of)
    try:
        recall.projection.start()
        async with asyncio.timeout(PATIENCE_S):
            await recall.projection.caught_up()
        yield recall
    finally:
        await recall.close()
