"""The states that were used last, bounded by what they hold."""

from __future__ import annotations

from collections import OrderedDict

from eventlog.event import StreamId
from service.domain.conversation import Conversation

__all__ = ["CONVERSATIONS_MAX", "MESSAGES_MAX", "ConversationCache"]

CONVERSATIONS_MAX = 2_048
MESSAGES_MAX = 100_000
"""Messages in the windows of all cached conversations; one takes about a kilobyte."""


class ConversationCache:
    """Conversations by stream; the one used longest ago goes first."""

    def __init__(self, *, conversations_max: int = CONVERSATIONS_MAX, messages_max: int = MESSAGES_MAX) -> None:
        self._conversations_max = conversations_max
        self._messages_max = messages_max
        self._states: OrderedDict[StreamId, Conversation] = OrderedDict()
        self._messages = 0

    def get(self, key: StreamId) -> Conversation | None:
        """The state, if it is here."""
        state = self._states.get(key)
        if state is not None:
            self._states.move_to_end(key)
        return state

    def put(self, key: StreamId, state: Conversation) -> None:
        """Keep the state in place of an older one. The newest always stays, however large it is."""
        self.drop(key)
        self._states[key] = state
        self._messages += len(state.window)
        while len(self._states) > 1 and (
            len(self._states) > self._conversations_max or self._messages > self._messages_max
        ):
            _, dropped = self._states.popitem(last=False)
            self._messages -= len(dropped.window)

    def drop(self, key: StreamId) -> None:
        """Forget the state, if it is here."""
        dropped = self._states.pop(key, None)
        if dropped is not None:
            self._messages -= len(dropped.window)
