"""Tells decisions, tasks, questions and open points by their words, and sentences that need no other to be read.

The words are those of `service/text/languages/`. A miss costs a place in a list of the extractive summary, never a
fact.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from abridged.service.extraction.tasks import addressed, announces, deadline_of, owner_of
from abridged.service.text.identifiers import identifiers
from abridged.service.text.phrases import Phrase, Words, has_phrase, section_of, words_of
from abridged.service.text.sentences import is_question, terms_of, without_quotations
from abridged.service.text.words import straight

_ENDED: Final = re.compile(r"[.!\u2026\u3002\uff01][\"'\u201d\u2019)\]]{0,3}$")
_WIDE_STOP: Final = "\u3002"
_STOP: Final = re.compile(r"[,;:.!?\u2026]\s|\s[\u2013\u2014-]\s|[\u3001\u3002\uff0c\uff1a\uff1b]")
_UNMARKED_CHARS_MAX: Final = 120
"""A question without a mark is written in a hurry, and short."""

_BEFORE_CHARS: Final = 100
"""Characters before a phrase among which an `if` or a `not` is sought that it depends on."""

_COURTESY_CHARS_MAX: Final = 160
"""A longer sentence says something else too."""

_SHOUTED_CHARS_MAX: Final = 45
_CAPITALS_SHARE: Final = 0.5

_NAMING_MIN: Final = 2
"""The fewest other words that name a thing; a sentence that only points at something needs twice as many."""


def is_decision(sentence: str) -> bool:
    """Return whether something was settled; questions, conditions, requests to confirm and capitals settle nothing."""
    plain = _own(sentence)
    if _is_in_capitals(plain) or has_phrase(plain, Phrase.LEAVES_UNDECIDED):
        return False
    return has_phrase(plain, Phrase.DECIDES) and not asks(plain) and not has_phrase(plain, Phrase.SETS_CONDITION)


def is_reversal(sentence: str) -> bool:
    """Return whether the sentence says that something no longer holds."""
    return _says_firmly(straight(sentence), Phrase.TAKES_BACK) and not asks(sentence)


def taken_back(sentence: str) -> str:
    """The clauses of a sentence that say what no longer holds: of `It is loud, so we meet here instead` the second."""
    return " ".join(clause for clause in _STOP.split(straight(sentence)) if is_reversal(clause))


def is_action(sentence: str) -> bool:
    """Return whether somebody is to do something; a question only if it asks somebody by name, or sets a deadline."""
    plain = _own(sentence)
    if _is_in_capitals(plain) or has_phrase(plain, Phrase.STATES_RULE) or has_phrase(plain, Phrase.NEEDS_NOTHING):
        return False
    if addressed(plain):
        return not is_question(plain) or directs(plain)
    if is_question(plain):
        return directs(plain) and not is_courtesy(plain) and bool(deadline_of(plain))
    if asks(plain) or is_courtesy(plain):
        return False
    if (
        has_phrase(plain, Phrase.SETS_CONDITION)
        or has_phrase(plain, Phrase.GIVES_OPINION)
        or has_phrase(plain, Phrase.IS_IDLE)
    ) and not deadline_of(plain):
        return False
    return has_phrase(plain, Phrase.GIVES_TASK) or announces(plain) or bool(owner_of(plain, ""))


def is_promise(sentence: str) -> bool:
    """Return whether the speaker announces an action of the speaker's own or of everybody."""
    return has_phrase(straight(sentence), Phrase.PROMISES)


def is_open(sentence: str) -> bool:
    """Return whether the sentence calls something unsettled."""
    return _says_unsupposed(_own(sentence), Phrase.IS_OPEN)


def is_done(sentence: str) -> bool:
    """Return whether the sentence reports something as done."""
    return _says_firmly(straight(sentence), Phrase.REPORTS_DONE)


def seeks_agreement(sentence: str) -> bool:
    """Return whether a question only wants to be agreed with, such as `isn't it?`"""
    return is_question(sentence) and has_phrase(straight(sentence), Phrase.SEEKS_AGREEMENT)


def asks(sentence: str) -> bool:
    """Return whether the speaker wants an answer: a question, or a request to confirm, provide or choose."""
    plain = straight(sentence)
    if is_question(plain) or has_phrase(plain, Phrase.ASKS_FOR_ANSWER):
        return True
    if len(plain) > _UNMARKED_CHARS_MAX or _is_in_capitals(plain):
        return False
    if not _ENDED.search(plain):
        return has_phrase(plain, Phrase.ASKS_UNMARKED)
    bare = plain.rstrip(_WIDE_STOP)
    # Japanese and Chinese ask by the last word of a sentence, with a full stop after it.
    return len(bare) < len(plain) and any(
        found.end() >= len(bare) for found in section_of(Phrase.ASKS_UNMARKED).finditer(plain)
    )


