"""Tells whether a statement denies what its source says, or says what its source denies.

Texts are compared clause by clause: each word of a clause is denied or not, by the negation whose reach it is in. A
statement contradicts its source if a word that it shares with the closest clauses is denied in all of them and not in
the statement, or the reverse. A question denies what it asks if the next message begins with no. A word and its
opposite count as one word, so `rejected` agrees with `not approved`.

Whole messages are compared if no clause is the opposite, and the statement is not a quotation. A permission is denied
by a sentence that forbids much of it, unless another permits as much of it. Any other statement is denied if users deny
most of the words that they share with it, or turn down the message of an assistant that is like it.

The phrases are those of `service/text/languages/`. Words that no list has make no contradiction, nor does a clause with
two negations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from abridged.service.domain.message import Role
from abridged.service.grounding.reading import Passage
from abridged.service.grounding.support import Concordance, Heard, Support
from abridged.service.text.phrases import Phrase, has_phrase, section_of
from abridged.service.text.sentences import is_question, parts_of
from abridged.service.text.words import folded, straight, word_runs

_CLOSE: Final = 0.5
"""Share of a clause's words that another must have to be about the same."""

_BESIDE: Final = 0.15
"""The share by which another clause may lie below the closest one and still count."""

_MUTUAL: Final = 0.45
"""Share of its own words that a clause of the source must have in common to be the opposite."""

_WORDS_MIN: Final = 2
"""Words that two clauses must share."""

_NEAR: Final = 0.3
"""Share of a statement that a passage must have for its clauses to be compared."""

_CLOSEST, _CLOSEST_MIN = 0.7, 0.3
"""A message with this much of the closest one's share, and of the statement, is about the same."""

_DENIED: Final = 2
"""The least ratio of the words that users deny to those that they affirm."""

_FORBIDDEN: Final = 0.4
"""Share of a permission's words that a sentence must have to forbid it, as a prohibition is said in fewer words."""

_STEM_CHARS: Final = 4
"""Characters that a word has in common with another form of it: `sign` and `signed`."""

_REACH_WORDS: Final = 6
_HEAD_WORDS: Final = 1
_REACH_CHARS: Final = 10
_REACH_BACK_WORDS: Final = 4
"""A negation reaches forwards in words, or in characters of scripts without spaces; at a clause's end, backwards."""

_CLAUSE_STOP: Final = (
    r"(?<=[:;,\u3001\uff0c\uff1b])(?!\d)(?!\s*(?:never|not)\s(?:in|on|at|by|as|to|for|from|with|before|after)\b)"
    r"|\s[\u2013\u2014-]\s"
)

_OPPOSITES: Final = tuple(
    (re.compile(pattern), f" {plain} ")
    for pattern, plain in (
        (r"\b(?:refus\w+|declin\w+|fail(?:s|ed|ing)?|unable) to\b", "not"),
        (r"\b(?:reject\w*|declin\w+|disapprov\w+|veto\w*|turned down)\b", "not approved"),
        (r"\b(tests?|checks?|audits?|exams?|inspections?)((?: \w+){0,6}) fail(?:s|ed|ing)?\b", r"\1\2 not passed"),
        (r"\bun(paid|signed|tested|approved|confirmed|merged|available|safe)\b", r"not \1"),
        (r"\bdisabl(?:e|es|ed|ing)\b", "not enabled"),
        (r"\b(?:abgelehnt|ablehnen|lehn(?:t|te|ten) ab)\b", "nicht genehmigt"),
        (r"\b(?:rechaz|deneg)\w+", "no aprobado"),
        (r"\b(?:refus|rejet)\w+", "pas approuvé"),
        (r"拒绝|否决|驳回", "没有批准"),
        (r"(?:却下|拒否|否認)(?:され|し)?(?:ました|た)?", "承認されません"),
    )
)
"""Words that mean the opposite of another, in its words."""

_WORD: Final = re.compile(r"\w+")
_BETWEEN: Final = re.compile(r"没有|[不没未了的已被把将]")
"""Characters between the words of Chinese, which would make other pairs of them."""


@dataclass(frozen=True, slots=True)
class _Clause:
    """The words of a clause with whether each is denied, and the `negations` in it with the `heads` next to them.

    `asked` says that it is a question that the next message denies: all of it, so that a statement has to say all of it
    too. `limit` says that it names a time at which something ends, and `limited` that it denies something only up to
    such a time.
    """

    words: Mapping[str, bool]
    negations: int
    heads: frozenset[str]
    asked: bool = False
    limit: bool = False
    limited: bool = False


_Said = tuple[_Clause, tuple[int, ...]]
"""A clause of the source, and the messages that say it."""


