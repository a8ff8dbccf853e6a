"""Token counts: who counts, what a message costs, and how estimates learn from real usage.

A count says who made it, because the ratio that triggers a pass is only as good as its counts. All arithmetic uses IEEE
basic operations, so a replay on another machine gets the same numbers to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from abridged.service.domain.attachments import fixed_tokens, sent_text
from abridged.service.domain.message import Message, sent_content
from abridged.service.domain.message_form import extra_text

MESSAGE_OVERHEAD_TOKENS: Final = 4
"""Frame of one message in the chat templates in use: start mark, role, line end, end mark (ChatML, Llama 3, Gemma)."""

TRANSCRIPT_FRAME_TOKENS: Final = 4
"""Additional tokens of a message's tag in a summary prompt, which includes its number."""

NAME_OVERHEAD_TOKENS: Final = 1
"""The separator between name and role."""

TOOL_CALL_OVERHEAD_TOKENS: Final = 8
"""Frame of one tool call: its tags and the keys `name` and `arguments` (Qwen 2.5 and Llama 3.1 templates: 7 to 9)."""

FACTOR_MIN: Final = 0.5
FACTOR_MAX: Final = 5.0
"""Vocabularies from before 2024 make up to 4.3 tokens of what is estimated as one: Thai, Hindi, Korean."""

CALIBRATION_TOKENS_MIN: Final = 64
"""The least counted tokens of a report that teaches: with fewer the template's own text outweighs the content."""

_WEIGHT_MIN: Final = 0.1
"""Some twenty reports replace what was learned about an earlier model of the same name."""


class TokenSource(StrEnum):
    """The party that counted, most trusted first."""

    CALLER = "caller"
    TOKENIZER = "tokenizer"
    ESTIMATE = "estimate"


class TokenCount(NamedTuple):
    """A number of tokens, and who counted them."""

    tokens: int
    source: TokenSource


class Taught(NamedTuple):
    """A model's calibration by usage reports: the factor for estimates, and the number of reports."""

    factor: float = 1.0
    reports: int = 0


UNTAUGHT: Final = Taught()
"""The factor of a model without usage reports."""


class TokenCounter(Protocol):
    """Counts the tokens of a text in linear time; never raises, whatever the text."""

    @property
    def name(self) -> str:
        """The counter's name, such as `estimate:o200k` or `bpe:o200k`."""
        ...

    def source_for(self, model: str) -> TokenSource:
        """TOKENIZER if the counts use this chat model's own vocabulary, else ESTIMATE."""
        ...

    def of(self, model: str) -> TokenCounter:
        """The counter for texts of this chat model: its own tokenizer if there is one, else this counter."""
        ...

    def count(self, text: str) -> int:
        """Tokens of `text`; 0 for the empty text only."""
        ...

    def counts(self, texts: Sequence[str]) -> list[int]:
        """The `count` of each text; for an estimate, in less time than one by one."""
        ...


def message_tokens(message: Message, counter: TokenCounter, *, model: str) -> TokenCount:
    """Tokens of `message` as rendered for `model`. The caller's own count, if given, is trusted over all others."""
    return tokens_of_messages((message,), counter, model=model)[0]


def tokens_of_messages(messages: Sequence[Message], counter: TokenCounter, *, model: str) -> list[TokenCount]:
    """The `message_tokens` of each message."""
    texts: list[str] = []
    places: list[slice] = []
    for message in messages:
        before = len(texts)
        if message.token_count is None:
            _add_texts(message, texts)
        places.append(slice(before, len(texts)))
    counts, source = counter.counts(texts), counter.source_for(model)
    return [
        TokenCount(sum(counts[place], _frame_tokens(message)), source)
        if message.token_count is None
        else TokenCount(message.token_count, TokenSource.CALLER)
        for message, place in zip(messages, places, strict=True)
    ]


def tokens_beside_content(message: Message, count: Callable[[str], int]) -> int:
    """Tokens of `message` without its content: its frame, its attachments and its other texts."""
    texts: list[str] = []
    _add_texts(message._replace(content=""), texts)
    return sum(map(count, texts), _frame_tokens(message))


def _add_texts(message: Message, texts: list[str]) -> None:
    """Add the texts of a message that are sent."""
    texts.append(sent_content(message))
    if message.name:
        texts.append(message.name)
    for call in message.tool_calls:
        texts += (call.name, call.arguments)
    if message.tool_call_id:
        texts.append(message.tool_call_id)
    if message.extra_json:
        texts.append(extra_text(message))
    if message.attachments:
        texts += filter(None, map(sent_text, message.attachments))


def _frame_tokens(message: Message) -> int:
    """The tokens of a message beside its texts."""
    tokens = MESSAGE_OVERHEAD_TOKENS
    if message.name:
        tokens += NAME_OVERHEAD_TOKENS
    if message.tool_calls:
        tokens += TOOL_CALL_OVERHEAD_TOKENS * len(message.tool_calls)
    if message.attachments:
        tokens += sum(map(fixed_tokens, message.attachments))
    return tokens


def calibrated_factor(old_factor: float, counted: int, *, reported: int, observations: int) -> float:
    """The factor after one more usage report.

    `counted` is our own count without any factor, `reported` the model's, `observations` the number of reports before
    this one. Early reports are averaged with the initial factor; later ones weigh at least a tenth each. The factor
    stays within FACTOR_MIN and FACTOR_MAX.
    """
    ratio = taught_ratio(counted, reported=reported)
    if ratio is None:
        return old_factor
    weight = max(_WEIGHT_MIN, 1.0 / (observations + 2))
    return min(FACTOR_MAX, max(FACTOR_MIN, old_factor + weight * (ratio - old_factor)))


def taught_ratio(counted: int, *, reported: int, most: float = FACTOR_MAX) -> float | None:
    """The ratio of a trusted count to ours, from FACTOR_MIN to `most`; None if there is too little text."""
    if counted < CALIBRATION_TOKENS_MIN or reported <= 0:
        return None
    return min(most, max(FACTOR_MIN, reported / counted))


def calibrated_tokens(counted: int, factor: float) -> int:
    """`counted`, corrected by a learned factor and rounded up."""
    return math.ceil(counted * factor)


def factor_to(tokens: int, *, estimated: int) -> float:
    """The factor by which `estimated` is corrected to just `tokens`, within FACTOR_MIN and FACTOR_MAX.

    Their ratio is rounded, and may be a hair too much: 23 * (27 / 23) is above 27, which would round up to 28.
    """
    ratio = tokens / estimated
    if calibrated_tokens(estimated, ratio) > tokens:
        ratio = math.nextafter(ratio, 0.0)
    return min(FACTOR_MAX, max(FACTOR_MIN, ratio))
