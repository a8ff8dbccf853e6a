"""The progress of running passes, for watchers: these facts are in no log and are not stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from abridged.eventlog.event import StreamId

BUFFERED_MAX = 64
"""Facts queued for a slow watcher; the oldest gives way to a new one, since only the newest matters."""


class Stage(StrEnum):
    """A step of a pass, as watchers see it."""

    REQUESTED = "requested"
    STARTED = "started"
    ATTEMPT = "attempt"
    PROGRESS = "progress"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """A pass's step at `at_us`, in microseconds since the epoch. `output_chars` counts the answer so far, `calls_done`
    of `calls_total` the calls for a long input."""

    pass_id: str
    stage: Stage
    at_us: int
    attempt: int = 0
    model: str = ""
    output_chars: int = 0
    calls_done: int = 0
    calls_total: int = 0


class ProgressBoard:
    """Carries progress from passes to watchers, on one event loop."""

    def __init__(self) -> None:
        self._watchers: dict[StreamId, set[asyncio.Queue[Progress]]] = {}

    def tell(self, key: StreamId, progress: Progress) -> None:
        """Queue the fact for each watcher of the conversation; never waits."""
        for queue in self._watchers.get(key, ()):
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(progress)

    @contextmanager
    def watching(self, key: StreamId) -> Iterator[asyncio.Queue[Progress]]:
        """Open a queue of the conversation's facts, until the context ends."""
        queue: asyncio.Queue[Progress] = asyncio.Queue(BUFFERED_MAX)
        watchers = self._watchers.setdefault(key, set())
        watchers.add(queue)
        try:
            yield queue
        finally:
            watchers.discard(queue)
            if not watchers and self._watchers.get(key) is watchers:
                del self._watchers[key]
