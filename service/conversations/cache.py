"""The states that were used last, bounded by what they hold: conversations, messages and bytes."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from eventlog.event import StreamId
from service.domain.conversation import Conversation
from service.domain.events import MessageAppended

__all__ = ["BYTES_MAX", "CONVERSATIONS_MAX", "MESSAGES_MAX", "ConversationCache"]

CONVERSATIONS_MAX = 2_048
MESSAGES_MAX = 100_000
"""Messages in the windows of all cached conversations; what is not text of one takes about a kilobyte."""

BYTES_MAX = 128 << 20
"""Memory that the texts of those messages take."""


class _Kept(NamedTuple):
    state: Conversation
    size: int


class ConversationCache:
    """Conversations by stream; the one used longest ago goes first."""

    def __init__(
        self,
        *,
        conversations_max: int = CONVERSATIONS_MAX,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._conversations_max = conversations_max
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._kept: OrderedDict[StreamId, _Kept] = OrderedDict()
        self._messages = 0
        self._bytes = 0

    def get(self, key: StreamId) -> Conversation | None:
        """The state, if it is here."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept.state

    def put(self, key: StreamId, state: Conversation) -> Conversation:
        """Keep the state, unless a newer one is here; answers the one that is kept.

        What was used last always stays, however large it is.
        """
        before = self._kept.get(key)
        if before is not None and before.state.event_version > state.event_version:
            return before.state
        self.drop(key)
        kept = self._kept[key] = _Kept(state, _size(state, before))
        self._messages += len(state.window)
        self._bytes += kept.size
        while len(self._kept) > 1 and self._is_over():
            self.drop(next(iter(self._kept)))
        return state

    def bytes_of(self, key: StreamId) -> int:
        """Memory that the texts of its window take; 0 when it is not here."""
        kept = self._kept.get(key)
        return 0 if kept is None else kept.size

    def drop(self, key: StreamId) -> None:
        """Forget the state, if it is here."""
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._messages -= len(dropped.state.window)
            self._bytes -= dropped.size

    def _is_over(self) -> bool:
        return (
            len(self._kept) > self._conversations_max
            or self._messages > self._messages_max
            or self._bytes > self._bytes_max
        )


def _size(state: Conversation, before: _Kept | None) -> int:
    """The memory of the window's texts. Between two records a window only grows, so that only what is new is added."""
    window = state.window
    if before is None or before.state.completed_passes != state.completed_passes:
        return _text_bytes(window)
    return before.size + _text_bytes(window[place] for place in range(len(before.state.window), len(window)))


def _text_bytes(messages: Iterable[MessageAppended]) -> int:
    total = 0
    for appended in messages:
        message = appended.message
        total += sys.getsizeof(message.content)
        for call in message.tool_calls:
            total += sys.getsizeof(call.arguments)
        for attachment in message.attachments:
            total += sys.getsizeof(attachment.uri)
    return total
