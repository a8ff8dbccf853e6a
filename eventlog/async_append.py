"""Awaiting appends on an event loop: one wake-up of the loop for each group commit, however many await it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from eventlog.log import Append, AppendResult, EventLog, Outcome

__all__ = ["AsyncAppender"]


class AsyncAppender:
    """Awaits appends to `log` on the loop that runs when it is made. A cancelled awaiter never cancels a commit."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()

    async def append(self, append: Append) -> AppendResult:
        """Queue `append` and wait until it is on disk; raises what the log's `submit` would fail with."""
        return await asyncio.shield(self.post(append))

    def post(self, append: Append) -> asyncio.Future[AppendResult]:
        """Queue `append`. The future is for callbacks that must run whether or not anybody waits; do not cancel it."""
        ticket: asyncio.Future[AppendResult] = self._loop.create_future()
        self._log.post(append, ticket, self)
        return ticket

    def deliver(self, outcomes: Sequence[tuple[Any, Outcome]]) -> None:
        """Wake the loop once for all of them. A loop that was closed has nobody left to tell."""
        try:
            self._loop.call_soon_threadsafe(_resolve, outcomes)
        except RuntimeError:  # the loop was closed before the log
            return


def _resolve(outcomes: Sequence[tuple[asyncio.Future[AppendResult], Outcome]]) -> None:
    for ticket, outcome in outcomes:
        if ticket.done():
            continue
        if isinstance(outcome, AppendResult):
            ticket.set_result(outcome)
        else:
            ticket.set_exception(outcome)
