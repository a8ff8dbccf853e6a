"""One writer thread: while it commits one group, the queue for the next one fills.

A lone caller never waits: its append is a group by itself. The writer holds a group back only after one of several
appends, until as many wait again or GATHER_S have passed: a commit costs nearly the same at any size, so fewer and
larger ones serve more callers sooner. The queue is bounded, and every posted append gets exactly one outcome.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from abridged.eventlog.errors import LogClosed, LogFailed, LogUnavailable
from abridged.eventlog.log import Append, CompletionQueue, Outcome

GROUP_EVENTS_MAX = 1_000
GROUP_BYTES_MAX = 1 << 20
"""A group ends before the append that would exceed a cap; a larger append is a group by itself."""

QUEUE_EVENTS_MAX = 20_000
QUEUE_BYTES_MAX = 64 << 20
"""Most bytes that may wait. Further appends are refused as LogUnavailable."""

GATHER_S = 0.008
"""Longest time between the end of a group and the start of the next while callers wait; measured in
docs/performance.md."""

GATHER_EVENTS = 128
"""The number of events that are worth a commit: larger groups make each hardly cheaper."""

IDLE_AFTER_S = 5.0


class _Posted(NamedTuple):
    append: Append
    size: int
    ticket: Any
    completions: CompletionQueue


class GroupCommit:
    """Passes groups of appends to `commit`, one at a time, and their outcomes to their completion queues.

    `commit` returns an outcome for each append and does not raise; `after` runs once a group's outcomes are delivered;
    `idle` runs once after `idle_after_s` without an append. `failed` is called with a bug in any of these, after which
    every append is refused.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Append]], Sequence[Outcome]],
        *,
        after: Callable[[], None],
        idle: Callable[[], None],
        failed: Callable[[Exception], None],
        idle_after_s: float = IDLE_AFTER_S,
        gather_s: float = GATHER_S,
    ) -> None:
        self._commit = commit
        self._after = after
        self._idle = idle
        self._failed = failed
        self._idle_after_s = idle_after_s
        self._gather_s = gather_s
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[_Posted] = deque()
        self._queued_events = 0
        self._queued_bytes = 0
        self._waiting = False
        self._last_appends = 0
        self._gather_until = 0.0
        self._wanted = 1
        self._refusal: Callable[[], Exception] | None = None
        self._thread = threading.Thread(target=self._run, name="eventlog-writer", daemon=True)
        self._thread.start()

    def post(self, append: Append, size: int, ticket: Any, completions: CompletionQueue) -> None:
        """Queue an append of `size` payload bytes. A refusal is delivered at once, on the caller's thread."""
        refusal: Exception | None = None
        with self._changed:
            if self._refusal is not None:
                refusal = self._refusal()
            elif self._queued_events >= QUEUE_EVENTS_MAX or self._queued_bytes >= QUEUE_BYTES_MAX:
                refusal = LogUnavailable("too many appends are waiting")
            else:
                self._queue.append(_Posted(append, size, ticket, completions))
                self._queued_events += len(append.events)
                self._queued_bytes += size
                if self._waiting and self._enough():
                    self._changed.notify()
        if refusal is not None:
            completions.deliver([(ticket, refusal)])

    def close(self) -> None:
        """Commit what is queued and end the thread; later appends are refused as LogClosed."""
        self.refuse(lambda: LogClosed("the log is closed"))
        if self._thread is not threading.current_thread():
            self._thread.join()

    def refuse(self, refusal: Callable[[], Exception]) -> None:
        """Refuse every later append; only the first reason counts."""
        with self._changed:
            if self._refusal is None:
                self._refusal = refusal
            self._changed.notify()

    def _run(self) -> None:
        group: list[_Posted] = []
        try:
            while group := self._take():
                self._answer(group, self._commit([posted.append for posted in group]))
                self._gather_until = time.monotonic() + self._gather_s
                group = []
                self._after()
        except Exception as error:  # noqa: BLE001 - supervision: a bug must stop the log loudly, never hang callers
            self.refuse(lambda: LogFailed("the writer has stopped"))
            self._failed(error)
            self._refuse_all(group)

    def _take(self) -> list[_Posted]:
        """The next group; empty once the log is closed and nothing is left."""
        with self._changed:
            idle_timeout: float | None = self._idle_after_s
            while not self._queue and self._refusal is None:
                self._waiting = True
                came = self._changed.wait(idle_timeout)
                self._waiting = False
                if not came and not self._queue:
                    idle_timeout = None
                    self._changed.release()
                    try:
                        self._idle()
                    finally:
                        self._changed.acquire()
            self._gather()
            return self._cut()

    def _gather(self) -> None:
        """Hold the group back until as many wait as in the last one, whose callers have their outcomes and are likely
        to return."""
        if self._last_appends < 2:
            return
        self._wanted = self._last_appends
        while (pause_s := self._gather_until - time.monotonic()) > 0 and not self._enough() and self._refusal is None:
            self._waiting = True
            self._changed.wait(pause_s)
            self._waiting = False
        self._wanted = 1

    def _enough(self) -> bool:
        return (
            len(self._queue) >= self._wanted
            or self._queued_events >= GATHER_EVENTS
            or self._queued_bytes >= GROUP_BYTES_MAX
        )

    def _cut(self) -> list[_Posted]:
        group: list[_Posted] = []
        events = size = 0
        while self._queue:
            first = self._queue[0]
            events += len(first.append.events)
            size += first.size
            if group and (events > GROUP_EVENTS_MAX or size > GROUP_BYTES_MAX):
                break
            group.append(self._queue.popleft())
            self._queued_events -= len(first.append.events)
            self._queued_bytes -= first.size
        self._last_appends = len(group)
        return group

    def _answer(self, group: Sequence[_Posted], outcomes: Sequence[Outcome]) -> None:
        by_queue: dict[int, tuple[CompletionQueue, list[tuple[Any, Outcome]]]] = {}
        for posted, outcome in zip(group, outcomes, strict=True):
            by_queue.setdefault(id(posted.completions), (posted.completions, []))[1].append((posted.ticket, outcome))
        for completions, delivered in by_queue.values():
            completions.deliver(delivered)

    def _refuse_all(self, group: Sequence[_Posted]) -> None:
        while group:
            self._answer(group, [LogFailed("the writer has stopped")] * len(group))
            with self._changed:
                group = self._cut()
