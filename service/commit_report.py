"""Commits of the log as metrics and spans: reported by the hook's owner, since the log itself knows no telemetry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eventlog.log import AppendHook, Committed
from observability.facts import BatchCommitted
from observability.metrics import Metrics
from observability.tracing import Tracing

__all__ = ["CommitReport"]


class CommitReport:
    """Sees each group of appends twice, in the writer's thread: in its transaction, and when that is on disk."""

    def __init__(self, metrics: Metrics, tracing: Tracing, *, clock_ns: Callable[[], int]) -> None:
        self._metrics = metrics
        self._tracing = tracing
        self._clock_ns = clock_ns
        self._began_ns = 0
        self._group: Sequence[Committed] = ()

    def hook(self, project: AppendHook) -> AppendHook:
        """The hook that also remembers the group."""

        def remember(transaction: Any, committed: Sequence[Committed]) -> None:
            self._began_ns = self._clock_ns()
            self._group = committed
            project(transaction, committed)

        return remember

    def committed(self, _head: int) -> None:
        """Report the group that has just been committed."""
        if not self._group:
            return
        ended_ns = self._clock_ns()
        types = [event.type for commit in self._group for event in commit.events]
        traceparents = tuple({c.events[0].trace_context: None for c in self._group if c.events[0].trace_context})
        self._group = ()
        sampled = next((t[3:35] for t in traceparents if t.endswith("-01")), "")
        self._metrics.commit(types, seconds=(ended_ns - self._began_ns) / 1e9, trace_id=sampled)
        self._tracing.record_commit(BatchCommitted(self._began_ns, ended_ns, len(types), traceparents))