def asks_for_details(sentence: str) -> bool:
    """Return whether the speaker requests that the other confirm, provide or choose something."""
    return has_phrase(straight(sentence), Phrase.ASKS_FOR_ANSWER)


def directs(sentence: str) -> bool:
    """Return whether a question asks for an action, not for an answer."""
    return has_phrase(straight(sentence), Phrase.ASKS_FOR_ACTION)


def is_deferral(sentence: str) -> bool:
    """Return whether the sentence puts an answer off or says that the speaker has none."""
    plain = straight(sentence)
    return has_phrase(plain, Phrase.PUTS_OFF) or has_phrase(plain, Phrase.LEAVES_OPEN)


def leaves_open(sentence: str) -> bool:
    """Return whether the sentence leaves a matter open: nobody knows it, somebody else has to decide it, it has to
    wait."""
    return _says_unsupposed(_own(sentence), Phrase.LEAVES_OPEN)


def leaves_rest_open(sentence: str) -> bool:
    """Return whether a number stands before the words that leave a matter open: it answers, and the rest is open."""
    own = _own(sentence)
    found = section_of(Phrase.LEAVES_OPEN).search(own)
    return found is not None and has_value(own[: found.start()])


def takes_down(sentence: str) -> bool:
    """Return whether the sentence says that the speaker writes something down or passes it on, which answers no
    question."""
    return has_phrase(_own(sentence), Phrase.TAKES_DOWN) and not has_value(sentence)


def has_value(sentence: str) -> bool:
    """Return whether the sentence has a number, which an answer often is."""
    return any(map(str.isdigit, sentence))


def asks_indirectly(sentence: str) -> bool:
    """Return whether the sentence has a word that asks, such as `whether`, without having to be a question."""
    return has_phrase(_own(sentence), Phrase.ASKS_INDIRECTLY)


def proposes(sentence: str) -> bool:
    """Return whether the sentence proposes something."""
    return has_phrase(straight(sentence), Phrase.PROPOSES)


def is_courtesy(sentence: str) -> bool:
    """Return whether the sentence is only polite."""
    return len(sentence) <= _COURTESY_CHARS_MAX and has_phrase(straight(sentence), Phrase.IS_POLITE)


def is_wish(sentence: str) -> bool:
    """Return whether the sentence says what the speaker wants."""
    return has_phrase(straight(sentence), Phrase.WISHES)


def stands_alone(text: str) -> bool:
    """Return whether `text` names what it is about: by an identifier, or by words that are not general.

    A sentence that points ("that one", "the other option") needs more of them. Words of languages other than English
    are never general, so their sentences pass with two.
    """
    bare = _openings().sub("", text)
    named = section_of(Phrase.POINTS_ONLY).sub(" ", bare)
    words_min = _NAMING_MIN if named == bare else 2 * _NAMING_MIN
    return (
        has_phrase(bare, Phrase.NAMES_CHOICE)
        or any(identifiers(named))
        or len(terms_of(named) - words_of(Words.GENERAL)) >= words_min
    )


@cache
def _openings() -> re.Pattern[str]:
    """The words that take up what was said before, at the beginning of a text."""
    return re.compile(rf"^\W*(?:(?:{section_of(Phrase.OPENS_REPLY).pattern})[\s,.!;:]*)+", re.IGNORECASE)


def _says_unsupposed(plain: str, kind: Phrase) -> bool:
    """Return whether a text has such a phrase, and no `if` before it."""
    found = section_of(kind).search(plain)
    return found is not None and not _is_supposed(plain[: found.start()])


def _says_firmly(plain: str, kind: Phrase) -> bool:
    """Return whether a text has such a phrase with no `if` before it, and no `not` before it in its clause."""
    # Phrases such as `not only` deny nothing; spaces in their place keep the places of the others.
    denying = section_of(Phrase.DENIES_NOTHING).sub(lambda idiom: " " * len(idiom[0]), plain)
    starts = (found.start() for found in section_of(kind).finditer(plain))
    reaches = (slice(max(0, start - _BEFORE_CHARS), start) for start in starts)
    return any(
        not _is_supposed(plain[reach]) and not has_phrase(_STOP.split(denying[reach])[-1], Phrase.DENIES)
        for reach in reaches
    )


def _is_supposed(before: str) -> bool:
    """Return whether a text that ends here supposes what comes next. `Whether it holds, nobody knows` supposes
    nothing."""
    supposed = section_of(Phrase.SUPPOSES).search(before)
    return supposed is not None and section_of(Phrase.ASKS_INDIRECTLY).match(supposed[0]) is None


def _is_in_capitals(plain: str) -> bool:
    """Return whether a text is written as documents write their clauses; a short one may be a person who shouts."""
    letters = sum(map(str.isalpha, plain))
    return len(plain) > _SHOUTED_CHARS_MAX and sum(map(str.isupper, plain)) > _CAPITALS_SHARE * letters


def _own(sentence: str) -> str:
    """The sentence without what it quotes."""
    return without_quotations(straight(sentence))
