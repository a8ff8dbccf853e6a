"""A summary made of the conversation's own sentences: deterministic, without a model.

Sentences are scored by topic, speaker and place; decisions, tasks and open questions are recognized by their words.
They are taken greedily until the token budget is spent, each worth less the more it repeats what was taken (maximal
marginal relevance). The previous record takes part, so what mattered before can still win a place. A source of two or
more sentences is never quoted whole, and no quote exceeds CLIP_CHARS_MAX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from abridged.service.domain.message import Message
from abridged.service.domain.record import DOMAIN_ENTITIES_MAX, KEY_POINTS_MAX, RecordContext, SummaryRecord
from abridged.service.extraction import facts
from abridged.service.extraction.entities import ranked_entities
from abridged.service.extraction.passages import LEAD, Passage, diverse, gathered, is_usable, ranked
from abridged.service.extraction.replaced import outdated

CountTokens = Callable[[str], int]

_NO_SENTENCES: Final = "The messages hold no sentences; what they name is listed."

_RENDERING_SHARE: Final = 0.15
"""Share of the budget for headings, list marks and the record's frame."""

_ENTITIES_SHARE: Final = 0.25
_DECISIONS_SHARE: Final = 0.15
_ACTIONS_SHARE: Final = 0.15
_UNRESOLVED_SHARE: Final = 0.08
_PARTICIPANTS_SHARE: Final = 0.05
_SUMMARY_SHARE: Final = 0.5
"""Share of what the lists above leave; the key points get the rest."""

_ITEM_TOKENS: Final = 2
"""A list mark and a line end."""

_MISSES_MAX: Final = 20
"""Texts that do not fit and are skipped, before the budget counts as spent."""


@dataclass(frozen=True, slots=True)
class Extract:
    """The contents of a record."""

    summary: str
    key_points: tuple[str, ...]
    context: RecordContext


def extract(
    messages: Sequence[Message],
    *,
    previous: SummaryRecord | None,
    tokens_max: int,
    count_tokens: CountTokens,
) -> Extract:
    """The extract of `messages`, continuing `previous`, in about `tokens_max` tokens.

    The summary always has a line, whatever the budget.
    """
    corpus = gathered(messages, previous=previous)
    best = ranked(corpus)
    talk = facts.talk_of(corpus)
    carried = previous.context if previous is not None else RecordContext()
    budget = int(tokens_max * (1 - _RENDERING_SHARE)) - _cost(LEAD, count_tokens)

    actions = facts.action_items(best, corpus, talk, carried=carried.action_items)
    kept = tuple(filter(is_usable, carried.domain_entities))
    names = ranked_entities(corpus.texts, carried=kept, spoken=corpus.spoken, count_max=DOMAIN_ENTITIES_MAX)
    shared = _shared(
        (facts.participants(corpus, carried.participants), _PARTICIPANTS_SHARE),
        (facts.decisions(best, talk, carried=carried.decisions), _DECISIONS_SHARE),
        (facts.unresolved(best, corpus, talk, carried=carried.unresolved), _UNRESOLVED_SHARE),
        ([action.task for action in actions], _ACTIONS_SHARE),
        tokens_max=budget,
        count_tokens=count_tokens,
    )
    participants, decisions, unresolved, tasks = shared
    context = RecordContext(
        participants=participants,
        decisions=decisions,
        action_items=tuple(action for action in actions if action.task in tasks),
        unresolved=unresolved,
        domain_entities=tuple(_fitting(names, int(budget * _ENTITIES_SHARE), count_tokens=count_tokens)),
    )
    listed = {*context.decisions, *tasks, *context.unresolved}
    spent = (*listed, *context.participants, *context.domain_entities)
    left = max(0, budget - sum(_cost(text, count_tokens) for text in spent))
    stale = outdated(best)
    chosen = diverse(best, corpus, skipped=listed | stale)
    summed_up, others = _divided(chosen[: -(-len(chosen) // 2)], int(left * _SUMMARY_SHARE), count_tokens=count_tokens)
    points, _ = _divided(
        [*others, *chosen[-(-len(chosen) // 2) :]], left - int(left * _SUMMARY_SHARE), count_tokens=count_tokens
    )
    return Extract(
        summary=_summary(summed_up or chosen[:1] or [one.passage for one in best if one.passage.line not in stale][:1]),
        key_points=_lines(points[:KEY_POINTS_MAX]),
        context=context,
    )


def _summary(passages: Sequence[Passage]) -> str:
    return "\n".join((LEAD, *_lines(passages))) if passages else _NO_SENTENCES


def _lines(passages: Sequence[Passage]) -> tuple[str, ...]:
    """The passages as lines, in the order of the conversation."""
    return tuple(passage.line for passage in sorted(passages, key=lambda passage: passage.place))


def _shared(
    *lists: tuple[Sequence[str], float], tokens_max: int, count_tokens: CountTokens
) -> Iterator[tuple[str, ...]]:
    """The texts of each list that fit its share of `tokens_max` and what earlier lists left over."""
    room = 0
    for texts, share in lists:
        room += int(tokens_max * share)
        fitting = tuple(_fitting(texts, room, count_tokens=count_tokens))
        room -= sum(_cost(text, count_tokens) for text in fitting)
        yield fitting


def _divided(
    passages: Sequence[Passage], tokens_max: int, *, count_tokens: CountTokens
) -> tuple[list[Passage], list[Passage]]:
    """The first passages whose lines fit `tokens_max`, and all others."""
    lines = set(_fitting((passage.line for passage in passages), tokens_max, count_tokens=count_tokens))
    inside = [passage for passage in passages if passage.line in lines]
    return inside, [passage for passage in passages if passage.line not in lines]


def _fitting(texts: Iterable[str], tokens_max: int, *, count_tokens: CountTokens) -> Iterator[str]:
    """Texts in order while they fit; skips one that is too long in favour of a few shorter ones after it."""
    misses = 0
    for text in texts:
        cost = _cost(text, count_tokens)
        if cost <= tokens_max:
            tokens_max -= cost
            yield text
        elif (misses := misses + 1) > _MISSES_MAX:
            return


def _cost(text: str, count_tokens: CountTokens) -> int:
    return count_tokens(text) + _ITEM_TOKENS
