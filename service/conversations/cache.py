"""The most recently used states, with the bytes in which their messages were sent; bounded in conversations, messages
and bytes."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Self

from abridged.eventlog.event import StreamId
from abridged.service.conversations.prefixes import NO_PREFIXES, Prefixes
from abridged.service.conversations.state_size import StateSize, state_size
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.render import RenderedMessage
from abridged.service.domain.window_size import WindowSize

CONVERSATIONS_MAX = 2_048
MESSAGES_MAX = 100_000
"""Messages in the windows of all cached conversations."""

BYTES_MAX = 128 << 20
"""Memory of the states and of the bytes in which their messages were sent. The process has some 15 % more resident for
them, which its allocators keep."""

SENT_BYTES_MIN = 448
"""The bytes that a sent message takes beside its own: the entry and its place among the others."""

_TEXT_BYTES = 1 << 10
"""Bytes of text that weigh as much as a message."""


class SentMessage(NamedTuple):
    """A message as it was sent, and its bytes; `quoted` is as in SendingOrder, `size` the memory beside the state.

    `digest` is that of the message alone: a model does not read what it costs.
    """

    appended: MessageAppended
    quoted: tuple[int, ...] | None
    rendered: RenderedMessage
    data: bytes
    digest: bytes
    size: int

    @classmethod
    def of(
        cls,
        appended: MessageAppended,
        quoted: tuple[int, ...] | None,
        rendered: RenderedMessage,
        data: bytes,
        digest: bytes,
    ) -> Self:
        """This message. Where it is not sent as it came, the texts that it is sent with take memory, too."""
        copies = 1 if rendered.message is appended.message else 2
        return cls(appended, quoted, rendered, data, digest, SENT_BYTES_MIN + copies * len(data))


class Sent(NamedTuple):
    """A window's messages as last sent, by number, what the last responses began with, and the memory of both.

    The messages' tokens were corrected by `factor`.
    """

    factor: float
    messages: Mapping[int, SentMessage]
    size: int
    prefixes: Prefixes = NO_PREFIXES

    @classmethod
    def of(cls, factor: float, messages: Iterable[SentMessage]) -> Self:
        by_number = {sent.appended.number: sent for sent in messages}
        return cls(factor, by_number, sum([sent.size for sent in by_number.values()]))

    def after(self, prefixes: Prefixes) -> Self:
        """The same messages after responses that began with these."""
        return self._replace(size=self.size - self.prefixes.size + prefixes.size, prefixes=prefixes)

    def after_a_pass(self) -> Self:
        """Keep the parts that outlive a changed window: the beginning of a response, not its messages."""
        return self._replace(factor=1.0, messages=MappingProxyType({}), size=self.prefixes.size)


NOTHING_SENT = Sent(1.0, MappingProxyType({}), 0)


class _Kept(NamedTuple):
    state: Conversation
    size: StateSize
    sent: Sent = NOTHING_SENT


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
        self._replace(key, _Kept(state, state_size(state, before and before[:2], window), sent))
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
            self._replace(key, kept._replace(sent=sent if stays else kept.sent.after(sent.prefixes)))

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
            self._bytes -= dropped.size.bytes + dropped.sent.size

    def _replace(self, key: StreamId, kept: _Kept) -> None:
        self.drop(key)
        self._kept[key] = kept
        self._messages += len(kept.state.window)
        self._bytes += kept.size.bytes + kept.sent.size
        while len(self._kept) > 1 and self._is_over():
            self.drop(next(iter(self._kept)))

    def _is_over(self) -> bool:
        return (
            len(self._kept) > self._conversations_max
            or self._messages > self._messages_max
            or self._bytes > self._bytes_max
        )
