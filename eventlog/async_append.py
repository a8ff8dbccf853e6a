"""Awaiting appends on an event loop: one wake-up of the loop for each group commit, however many await it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from abridged.eventlog.futures import settle
from abridged.eventlog.log import Append, AppendResult, EventLog, Outcome

OnOutcome = Callable[[Outcome], None]


class AsyncAppender:
    """Awaits appends to `log` on the running loop. Cancelling an awaiter never cancels a commit."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()

    async def append(self, append: Append) -> AppendResult:
        """Queue `append` and wait until it is on disk. Raises what the log's `submit` would."""
        return await self.post(append)

    def post(self, append: Append, *, on_outcome: OnOutcome | None = None) -> asyncio.Future[AppendResult]:
        """Queue `append`; the future is for one awaiter.

        The appender calls `on_outcome` with the outcome on the loop, in the order of the log, before the awaiter
        resumes and even if it is gone. The loop's exception handler gets its exceptions: an event on disk never becomes
        an error.
        """
        ended: asyncio.Future[AppendResult] = self._loop.create_future()
        self._log.post(append, (ended, on_outcome), self)
        return ended

    def deliver(self, outcomes: Sequence[tuple[Any, Outcome]]) -> None:
        """Wake the loop once for all of them. A closed loop has nothing to notify."""
        try:
            self._loop.call_soon_threadsafe(_resolve, outcomes)
        except RuntimeError:  # the loop was closed before the log
            return


def _resolve(outcomes: Sequence[tuple[tuple[asyncio.Future[AppendResult], OnOutcome | None], Outcome]]) -> None:
    for (ended, on_outcome), outcome in outcomes:
        if on_outcome is not None:
            try:
                on_outcome(outcome)
            except Exception as error:  # noqa: BLE001 - supervision: a listener must not silence its group's others
                ended.get_loop().call_exception_handler({"message": "on_outcome failed", "exception": error})
        if not ended.done():
            settle(ended, outcome)
