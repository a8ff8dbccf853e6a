"""Finds what other processes have left: passes whose lease has lapsed, and waits, silences and fallback records.

Each look reads up to LOOK_MAX rows of the read table after those of the last, and takes up to TAKEN_MAX passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Final

import structlog

from abridged.eventlog.event import StreamId
from abridged.eventlog.rows import FIRST
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.table import Attention
from abridged.service.domain.conversation import Conversation
from abridged.service.passes.claims import Claims

LOOK_MAX: Final = 500
"""Conversations of one look."""

TAKEN_MAX: Final = 16
"""Passes that one look takes up: each costs a read of its conversation, and other processes look, too."""

ReadAttention = Callable[[StreamId, int], Sequence[Attention]]
"""Returns up to a number of conversations that need attention, after a stream. A thread calls it."""

_log = structlog.get_logger()


class Lookout:
    """Looks around as often as leases are renewed, on one event loop.

    `attend` gets a conversation without a pass that has changed since the last round, `take` one with a pass for this
    process; `busy` holds those that it works on.
    """

    def __init__(
        self,
        conversations: Conversations,
        claims: Claims,
        *,
        attention: ReadAttention,
        busy: Container[StreamId],
        attend: Callable[[Attention], None],
        take: Callable[[StreamId, Conversation], None],
    ) -> None:
        self._conversations = conversations
        self._claims = claims
        self._attention = attention
        self._busy = busy
        self._attend = attend
        self._take = take
        self._after = FIRST
        self._before: dict[StreamId, int] = {}
        self._round: dict[StreamId, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, unless no other process works on the log."""
        if self._claims.are_shared:
            self._task = asyncio.create_task(self._run(), name="lookout")

    async def stop(self) -> None:
        """Take up nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._claims.renewal_s)
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - supervision: a look that failed must not end all looks
                _log.warning("lookout.failed", error_type=type(error).__name__)

    async def _look(self) -> None:
        rows = await asyncio.to_thread(self._attention, self._after, LOOK_MAX)
        if not rows and self._after != FIRST:
            # A page that has damaged rows, which are left out, is no last one for that.
            self._after, self._before, self._round = FIRST, self._round, {}
            rows = await asyncio.to_thread(self._attention, self._after, LOOK_MAX)
        for row in rows:
            if not row.pending and self._before.get(row.key) != row.event_version:
                self._attend(row)
            self._round[row.key] = row.event_version
        if rows:
            self._after = rows[-1].key
        waiting = [row.key for row in rows if row.pending and row.key not in self._busy]
        lapsed = await self._claims.lapsed(waiting)
        taken = 0
        for key, token in lapsed.items():
            taken += await self._taken(key, token)
            if taken == TAKEN_MAX:
                return

    async def _taken(self, key: StreamId, token: int) -> bool:
        """Whether the pass of a conversation whose lease has lapsed is this process's from now on."""
        try:
            state = await self._conversations.state(key)
        except Exception as error:  # noqa: BLE001 - supervision: a damaged conversation must not keep others waiting
            _log.warning("pass.not_taken_up", conversation_id=key.name, error_type=type(error).__name__)
            return False
        if state.pending is None or not await self._claims.follow(key, state, token):
            return False
        self._take(key, state)
        return True
