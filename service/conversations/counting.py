"""Counting messages without holding up the event loop: small ones at once, large ones in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from service.domain.decide import CountedMessage
from service.domain.message import Message
from service.domain.tokens import TokenCount, TokenCounter, TokenSource, message_tokens

__all__ = ["Counting"]

INLINE_CHARS_MAX = 50_000
"""Less than a millisecond of estimating; what is longer goes to a thread."""


class Counting:
    """Counts messages with one counter."""

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter

    async def counted(self, messages: Sequence[Message]) -> tuple[CountedMessage, ...]:
        """The messages with their counts, which are estimates until `credited` knows the model."""
        if sum(_chars(m) for m in messages) <= INLINE_CHARS_MAX:
            return self._counted(messages)
        return await asyncio.to_thread(self._counted, messages)

    def credited(self, messages: tuple[CountedMessage, ...], model: str) -> tuple[CountedMessage, ...]:
        """The counts as exact ones where `model` has the counter's own vocabulary."""
        if self.counter.source_for(model) is not TokenSource.TOKENIZER:
            return messages
        return tuple(
            counted._replace(cost=counted.cost._replace(source=TokenSource.TOKENIZER))
            if counted.cost.source is TokenSource.ESTIMATE
            else counted
            for counted in messages
        )

    def _counted(self, messages: Sequence[Message]) -> tuple[CountedMessage, ...]:
        return tuple(self._one(m) for m in messages)

    def _one(self, message: Message) -> CountedMessage:
        count: TokenCount = message_tokens(message, self.counter, model="")
        name = self.counter.name if count.source is not TokenSource.CALLER else ""
        return CountedMessage(message, count, name)


def _chars(message: Message) -> int:
    if message.token_count is not None:
        return 0
    return len(message.content) + sum(len(call.arguments) for call in message.tool_calls)
