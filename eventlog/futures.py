"""A completion queue of futures: each append that is submitted gets one of the standard library."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from abridged.eventlog.log import Append, AppendResult, EventLog, Outcome


class _Futures:
    """Resolves the futures that appends were posted with as tickets."""

    def deliver(self, outcomes: Sequence[tuple[Any, Outcome]]) -> None:
        for future, outcome in outcomes:
            settle(future, outcome)


FUTURES = _Futures()


def settle(future: Future[AppendResult] | asyncio.Future[AppendResult], outcome: Outcome) -> None:
    """Resolve the future with the append's result or error."""
    if isinstance(outcome, AppendResult):
        future.set_result(outcome)
    else:
        future.set_exception(outcome)


def submit(log: EventLog, append: Append) -> Future[AppendResult]:
    """Post `append` and return its future, which is running from the start: a commit cannot be cancelled."""
    future: Future[AppendResult] = Future()
    future.set_running_or_notify_cancel()
    log.post(append, future, FUTURES)
    return future