def contradicting(statement: str, support: Support, concordance: Concordance) -> tuple[int, ...] | None:
    """The messages that say the opposite of `statement`; None if nothing does. The tuple is empty for a record that
    names no messages."""
    said = [
        clause
        for sentence in map(folded, parts_of(statement))
        if not is_question(sentence)
        for clause in concordance.once(_clauses, sentence)
    ]
    words = frozenset(word for clause in said for word in clause.words)
    near = (heard.passages for heard in support.heard if heard.share >= _NEAR)
    others = [clause for passages in near for clause in _source_clauses(passages, words, concordance)]
    for clause in said:
        if clause.negations < 2 and (against := _opposite(clause, others)) is not None:
            return against
    if any(is_quoted(statement, heard) for heard in support.heard):
        return None
    closest = _closest(support)
    if has_phrase(statement, Phrase.PERMITS) and not any(clause.negations for clause in said):
        return _forbidden(words, closest)
    return _denied(said, closest, concordance)


def is_quoted(statement: str, heard: Heard) -> bool:
    """Return whether a statement is the words of a message, whoever is named before them and whatever marks them."""
    quoted = " ".join(_WORD.findall(statement.partition(": ")[2] or statement))
    return quoted in " ".join(word for passage in heard.passages for word in _WORD.findall(passage.text))


def _closest(support: Support) -> list[Heard]:
    """The messages of people and the model that come closest to a statement."""
    near = [heard for heard in support.heard if heard.passages[0].role in (Role.USER, Role.ASSISTANT)]
    most = max((heard.share for heard in near), default=0.0)
    return [heard for heard in near if heard.share >= max(_CLOSEST_MIN, _CLOSEST * most)]


def _forbidden(words: frozenset[str], closest: Iterable[Heard]) -> tuple[int, ...] | None:
    """The message that forbids what a statement permits, in a sentence with enough of its words; None if a sentence
    with as many of them permits it."""
    numbers: tuple[int, ...] | None = None
    most, permitted = 0, 0
    for heard in closest:
        for sentence in parts_of("\n".join(passage.text for passage in heard.passages)):
            shared = len(words.intersection(_words(folded(sentence))))
            if has_phrase(sentence, Phrase.PERMITS):
                permitted = max(permitted, shared)
            elif has_phrase(folded(sentence), Phrase.PROHIBITS) and shared > most:
                numbers, most = heard.passages[0].numbers, shared
    return numbers if most >= max(_WORDS_MIN, _FORBIDDEN * len(words)) and most > permitted else None


def _denied(said: Sequence[_Clause], closest: Iterable[Heard], concordance: Concordance) -> tuple[int, ...] | None:
    """The message in which users deny most of the words that they share with a statement, or the reverse; or with which
    they turn down what an assistant said like it."""
    signs = {word: denied for clause in said for word, denied in clause.words.items()}
    negations = sum(clause.negations for clause in said)
    if negations > 1 or any(clause.limit for clause in said):
        return None
    against: list[tuple[int, ...]] = []
    same = other = 0
    replies = list(_of_users(closest, concordance))
    if negations and any(has_phrase(folded(passage.text), Phrase.LIFTS_RULE) for passage, _ in replies):
        return None
    for passage, is_reply in replies:
        shared = [
            denied is signs[word] or clause.negations == negations
            for text in map(folded, parts_of(passage.text))
            if any(word in text for word in signs)
            for clause in _plain_clauses(text, concordance)
            for word, denied in clause.words.items()
            if word in signs
        ]
        same, other = same + sum(shared), other + len(shared) - sum(shared)
        if not all(shared) and ((is_reply and not negations) or len(shared) >= _WORDS_MIN):
            against.append(passage.numbers)
    return against[0] if against and other >= _DENIED * same and (not same or other >= _WORDS_MIN) else None


def _plain_clauses(sentence: str, concordance: Concordance) -> Sequence[_Clause]:
    """The clauses of a sentence that denies at most once, and for ever."""
    clauses = concordance.once(_clauses, sentence)
    is_plain = sum(clause.negations for clause in clauses) < 2 and not any(clause.limited for clause in clauses)
    return clauses if is_plain else ()


def _of_users(closest: Iterable[Heard], concordance: Concordance) -> Iterator[tuple[Passage, bool]]:
    """The passages of users among what is closest, and those that answer an assistant's."""
    for heard in closest:
        if heard.passages[0].role is Role.USER:
            yield from ((passage, False) for passage in heard.passages)
        elif (reply := concordance.after(heard.passages[-1])) is not None and reply.role is Role.USER:
            yield reply, True


def _opposite(clause: _Clause, said: Sequence[_Said]) -> tuple[int, ...] | None:
    if len(clause.words) < _WORDS_MIN:
        return None
    others = [one for one, _ in said if (clause.limit or not one.limited) and (one.limit or not clause.limited)]
    shares = [_share(clause, other) for other in others]
    least = max(_CLOSE, max(shares, default=0.0) - _BESIDE)
    close = [other for other, share in zip(others, shares, strict=True) if share >= least]
    if not close or any(other.negations % 2 == clause.negations % 2 or other.negations > 1 for other in close):
        return None
    nearest = next((other for other in close if _share(other, clause) >= _MUTUAL and _meet(clause, other)), None)
    for word, denied in clause.words.items():
        found = [other.words[word] for other in close if word in other.words]
        if nearest is not None and found and all(other is not denied for other in found):
            return next(numbers for other, numbers in said if other is nearest)
    return None


