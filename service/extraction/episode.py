"""An episode in its own sentences, short and long, and several episodes' summaries in fewer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from abridged.service.domain.message import Message
from abridged.service.extraction.passages import Passage, diverse, gathered, ranked
from abridged.service.text.sentences import unrepeated

CountTokens = Callable[[str], int]

_SENTENCES_MAX: Final = 8
_SHORT_SENTENCES: Final = 2
_SHORT_SHARE: Final = 0.25
"""The short text's share of the budget; the long text gets the rest."""

_NO_SENTENCES: Final = "The messages hold no sentences."


def extracted_episode(messages: Sequence[Message], *, tokens_max: int, count_tokens: CountTokens) -> tuple[str, str]:
    """The best one or two sentences, and the best three to eight in the order of the conversation, as budget and source
    have them. Each text has at least one line.
    """
    corpus = gathered(messages, previous=None)
    best = ranked(corpus)
    chosen = diverse(best, corpus, skipped=set()) or [scored.passage for scored in best[:1]]
    if not chosen:
        return _NO_SENTENCES, _NO_SENTENCES
    short_max = int(tokens_max * _SHORT_SHARE)
    short = _within(chosen, _SHORT_SENTENCES, short_max, count_tokens)
    return short, _within(chosen, _SENTENCES_MAX, tokens_max - short_max, count_tokens)


def extracted_digest(texts: Sequence[str], *, tokens_max: int, count_tokens: CountTokens) -> str:
    """The first sentence of each text that no newer one says, in order; the oldest are left out if not all fit.

    One is there at least.
    """
    kept: list[str] = []
    said: set[str] = set()
    for text in reversed(texts):
        sentence = next(unrepeated(text, said), "").rstrip()
        tokens_max -= count_tokens(sentence) + 1
        if kept and tokens_max < 0:
            break
        kept += [sentence] if sentence else []
    return "\n".join(reversed(kept))


def _within(chosen: Iterable[Passage], sentences: int, tokens_max: int, count_tokens: CountTokens) -> str:
    """The first passages that fit, in the order of the conversation; the first of them in any case."""
    taken: list[Passage] = []
    for passage in chosen:
        tokens_max -= count_tokens(passage.line) + 1
        if taken and (tokens_max < 0 or len(taken) == sentences):
            break
        taken.append(passage)
    return "\n".join(passage.line for passage in sorted(taken, key=lambda passage: passage.place))
