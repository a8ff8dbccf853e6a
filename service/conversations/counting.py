"""Counts messages without blocking the event loop: small ones at once, large ones in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from service.domain.commands import CountedMessage
from service.domain.message import Message
from service.domain.tokens import TokenCount, TokenCounter, TokenSource, message_tokens
from service.turn import aside

__all__ = ["Counting"]

COUNTED_CHARS = 50
"""Characters that weigh as much as counting a short text: the BPE takes most of a microsecond for two of them."""


class Counting:
    """Counts messages with one counter."""

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter

    async def counted(self, messages: Sequence[Message]) -> tuple[CountedMessage, ...]:
        """The messages with their counts, as estimates until `credited` knows the model."""
        return await aside(sum(map(_weight, messages)), partial(self._counted, messages))

    def credited(self, messages: tuple[CountedMessage, ...], model: str) -> tuple[CountedMessage, ...]:
        """The counts, marked as exact if the counter has `model`'s own vocabulary."""
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


def _weight(message: Message) -> int:
    """The weight of counting the message; a text that the caller counted is not read."""
    if message.token_count is not None:
        return 1
    chars = len(message.content) + sum(len(call.arguments) for call in message.tool_calls)
    return 1 + 2 * len(message.tool_calls) + chars // COUNTED_CHARS
