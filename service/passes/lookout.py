"""Finds what other processes have left: passes whose lease has lapsed, and waits, silences and fallback records.

Each look reads every pending pass, so that a takeover takes a lease and one look however many conversations there are.
The lookout takes up to TAKEN_MAX of those whose lease has lapsed, of each namespace in turn. The lookout reads up to
PAGE_MAX conversations without a pass, after those of the last look.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Final, Protocol

import structlog

from abridged.eventlog.event import StreamId
from abridged.eventlog.rows import FIRST
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.table import Attention
from abridged.service.domain.conversation import Conversation
from abridged.service.passes.claims import Claims

PAGE_MAX: Final = 500
"""Conversations of one read."""

TAKEN_MAX: Final = 16
"""Passes that one look takes up: each costs a read of its conversation, and other processes look, too."""

TRIED_MAX: Final = 500
"""Conversations that one look reads: one that is damaged is not taken up, and costs a read as well."""


class MarkedTable(Protocol):
    """The read table, of which a thread reads pages by namespace and id, after a stream."""

    def pending(self, after: StreamId, limit: int, /) -> Sequence[StreamId]:
        """Conversations with a pending pass."""
        ...

    def attention(self, after: StreamId, limit: int, /) -> Sequence[Attention]:
        """Conversations that need attention."""
        ...


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
        table: MarkedTable,
        busy: Container[StreamId],
        attend: Callable[[Attention], None],
        take: Callable[[StreamId, Conversation], None],
    ) -> None:
        self._conversations = conversations
        self._claims = claims
        self._table = table
        self._busy = busy
        self._attend = attend
        self._take = take
        self._tried = FIRST
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
            for look in (self._take_up, self._look_round):
                try:
                    await look()
                except Exception as error:  # noqa: BLE001 - supervision: a look that failed must not end all looks
                    _log.warning("lookout.failed", error_type=type(error).__name__)

    async def _take_up(self) -> None:
        lapsed: dict[StreamId, int] = {}
        page: Sequence[StreamId] = await asyncio.to_thread(self._table.pending, FIRST, PAGE_MAX)
        while page:
            lapsed |= await self._claims.lapsed([key for key in page if key not in self._busy])
            page = await asyncio.to_thread(self._table.pending, page[-1], PAGE_MAX) if len(page) == PAGE_MAX else ()
        taken = 0
        for key in islice(in_turn(lapsed, self._tried), TRIED_MAX):
            self._tried = key
            taken += await self._taken(key, lapsed[key])
            if taken == TAKEN_MAX:
                return

    async def _look_round(self) -> None:
        rows = await asyncio.to_thread(self._table.attention, self._after, PAGE_MAX)
        if not rows and self._after != FIRST:
            # A page that has damaged rows, which are left out, is no last one for that.
            self._after, self._before, self._round = FIRST, self._round, {}
            rows = await asyncio.to_thread(self._table.attention, self._after, PAGE_MAX)
        for row in rows:
            if not row.pending and self._before.get(row.key) != row.event_version:
                self._attend(row)
            self._round[row.key] = row.event_version
        if rows:
            self._after = rows[-1].key

    async def _taken(self, key: StreamId, token: int) -> bool:
        """Return whether the pass of a conversation whose lease has lapsed is this process's from now on."""
        try:
            state = await self._conversations.state(key)
        except Exception as error:  # noqa: BLE001 - supervision: a damaged conversation must not keep others waiting
            _log.warning("pass.not_taken_up", conversation_id=key.name, error_type=type(error).__name__)
            return False
        if state.pending is None or not await self._claims.take_over(key, state, token):
            return False
        self._take(key, state)
        return True


def in_turn(keys: Iterable[StreamId], after: StreamId) -> Iterator[StreamId]:
    """Yield the keys, one of each namespace in turn, from those on that come after a stream."""
    waiting: defaultdict[str, list[StreamId]] = defaultdict(list)
    for key in sorted(keys, key=lambda key: (key <= after, key)):
        waiting[key.namespace].append(key)
    for turn in zip_longest(*waiting.values()):
        yield from (key for key in turn if key is not None)
