"""Shows watchers how far running passes are: facts that no log and no other store has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from eventlog.event import StreamId

BUFFERED_MAX = 64
"""Facts that are queued for a slow watcher; older ones are overwritten, since only the newest matters."""


class Stage(StrEnum):
    """The stages of a pass."""

    REQUESTED = "requested"
    STARTED = "started"
    ATTEMPT = "attempt"
    PROGRESS = "progress"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """One fact. `output_chars` counts the answer so far, `calls_done` of `calls_total` those of a long input."""

    pass_id: str
    stage: Stage
    at_us: int
    attempt: int = 0
    model: str = ""
    output_chars: int = 0
    calls_done: int = 0
    calls_total: int = 0


class ProgressBoard:
    """Where passes say what they do and watchers listen. Lives on one event loop."""

    def __init__(self) -> None:
        self._watchers: dict[StreamId, set[asyncio.Queue[Progress]]] = {}

    def tell(self, key: StreamId, progress: Progress) -> None:
        """Hand the fact to the conversation's watchers; never waits."""
        for queue in self._watchers.get(key, ()):
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(progress)

    @contextmanager
    def watching(self, key: StreamId) -> Iterator[asyncio.Queue[Progress]]:
        """A queue of the conversation's facts, for as long as the context is open."""
        queue: asyncio.Queue[Progress] = asyncio.Queue(BUFFERED_MAX)
        watchers = self._watchers.setdefault(key, set())
        watchers.add(queue)
        try:
            yield queue
        finally:
            watchers.discard(queue)
            if not watchers and self._watchers.get(key) is watchers:
                del self._watchers[key]
