"""The memory of a window: bytes of its texts, and how many parts it has."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import NamedTuple, Self

from abridged.service.domain.events import MessageAppended


class WindowSize(NamedTuple):
    """The size of a window: bytes of its texts, and the number of messages, calls, attachments and labels."""

    bytes: int = 0
    parts: int = 0

    def with_more(self, more: Self) -> Self:
        """The size of two windows together."""
        return type(self)(self.bytes + more.bytes, self.parts + more.parts)


def window_size(messages: Iterable[MessageAppended]) -> WindowSize:
    """The size of these messages; linear."""
    total = parts = 0
    sizeof = sys.getsizeof
    for appended in messages:
        message = appended.message
        parts += 1
        total += sizeof(message.content)
        if message.extra_json:
            total += sizeof(message.extra_json)
        if message.tool_calls:
            parts += len(message.tool_calls)
            total += sum(sizeof(call.arguments) for call in message.tool_calls)
        if message.attachments:
            parts += len(message.attachments)
            total += sum(sizeof(attachment.uri) for attachment in message.attachments)
        parts += len(message.labels)
    return WindowSize(total, parts)
