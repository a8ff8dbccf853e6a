"""Reports commits of the log to metrics and spans: the log itself knows no telemetry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from abridged.eventlog.log import AppendHook, Committed
from abridged.observability.facts import BatchCommitted
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import Tracing, sampled_trace_id


@dataclass(frozen=True, slots=True)
class _Transaction:
    began_ns: int
    committed: Sequence[Committed]

    @property
    def first(self) -> int:
        return self.committed[0].events[0].position

    @property
    def last(self) -> int:
        return self.committed[-1].events[-1].position


class CommitReport:
    """Remembers each transaction in the writer's thread, and reports it once the log's head has passed it.

    A transaction that is refused or fails is never reported: its positions are beyond the head or belong to another.
    """

    def __init__(self, metrics: Metrics, tracing: Tracing, *, clock_ns: Callable[[], int]) -> None:
        self._metrics = metrics
        self._tracing = tracing
        self._clock_ns = clock_ns
        self._open: list[_Transaction] = []

    def hook(self, project: AppendHook) -> AppendHook:
        """Return `project` as a hook that also remembers each transaction for which `project` did not raise."""

        def remember(transaction: Any, committed: Sequence[Committed]) -> None:
            seen = _Transaction(self._clock_ns(), committed)
            # The log gives a position out again only if the transaction that had it failed.
            while self._open and self._open[-1].first >= seen.first:
                self._open.pop()
            project(transaction, committed)
            self._open.append(seen)

        return remember

    def committed(self, head: int) -> None:
        """Report every transaction up to position `head`; each ended before the next one began."""
        done = [transaction for transaction in self._open if transaction.last <= head]
        self._open.clear()
        ends = [*(transaction.began_ns for transaction in done[1:]), self._clock_ns()]
        for transaction, ended_ns in zip(done, ends, strict=False):
            self._report(transaction, ended_ns)

    def _report(self, transaction: _Transaction, ended_ns: int) -> None:
        began_ns, committed = transaction.began_ns, transaction.committed
        types = [event.type for commit in committed for event in commit.events]
        traceparents = tuple({c.events[0].trace_context: None for c in committed if c.events[0].trace_context})
        sampled = next(filter(None, map(sampled_trace_id, traceparents)), "")
        self._metrics.commit(types, seconds=(ended_ns - began_ns) / 1e9, trace_id=sampled)
        self._tracing.record_commit(BatchCommitted(began_ns, ended_ns, len(types), traceparents))
