"""The price of prompts at a model's API that has a prompt cache.

The start of a conversation's prompt that equals the start of the one before is read from the cache; whoever uses the
cache writes the rest to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from abridged.service.domain.message import Message, Role
from abridged.service.domain.render import RenderedMessage


class Prices(NamedTuple):
    """Prices of a token in those of an input token that is neither read from the cache nor written to it: of one that
    is `read` from it, of one that is written to it (`kept`), and of one of an `answer`."""

    read: float
    kept: float
    answer: float


ANTHROPIC = Prices(read=0.1, kept=1.25, answer=5.0)
"""Claude Sonnet, Opus and Haiku 4.5, with a cache entry of five minutes: 3 dollars a million tokens of Sonnet's input,
0.30, 3.75 and 15 (Anthropic's price list, 2026)."""


@dataclass(slots=True)
class PromptBill:
    """The prompts of any number of conversations, their tokens, and the tokens of the summarizer's model.

    Attributes:
        prompts: The number of prompts that were sent.
        tokens: The prompts' tokens.
        stable: Tokens that the prompt before of the conversation began with too.
        rewritten: Prompts that are not the one before with more at its end.
        over: Prompts that exceed their budget.
        asked: Tokens of the questions to the summarizer's model.
        asked_stable: Tokens of these that the conversation's last prompt began with too.
        answered: Tokens of the answers to them.
    """

    prompts: int = 0
    tokens: int = 0
    stable: int = 0
    rewritten: int = 0
    over: int = 0
    asked: int = 0
    asked_stable: int = 0
    answered: int = 0
    _last: dict[str, Sequence[RenderedMessage]] = field(default_factory=dict, repr=False)

    @property
    def summarizer(self) -> int:
        """Tokens that the summarizer's model reads and writes."""
        return self.asked + self.answered

    def cost(self, prices: Prices = ANTHROPIC) -> float:
        """The price in uncached input tokens, with the cache, or without it if that is cheaper.

        A question to the summarizer's model is asked once, so that nobody writes it to the cache.
        """
        read = prices.read * (self.stable + self.asked_stable)
        cached = read + prices.kept * (self.tokens - self.stable) + (self.asked - self.asked_stable)
        return min(cached, self.tokens + self.asked) + prices.answer * self.answered

    def sent(self, conversation_id: str, prompt: Sequence[RenderedMessage], *, budget: int) -> None:
        """Add a prompt of the conversation, after those that were added before."""
        before = self._last.get(conversation_id, ())
        same = _same(before, [m.message for m in prompt])
        tokens = sum(m.tokens for m in prompt)
        self.prompts += 1
        self.tokens += tokens
        self.stable += sum(m.tokens for m in prompt[:same])
        self.rewritten += same < len(before)
        self.over += tokens > budget
        self._last[conversation_id] = prompt

    def summarized(self, conversation_id: str, *, asked: int, answered: int, after: Sequence[Message] = ()) -> None:
        """Add a call of the summarizer's model by its tokens; the question begins with the messages `after` which it is
        asked, if it is the chat's own model."""
        before = self._last.get(conversation_id, ())
        self.asked += asked
        self.asked_stable += sum(m.tokens for m in before[: _same(before, after)])
        self.answered += answered

    def cooled(self, conversation_id: str) -> None:
        """Forget the conversation's last prompt: its cache entry has expired."""
        self._last.pop(conversation_id, None)


def _same(before: Sequence[RenderedMessage], messages: Sequence[Message]) -> int:
    """The number of messages that both begin with."""
    same = 0
    while same < min(len(before), len(messages)) and before[same].message == messages[same]:
        same += 1
    return same


def answered(messages: Sequence[Message]) -> frozenset[int]:
    """Count the messages before each prompt of a chat: the assistant's are answers, or all are if it says nothing.

    The first message of a chat answers nothing.
    """
    answers = {count for count, message in enumerate(messages) if message.role is Role.ASSISTANT}
    return frozenset(answers or range(len(messages))) - {0}
