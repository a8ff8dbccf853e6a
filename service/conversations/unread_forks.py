"""Forks that cannot be read, and so have no row that names the conversation which they were forked from."""

from __future__ import annotations

from typing import NamedTuple

from abridged.eventlog.chain import Verified, genesis, verify_chain
from abridged.eventlog.errors import EventLogError, KeyLost, LogCorrupt
from abridged.eventlog.event import NUMBER_MAX, SealedEvent, StreamId
from abridged.eventlog.log import EventLog
from abridged.service.codec.events import UnknownEvent, decoded
from abridged.service.domain.events import ConversationForked, ConversationOpened


class UnreadFork(NamedTuple):
    """A fork with what keeps it from being read. `parent` is empty and `position`, that of its first event, is
    NUMBER_MAX while they are unknown: then it may be no fork at all."""

    error: Exception
    parent: str = ""
    position: int = NUMBER_MAX


class UnreadForks:
    """The forks among the conversations that a rebuild of the read table cannot read. Calls block."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._forks: dict[StreamId, UnreadFork] = {}

    def found(self, stream: StreamId, error: Exception) -> UnreadFork | None:
        """Return what is known of a conversation that cannot be read, if it is a fork or may be one."""
        first = self._stored(stream)
        if first is None:
            return UnreadFork(error)
        if not self._is_proven(stream, first):
            # A second fault would have to make it an opening.
            is_opening = first.event.type == ConversationOpened.__name__
            return None if is_opening else UnreadFork(error, position=first.event.position)
        if first.event.type != ConversationForked.__name__:
            return None
        return UnreadFork(error, self._parent(stream), first.event.position)

    def add(self, stream: StreamId, fork: UnreadFork) -> None:
        """Note a fork that has no row with its parent."""
        self._forks[stream] = fork

    def parents(self) -> dict[StreamId, StreamId]:
        """The parents of the forks whose parents are known."""
        return {fork: StreamId(fork.namespace, of.parent) for fork, of in self._forks.items() if of.parent}

    def possible(self, key: StreamId) -> dict[StreamId, UnreadFork]:
        """The forks that may have been forked from the conversation, for nobody knows their parents: those that began
        after it."""
        unknown = {
            fork: of
            for fork, of in self._forks.items()
            if not of.parent and fork.namespace == key.namespace and fork != key
        }
        if not unknown:
            return unknown
        first = self._stored(key)
        began = first.event.position if first is not None and self._is_proven(key, first) else 0
        return {fork: of for fork, of in unknown.items() if began < of.position}

    def _stored(self, stream: StreamId) -> SealedEvent | None:
        """The first event of a stream, as it is stored; None if there is no row to read."""
        try:
            sealed = self._log.read_sealed(stream, limit=1)
        except LogCorrupt:
            return None
        return sealed[0] if sealed else None

    def _is_proven(self, stream: StreamId, first: SealedEvent) -> bool:
        try:
            verify_chain([first], after=Verified(0, genesis(self._log.log_id, stream)))
        except LogCorrupt:
            return False
        return True

    def _parent(self, stream: StreamId) -> str:
        try:
            (event,) = map(decoded, self._log.read_stream(stream, limit=1))
        except (LogCorrupt, KeyLost, UnknownEvent):
            return ""
        return event.parent_id if isinstance(event, ConversationForked) else ""


def may_be_fork(key: StreamId, fork: StreamId, of: UnreadFork) -> EventLogError:
    """The error of a command on a conversation that forbids it while a fork of it may be unread."""
    kind = KeyLost if isinstance(of.error, KeyLost) else LogCorrupt
    return kind(f"{fork.namespace}/{fork.name} cannot be read, and may be a fork of {key.name}: {of.error}")