def _meet(clause: _Clause, other: _Clause) -> bool:
    """Return whether one has what the other denies in the first place: `did not sign` is the opposite of no other
    deed."""
    return not (clause.heads or other.heads).isdisjoint(other.words if clause.heads else clause.words)


def _share(clause: _Clause, other: _Clause) -> float:
    shared = clause.words.keys() & other.words.keys()
    if len(shared) < _WORDS_MIN or (other.asked and len(shared) < len(clause.words)):
        return 0.0
    return len(shared) / len(clause.words)


def _source_clauses(passages: Sequence[Passage], words: frozenset[str], concordance: Concordance) -> Iterator[_Said]:
    """The clauses of passages in a row, of sentences with one of some words. A question that the next message denies is
    a clause that is denied."""
    numbers = passages[0].numbers
    for sentence in map(folded, parts_of("\n".join(passage.text for passage in passages))):
        if not any(word in sentence for word in words):
            continue
        if not is_question(sentence):
            yield from ((clause, numbers) for clause in concordance.once(_clauses, sentence))
            continue
        reply = concordance.after(passages[-1])
        opening = folded(reply.text) if reply else ""
        if section_of(Phrase.SAYS_NO).match(opening):
            for clause in concordance.once(_clauses, sentence):
                yield _Clause(dict.fromkeys(clause.words, True), 1, frozenset(clause.words), asked=True), numbers


def _clauses(sentence: str, _concordance: Concordance) -> tuple[_Clause, ...]:
    return tuple(_read_clauses(sentence))


def _read_clauses(sentence: str) -> Iterator[_Clause]:
    plain = straight(sentence)
    for pattern, other in _OPPOSITES:
        plain = pattern.sub(other, plain)
    texts = _clause_ends().split(section_of(Phrase.DENIES_NOTHING).sub(" ", plain))
    for place, text in enumerate(texts):
        if section_of(Phrase.IS_CONDITION).match(text):
            continue
        kept, *dropped = section_of(Phrase.REPLACES).split(text, maxsplit=1)
        beside = any(_limit_start().match(other) for other in texts[max(place - 1, 0) : place + 2])
        limit = beside or has_phrase(text, Phrase.SETS_LIMIT)
        for part, is_dropped in ((kept, False), *((part, True) for part in dropped)):
            found = list(section_of(Phrase.DENIES).finditer(section_of(Phrase.DENIES_TWICE).sub("  ", part)))
            reached = [(negation, _words(_reach(part, negation))) for negation in found]
            denied = {word for _, words in reached for word in words}
            turned = has_phrase(part, Phrase.REFUSES) is not is_dropped
            heads = frozenset(word for negation, words in reached for word in _heads(negation, words))
            words = {word: (word in denied) is not turned for word in _words(part)}
            if words:
                count = len(found) + turned
                heads = heads or frozenset(words) if turned else heads
                yield _Clause(words, count, heads, limit=limit, limited=limit and bool(count))


@cache
def _clause_ends() -> re.Pattern[str]:
    begins = (section_of(kind).pattern for kind in (Phrase.BEGINS_CLAUSE, Phrase.PREFERS))
    return re.compile("|".join((_CLAUSE_STOP, *begins)))


@cache
def _limit_start() -> re.Pattern[str]:
    limits, exceptions = section_of(Phrase.SETS_LIMIT).pattern, section_of(Phrase.MAKES_EXCEPTION).pattern
    return re.compile(rf"\W*(?:{limits}|{exceptions})")


def _heads(negation: re.Match[str], words: Sequence[str]) -> Sequence[str]:
    """The words next to a negation, of those that it denies."""
    if section_of(Phrase.DENIES_BEFORE).fullmatch(negation[0]):
        return words[-_HEAD_WORDS:]
    is_last = not _words(negation.string[negation.end() :])
    return words if is_last else words[:_HEAD_WORDS]


def _reach(text: str, negation: re.Match[str]) -> str:
    """The text that a negation denies: the text after it, or before it at the end of a clause."""
    before, after = text[: negation.start()], text[negation.end() :]
    if section_of(Phrase.DENIES_BEFORE).fullmatch(negation[0]):
        return before[-_REACH_CHARS:]
    ending = section_of(Phrase.ENDS_DENIAL).search(after)
    reached = after[: ending.start()] if ending and _words(after[: ending.start()]) else after
    if not _words(reached):
        return " ".join(_WORD.findall(before)[-_REACH_BACK_WORDS:])
    words = list(_WORD.finditer(reached))[:_REACH_WORDS]
    return reached[: words[-1].end()] if reached.isascii() or " " in reached.strip() else reached[:_REACH_CHARS]


def _words(text: str) -> tuple[str, ...]:
    return tuple(
        key
        for run, size in word_runs(_BETWEEN.sub(" ", text))
        for key in ((run[i : i + size] for i in range(len(run) - size + 1)) if size else (run[:_STEM_CHARS],))
    )
