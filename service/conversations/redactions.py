"""Redacts messages, in the conversation that has them and in what was forked from it since, which shares them.

Forks come first: they are folded from what they were forked from, which is blanked as soon as its own event is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from abridged.eventlog.event import StreamId
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.erasures import those_with_forks
from abridged.service.conversations.purges import Purges
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.amendments import redaction
from abridged.service.domain.commands import RedactMessages
from abridged.service.domain.conversation import Conversation, holdings
from abridged.service.domain.errors import ConversationHasForks, ConversationIsErased, MessageOfAncestor
from abridged.service.domain.events import MessagesRedacted


class Redacted(NamedTuple):
    """The messages and records whose texts one call took away, or would take away, and from how many conversations."""

    messages: int
    summaries: int
    conversations: int


class Redactions:
    """Redacts messages of one log, on its event loop."""

    def __init__(self, conversations: Conversations, table: ConversationTable, purges: Purges) -> None:
        self._conversations = conversations
        self._table = table
        self._purges = purges

    async def of(self, key: StreamId, numbers: Sequence[int], *, forks: bool, dry_run: bool) -> Redacted:
        """Redact messages, and with `forks` in those conversations, too, that were forked from this one since. The
        redaction goes on when the caller is gone.

        Returns when no byte of them is left. Raises MessageNotFound, MessageOfAncestor, ConversationHasForks,
        ConversationNotFound or an EventLogError.
        """
        state = await self._conversations.state(key)
        _require_own(state, numbers)
        sharing = await self._sharing(key, numbers)
        if sharing and not forks:
            raise ConversationHasForks(forks=len(sharing))
        if dry_run:
            states = [(await self._conversations.state(fork), shared) for fork, shared in sharing.items()]
            events = [redaction(each, some) for each, some in (*states, (state, numbers))]
            return _counted([event for event in events if event is not None])
        done = await self._purges.carried_out(self._redacted_each(key, numbers, sharing))
        for each in await self._with_forks(key):
            await self._purges.purged(each)
        return _counted(done)

    async def _redacted_each(
        self, key: StreamId, numbers: Sequence[int], sharing: Mapping[StreamId, Sequence[int]]
    ) -> list[MessagesRedacted]:
        done: list[MessagesRedacted] = []
        left = {**sharing, key: numbers}
        while left:
            for each, some in left.items():
                done += await self._redacted(each, RedactMessages(tuple(some)))
            # Another fork may have begun meanwhile, from the state before.
            left = {**await self._sharing(key, numbers)}
        return done

    async def _with_forks(self, key: StreamId) -> list[StreamId]:
        return those_with_forks([key], await asyncio.to_thread(self._table.forks))

    async def _redacted(self, key: StreamId, command: RedactMessages) -> list[MessagesRedacted]:
        _, events = await self._conversations.execute(key, lambda _: command)
        return [event for event in events if isinstance(event, MessagesRedacted)]

    async def _sharing(self, key: StreamId, numbers: Sequence[int]) -> dict[StreamId, list[int]]:
        """The forks that have some of the messages, which are not redacted there, each with these. Raises an
        EventLogError for one that cannot be read, also if it may be none."""
        await asyncio.to_thread(self._table.require_known_forks, key)
        found: dict[StreamId, list[int]] = {}
        for fork in await self._with_forks(key):
            if fork == key:
                continue
            try:
                state = await self._conversations.state(fork)
            except ConversationIsErased:
                continue
            last = max(a.message_version for a in state.ancestors if a.conversation_id == key.name)
            if shared := [n for n in numbers if n <= last and not state.redaction.has(n)]:
                found[fork] = shared
        return found


def _require_own(state: Conversation, numbers: Sequence[int]) -> None:
    """Raise MessageOfAncestor for a message that a fork has from another conversation."""
    for held in holdings(state.id, state.ancestors)[:-1]:
        for number in numbers:
            if held.numbers.first <= number <= held.numbers.last:
                raise MessageOfAncestor(number, holder=held.conversation_id)


def _counted(events: Sequence[MessagesRedacted]) -> Redacted:
    return Redacted(
        messages=len({number for event in events for number in event.numbers}),
        summaries=len({record_id for event in events for record_id in event.revoked_ids}),
        conversations=len(events),
    )
