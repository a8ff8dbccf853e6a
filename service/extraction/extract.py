"""A summary made of the conversation's own sentences: deterministic, without a model.

Sentences are scored by topic, speaker and place; decisions, tasks and open questions are recognized by their words.
They are taken greedily until the token budget is spent, each worth less the more it repeats what was taken (maximal
marginal relevance). The previous record takes part, so what mattered before can still win a place. A source of two or
more sentences is never quoted whole, and no quote exceeds CLIP_CHARS_MAX.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from types import MappingProxyType
from typing import Final

from abridged.service.domain.message import Message
from abridged.service.domain.record import (
    DOMAIN_ENTITIES_MAX,
    KEY_POINTS_MAX,
    ActionItem,
    RecordContext,
    SummaryRecord,
    statements_of,
)
from abridged.service.extraction import facts
from abridged.service.extraction.agreements import agreements
from abridged.service.extraction.calls import calls
from abridged.service.extraction.entities import ranked_entities
from abridged.service.extraction.open_points import unresolved
from abridged.service.extraction.passages import LEAD, Passage, diverse, gathered, is_usable, ranked
from abridged.service.extraction.replaced import outdated, superseding
from abridged.service.extraction.superseded import succeeded, superseded_in
from abridged.service.extraction.talk import talk_of

CountTokens = Callable[[str], int]

_NO_SENTENCES: Final = "The messages hold no sentences; what they name is listed."

_RENDERING_SHARE: Final = 0.03
"""Share of the budget for headings; `_ITEM_TOKENS` counts list marks."""

_ENTITIES_SHARE: Final = 0.24
_DECISIONS_SHARE: Final = 0.2
_ACTIONS_SHARE: Final = 0.1
_UNRESOLVED_SHARE: Final = 0.33
_PARTICIPANTS_SHARE: Final = 0.06
_CALLS_SHARE: Final = 0.15
_SUMMARY_SHARE: Final = 0.5
"""Share of what the lists above leave; the key points get the rest."""

_LAST_MESSAGES: Final = 2
"""Messages at the end of a source whose questions nobody could reply to in it."""

_ITEM_TOKENS: Final = 2
"""A list mark and a line end."""

_MISSES_MAX: Final = 20
"""Texts that do not fit and are skipped, before the budget counts as spent."""


@dataclass(frozen=True, slots=True)
class Extract:
    """The contents of a record, and the messages that each of its lines rests on."""

    summary: str
    key_points: tuple[str, ...]
    context: RecordContext
    rests_on: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def extract(
    messages: Sequence[Message],
    *,
    previous: SummaryRecord | None,
    tokens_max: int,
    count_tokens: CountTokens,
    numbers: Sequence[int] = (),
    superseded: Mapping[str, int] = MappingProxyType({}),
    in_ledger: Collection[str] | None = None,
) -> Extract:
    """The extract of `messages`, continuing `previous`, in about `tokens_max` tokens.

    The summary always has a line, whatever the budget. `numbers` are those of the messages, by default from 1.
    No sentence is quoted for a value that is `superseded`. `in_ledger` are the identifiers, case folded, that a
    ledger shows beside the record; None without a ledger.
    """
    corpus = gathered(messages, previous=previous, numbers=numbers)
    best = ranked(corpus, in_ledger=in_ledger)
    talk = talk_of(corpus)
    agreed = tuple(agreements(corpus, talk))
    carried = previous.context if previous is not None else RecordContext()
    budget = int(tokens_max * (1 - _RENDERING_SHARE)) - _cost(LEAD, count_tokens)

    actions = facts.action_items(best, corpus, talk, carried=carried.action_items)
    kept = tuple(filter(is_usable, carried.domain_entities))
    names = ranked_entities(
        corpus.texts,
        carried=kept,
        spoken=corpus.spoken,
        count_max=DOMAIN_ENTITIES_MAX,
        has_ledger=in_ledger is not None,
    )
    shared = _shared(
        (facts.participants(corpus, carried.participants), _PARTICIPANTS_SHARE),
        (facts.decisions(best, talk, agreed, carried=carried.decisions), _DECISIONS_SHARE),
        (unresolved(best, talk, carried=carried.unresolved, just_asked=_just_asked(previous)), _UNRESOLVED_SHARE),
        ([action.task for action in actions], _ACTIONS_SHARE),
        tokens_max=budget,
        count_tokens=count_tokens,
    )
    participants, decisions, open_points, tasks = shared
    context = RecordContext(
        participants=participants,
        decisions=_in_order(decisions, carried.decisions, (*corpus.passages, *agreed)),
        action_items=tuple(action for action in actions if action.task in tasks),
        unresolved=open_points,
        domain_entities=tuple(_fitting(names, int(budget * _ENTITIES_SHARE), count_tokens=count_tokens)),
    )
    made = calls(messages, numbers or range(1, len(messages) + 1), corpus, previous)
    gone = dict(superseded) | superseded_in(corpus.passages)
    standing = [call for call in made if not superseding(call.text, gone)]
    called, _ = _divided(standing, int(budget * _CALLS_SHARE), count_tokens=count_tokens)
    listed = {*context.decisions, *tasks, *context.unresolved}
    spent = (*listed, *context.participants, *context.domain_entities, *_lines(called))
    left = max(0, budget - sum(_cost(text, count_tokens) for text in spent))
    stale = outdated(best)
    best = succeeded(best, gone)
    replies = {passage.source for passage in agreed if passage.line in listed}
    quoted = {passage.line for passage in corpus.passages if passage.source in replies}
    chosen = diverse(best, corpus, skipped=listed | quoted | stale)
    summed_up, points = _summary_and_points(chosen, left, count_tokens=count_tokens)
    return Extract(
        summary=_summary(summed_up or chosen[:1] or [one.passage for one in best if one.passage.line not in stale][:1]),
        key_points=_lines([*reversed(called), *points[: KEY_POINTS_MAX - len(called)]]),
        context=context,
        rests_on=_rests_on((*corpus.passages, *agreed, *called), previous, context.action_items),
    )


def _in_order(lines: Iterable[str], carried: Sequence[str], passages: Iterable[Passage]) -> tuple[str, ...]:
    """The lines in the order of the conversation, the carried ones first."""
    places = {line: at - len(carried) for at, line in enumerate(carried)}
    places |= {passage.line: passage.place for passage in passages}
    return tuple(sorted(lines, key=lambda line: places[line]))


def _summary_and_points(
    chosen: Sequence[Passage], tokens_max: int, *, count_tokens: CountTokens
) -> tuple[list[Passage], list[Passage]]:
    """The passages of the summary, and those of the key points."""
    half, for_summary = -(-len(chosen) // 2), int(tokens_max * _SUMMARY_SHARE)
    summed_up, others = _divided(chosen[:half], for_summary, count_tokens=count_tokens)
    points, _ = _divided([*others, *chosen[half:]], tokens_max - for_summary, count_tokens=count_tokens)
    return summed_up, points


def _just_asked(previous: SummaryRecord | None) -> frozenset[str]:
    """The open points of an earlier record that its last messages say; all whose messages it does not name."""
    if previous is None:
        return frozenset()
    last = previous.covered[-1].last - _LAST_MESSAGES
    numbered = zip(previous.context.unresolved, chain(previous.evidence.unresolved, repeat(())), strict=False)
    return frozenset(line for line, numbers in numbered if not numbers or numbers[-1] > last)


def _rests_on(
    passages: Iterable[Passage], previous: SummaryRecord | None, actions: Iterable[ActionItem]
) -> dict[str, tuple[int, ...]]:
    """The messages of every line that an extract of `passages` can have: what it takes over keeps those it had."""
    carried = statements_of(previous) if previous is not None else ()
    said = ((passage.line, passage.numbers) for passage in passages)
    known = {line: numbers for line, numbers in (*carried, *said) if numbers}
    tasks = ((action.text, known.get(action.text) or known.get(action.task, ())) for action in actions)
    return known | dict(tasks)


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
