"""Where outcomes go when nobody says otherwise: a future of the standard library for each append."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from eventlog.log import Append, AppendResult, EventLog, Outcome

__all__ = ["FUTURES", "settle", "submit"]


class _Futures:
    """Resolves each ticket, which is a future, by itself."""

    def deliver(self, outcomes: Sequence[tuple[Any, Outcome]]) -> None:
        for future, outcome in outcomes:
            settle(future, outcome)


FUTURES = _Futures()


def settle(future: Future[AppendResult] | asyncio.Future[AppendResult], outcome: Outcome) -> None:
    """Give the future the append's result or error."""
    if isinstance(outcome, AppendResult):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)


def submit(log: EventLog, append: Append) -> Future[AppendResult]:
    """Post `append` for a future. The future counts as running at once: a commit cannot be cancelled."""
    future: Future[AppendResult] = Future()
    future.set_running_or_notify_cancel()
    log.post(append, future, FUTURES)
    return future
