"""Counts messages without blocking the event loop: small ones at once, large ones in a thread.

A message is counted by its conversation's model. The model is usually known before the conversation's turn; if it was
not, or if its tokenizer arrived meanwhile, the message is counted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from abridged.observability.stages import Stage, stage
from abridged.service.domain.commands import CountedMessage
from abridged.service.domain.events import MessageAppended, SystemPrompt
from abridged.service.domain.message import Message
from abridged.service.domain.tokens import (
    TokenCount,
    TokenCounter,
    TokenSource,
    factor_to,
    message_tokens,
    tokens_of_messages,
)
from abridged.service.turn import run_off_loop

COUNTED_CHARS = 50
"""Characters that weigh as much as counting a short text: the BPE takes most of a microsecond for two of them."""


class Counting:
    """Counts messages. `want` is called, on the event loop, with each model whose messages are counted."""

    def __init__(self, counter: TokenCounter, *, want: Callable[[str], None] = lambda _model: None) -> None:
        self.counter = counter
        self._want = want

    def by_model(self, model: str) -> TokenCounter:
        """The counter of a model. Requests the model's own tokenizer for later calls."""
        self._want(model)
        return self.counter.of(model)

    async def texts(self, texts: Sequence[str], model: str) -> tuple[TokenCount, ...]:
        """The texts as `model` counts them."""
        counter = self.by_model(model)
        weight = len(texts) + sum(map(len, texts)) // COUNTED_CHARS
        source = counter.source_for(model)
        return await run_off_loop(weight, lambda: tuple(TokenCount(counter.count(text), source) for text in texts))

    async def counted(self, messages: Sequence[Message], model: str) -> tuple[CountedMessage, ...]:
        """The messages as `model` counts them, as estimates until `credited` knows that it is the conversation's."""
        counter = self.by_model(model)
        with stage(Stage.COUNT):
            return await run_off_loop(sum(map(_weight, messages)), lambda: _counted(messages, counter))

    def prompt(self, prompt: SystemPrompt, model: str) -> SystemPrompt:
        """The system prompt with its tokens as `model` counts them; its length is bounded."""
        counter = self.by_model(model)
        tokens = message_tokens(prompt.message, counter, model=model)
        return replace(prompt, tokens=tokens.tokens, source=tokens.source)

    def is_exact(self, model: str) -> bool:
        """Return whether the model's own tokenizer counts its messages now."""
        return self.counter.of(model).source_for(model) is TokenSource.TOKENIZER

    async def factor_of_estimates(self, window: Iterable[MessageAppended], model: str) -> float | None:
        """The tokens of the window's estimated messages by the model's own tokenizer, for one of their estimates; None
        without that tokenizer, or without estimates."""
        estimated = [m for m in window if m.source is TokenSource.ESTIMATE]
        if not estimated or not self.is_exact(model):
            return None
        counted = await self.counted([m.message for m in estimated], model)
        return factor_to(sum(c.cost.tokens for c in counted), estimated=sum(m.tokens for m in estimated))

    async def credited(self, messages: tuple[CountedMessage, ...], model: str) -> tuple[CountedMessage, ...]:
        """The counts by the counter of the conversation's `model`, marked as exact if that has its own vocabulary."""
        counter = self.by_model(model)
        if any(counted.counter not in ("", counter.name) for counted in messages):
            messages = await self.counted([counted.message for counted in messages], model)
        if counter.source_for(model) is not TokenSource.TOKENIZER:
            return messages
        return tuple(
            counted._replace(cost=counted.cost._replace(source=TokenSource.TOKENIZER))
            if counted.cost.source is TokenSource.ESTIMATE
            else counted
            for counted in messages
        )


def _counted(messages: Sequence[Message], counter: TokenCounter) -> tuple[CountedMessage, ...]:
    return tuple(
        [
            CountedMessage(message, cost, counter.name if cost.source is not TokenSource.CALLER else "")
            for message, cost in zip(messages, tokens_of_messages(messages, counter, model=""), strict=True)
        ]
    )


def _weight(message: Message) -> int:
    """The weight of counting the message; a text that the caller counted is not read."""
    if message.token_count is not None:
        return 1
    chars = len(message.content) + sum(len(call.arguments) for call in message.tool_calls)
    chars += sum(len(attachment.uri) for attachment in message.attachments if not attachment.token_count)
    return 1 + 2 * len(message.tool_calls) + len(message.attachments) // 2 + chars // COUNTED_CHARS
