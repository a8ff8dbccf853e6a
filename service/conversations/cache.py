"""The most recently used states, with the bytes in which their messages were sent; bounded in conversations, messages
and bytes."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import NamedTuple, Self

from abridged.eventlog.event import StreamId
from abridged.service.conversations.prefixes import NO_PREFIXES, Prefixes
from abridged.service.conversations.state_size import StateSize, state_size
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.render import RenderedMessage
from abridged.service.domain.sequence import Sequence
from abridged.service.domain.window import NO_OPEN_CALLS, OpenCalls
from abridged.service.domain.window_size import WindowSize

CONVERSATIONS_MAX = 2_048
MESSAGES_MAX = 100_000
"""Messages in the windows of all cached conversations."""

BYTES_MAX = 128 << 20
"""Memory of the states and of the bytes in which their messages were sent. The process has some 15 % more resident for
them, which its allocators keep."""

SENT_BYTES_MIN = 128
"""The bytes that a sent message takes beside its own: what it was rendered to, its digest, and its places."""

OWN_BYTES_MIN = 256
"""The bytes that a message takes beside its texts where it is not sent as it came."""

_OPEN_CALL_BYTES = 192
_TEXT_BYTES = 1 << 10
"""Bytes of text that weigh as much as a message."""


class SentPart(NamedTuple):
    """Messages that were sent in a row, in the bytes of a response, and the memory that they take beside the state.

    A digest is that of the message alone: a model does not read what it costs.
    """

    messages: tuple[RenderedMessage, ...] = ()
    data: bytes = b""
    digests: bytes = b""
    tokens: int = 0
    size: int = 0


NO_PART = SentPart()


class Sent(NamedTuple):
    """A window as it was sent last, to be extended by what is appended, and what the last responses began with.

    Attributes:
        factor: The factor that corrected the messages' tokens.
        window: The window's messages.
        open_calls: The window's calls whose messages a further one may change.
        summaries_of: The values that the summaries were rendered of.
        system: The system messages.
        summaries: The summaries.
        chat: All other messages.
        prefixes: The digests of the last responses.
    """

    factor: float = 1.0
    window: Sequence[MessageAppended] = Sequence()
    open_calls: OpenCalls = NO_OPEN_CALLS
    summaries_of: tuple[object, ...] = ()
    system: SentPart = NO_PART
    summaries: SentPart = NO_PART
    chat: SentPart = NO_PART
    prefixes: Prefixes = NO_PREFIXES

    @property
    def parts(self) -> tuple[SentPart, SentPart, SentPart]:
        """The parts in the order in which they are sent."""
        return self.system, self.summaries, self.chat

    @property
    def messages(self) -> tuple[RenderedMessage, ...]:
        """All messages, in order."""
        return self.system.messages + self.summaries.messages + self.chat.messages

    @property
    def digests(self) -> bytes:
        """The digests of all messages in a row."""
        return self.system.digests + self.summaries.digests + self.chat.digests

    @property
    def size(self) -> int:
        """Bytes of memory that the sent window takes beside the state's."""
        calls = sum(len(calls) for of in self.open_calls for calls in of.values())
        return sum([part.size for part in self.parts]) + _OPEN_CALL_BYTES * calls + self.prefixes.size

    def after(self, prefixes: Prefixes) -> Self:
        """The same window after responses that began with these."""
        return self._replace(prefixes=prefixes)

    def after_a_pass(self) -> Sent:
        """Keep the parts that outlive a changed window: the beginning of a response, not its messages."""
        return Sent(prefixes=self.prefixes)


NOTHING_SENT = Sent()


class _Kept(NamedTuple):
    state: Conversation
    size: StateSize
    sent: Sent
    bytes: int

    @classmethod
    def of(cls, state: Conversation, size: StateSize, sent: Sent) -> Self:
        return cls(state, size, sent, size.bytes + sent.size)


class ConversationCache:
    """Conversations by stream; the least recently used goes first."""

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

    @property
    def bytes(self) -> int:
        """Memory of the states and of what was sent of them."""
        return self._bytes

    def get(self, key: StreamId) -> Conversation | None:
        """The state; None if it is not cached."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept.state

    def put(self, key: StreamId, state: Conversation, window: WindowSize | None = None) -> Conversation:
        """Cache the state unless a newer one is cached; returns the one that is.

        The most recently used state always stays, however large. `window` is the size of its own, if the caller has it.
        """
        before = self._kept.get(key)
        if before is not None and before.state.event_version > state.event_version:
            return before.state
        sent = NOTHING_SENT if before is None else before.sent
        if before is not None and before.state.epoch != state.epoch:
            sent = sent.after_a_pass()
        self._replace(key, _Kept.of(state, state_size(state, before and before[:2], window), sent))
        return state

    def sent(self, key: StreamId) -> Sent:
        """Return the response that `keep_sent` cached, without messages if a pass has ended since."""
        kept = self._kept.get(key)
        return NOTHING_SENT if kept is None else kept.sent

    def keep_sent(self, key: StreamId, state: Conversation, sent: Sent) -> None:
        """Cache what was sent of this state if it is cached, without messages if a pass has ended since."""
        kept = self._kept.get(key)
        if kept is not None:
            stays = kept.state.epoch == state.epoch
            self._replace(key, _Kept.of(kept.state, kept.size, sent if stays else kept.sent.after(sent.prefixes)))

    def bytes_of(self, key: StreamId) -> int:
        """Memory of its window's texts; 0 if it is not cached."""
        kept = self._kept.get(key)
        return 0 if kept is None else kept.size.window.bytes

    def weight_of(self, key: StreamId) -> int:
        """The weight of work on its whole window, in units of `service.turn`; large if it is not cached."""
        kept = self._kept.get(key)
        return sys.maxsize if kept is None else kept.size.window.parts + kept.size.window.bytes // _TEXT_BYTES

    def drop(self, key: StreamId) -> None:
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._messages -= len(dropped.state.window)
            self._bytes -= dropped.bytes

    def _replace(self, key: StreamId, kept: _Kept) -> None:
        self.drop(key)
        self._kept[key] = kept
        self._messages += len(kept.state.window)
        self._bytes += kept.bytes
        while len(self._kept) > 1 and self._is_over():
            self.drop(next(iter(self._kept)))

    def _is_over(self) -> bool:
        return (
            len(self._kept) > self._conversations_max
            or self._messages > self._messages_max
            or self._bytes > self._bytes_max
        )
