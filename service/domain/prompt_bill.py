"""The price of prompts at a model's API that has a prompt cache.

The start of a conversation's prompt that equals the start of the one before is read from the cache; whoever uses the
cache writes the rest to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from abridged.service.domain.message import Message, Role
from abridged.service.domain.render import RenderedMessage

READ, WRITE, UNCACHED = 0.1, 1.25, 1.0
"""Prices of an input token that is read from the cache, written to it, or neither: those of Anthropic's API (2026)."""


@dataclass(slots=True)
class PromptBill:
    """The prompts of any number of conversations, and their tokens.

    Attributes:
        prompts: The number of prompts that were sent.
        tokens: The prompts' tokens.
        stable: Tokens that the prompt before of the conversation began with too.
        rewritten: Prompts that are not the one before with more at its end.
        over: Prompts that exceed their budget.
        summarizer: Tokens that the summarizer's model reads and writes.
    """

    prompts: int = 0
    tokens: int = 0
    stable: int = 0
    rewritten: int = 0
    over: int = 0
    summarizer: int = 0
    _last: dict[str, Sequence[RenderedMessage]] = field(default_factory=dict, repr=False)

    @property
    def cost(self) -> float:
        """The price in uncached input tokens, with the cache, or without it if that is cheaper."""
        cached = READ * self.stable + WRITE * (self.tokens - self.stable)
        return min(cached, UNCACHED * self.tokens) + UNCACHED * self.summarizer

    def sent(self, conversation_id: str, prompt: Sequence[RenderedMessage], *, budget: int) -> None:
        """Add a prompt of the conversation, after those that were added before."""
        before = self._last.get(conversation_id, ())
        same = 0
        while same < min(len(before), len(prompt)) and before[same].message == prompt[same].message:
            same += 1
        tokens = sum(m.tokens for m in prompt)
        self.prompts += 1
        self.tokens += tokens
        self.stable += sum(m.tokens for m in prompt[:same])
        self.rewritten += same < len(before)
        self.over += tokens > budget
        self._last[conversation_id] = prompt


def answered(messages: Sequence[Message]) -> frozenset[int]:
    """Count the messages before each prompt of a chat: the assistant's are answers, or all are if it says nothing.

    The first message of a chat answers nothing.
    """
    answers = {count for count, message in enumerate(messages) if message.role is Role.ASSISTANT}
    return frozenset(answers or range(len(messages))) - {0}
