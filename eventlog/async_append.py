"""Awaiting appends on an event loop: one wake-up of the loop for each group commit, however many await it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from eventlog.log import Append, AppendResult, EventLog, Outcome
from eventlog.mailbox import settle

__all__ = ["AsyncAppender"]

OnDisk = Callable[[AppendResult], None]


class AsyncAppender:
    """Awaits appends to `log` on the loop that runs when it is made. A cancelled awaiter never cancels a commit."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()

    async def append(self, append: Append, *, on_disk: OnDisk | None = None) -> AppendResult:
        """Queue `append` and wait until it is on disk; raises what the log's `submit` would fail with.

        `on_disk` hears of the result on the loop, before the awaiter and also when that has gone in the meantime. What
        it raises goes to the loop's exception handler: what is on disk never becomes an error.
        """
        ended: asyncio.Future[AppendResult] = self._loop.create_future()
        self._log.post(append, (ended, on_disk), self)
        return await ended

    def deliver(self, outcomes: Sequence[tuple[Any, Outcome]]) -> None:
        """Wake the loop once for all of them. A loop that was closed has nobody left to tell."""
        try:
            self._loop.call_soon_threadsafe(_resolve, outcomes)
        except RuntimeError:  # the loop was closed before the log
            return


def _resolve(outcomes: Sequence[tuple[tuple[asyncio.Future[AppendResult], OnDisk | None], Outcome]]) -> None:
    for (ended, on_disk), outcome in outcomes:
        if on_disk is not None and isinstance(outcome, AppendResult):
            try:
                on_disk(outcome)
            except Exception as error:  # noqa: BLE001 - supervision: a listener must not silence its group's others
                ended.get_loop().call_exception_handler({"message": "on_disk failed", "exception": error})
        if not ended.done():
            settle(ended, outcome)
