"""Tells the sentences by which a person lays down a standing rule, and those that take one back.

No single word makes a rule: "always" stands in anecdotes, "please" in tasks. A sentence is one when enough kinds of
evidence come together: its own words, each kind a section of `service/text/languages/`, and the reply, which often
accepts a rule and says it again. A language without these sections has no rules: its imperatives look like any other
verb, and nothing is invented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from abridged.service.text.phrases import Phrase, has_phrase, section_of
from abridged.service.text.secrets import contains_secret
from abridged.service.text.sentences import is_question, parts_of, terms_of, without_quotations

RULE_CHARS_MAX: Final = 240
"""A longer sentence has words of every kind by chance."""

SAID_CHARS_MAX: Final = 2_000
"""A longer message is a document or the output of a program, which nobody says to somebody."""

EVIDENCE: Final[Mapping[Phrase, float]] = MappingProxyType(
    {
        Phrase.STATES_RULE: 1.5,
        Phrase.SETS_MANNER: 1.5,
        Phrase.DIRECTS_READER: 1.1,
        Phrase.NAMES_OUTPUT: 1.1,
        Phrase.SAYS_HOW: 1.1,
        Phrase.FORBIDS: 0.9,
        Phrase.HOLDS_ALWAYS: 0.9,
        Phrase.ANNOUNCES_RULE: 0.8,
        Phrase.NAMES_MATTER: 0.8,
        Phrase.NAMES_OCCASION: 0.8,
        Phrase.NAMES_SPEAKER: 0.8,
        Phrase.TAKES_ALL: 0.7,
        Phrase.WANTS_CONSENT: 0.6,
        Phrase.IS_HEARSAY: -0.6,
        Phrase.NARRATES: -0.7,
        Phrase.NAMES_ONCE: -0.8,
        Phrase.LIFTS_RULE: -1.0,
    }
)
"""Weights of a logistic regression over the chats of bench/written/seen and over single sentences."""

ALONE: Final[Mapping[Phrase, float]] = MappingProxyType(
    {
        Phrase.SETS_MANNER: 1.9,
        Phrase.NAMES_OCCASION: 1.3,
        Phrase.NAMES_OUTPUT: 1.2,
        Phrase.TAKES_ALL: 1.2,
        Phrase.ANNOUNCES_RULE: 1.0,
        Phrase.HOLDS_ALWAYS: 1.0,
        Phrase.NAMES_SPEAKER: 0.8,
        Phrase.DIRECTS_READER: 0.7,
        Phrase.FORBIDS: 0.7,
        Phrase.SAYS_HOW: 0.7,
        Phrase.NAMES_MATTER: 0.6,
        Phrase.STATES_RULE: 0.5,
        Phrase.WANTS_CONSENT: 0.4,
        Phrase.NARRATES: -0.8,
        Phrase.NAMES_ONCE: -1.0,
        Phrase.IS_HEARSAY: -1.5,
        Phrase.LIFTS_RULE: -1.6,
    }
)
"""Weights without a look at the reply, over those chats and the messages of bench/written/seen/rules: who is asked for
something often does it without a word about it."""

_FOR, _FOR_ALONE = (sum(value for value in weights.values() if value > 0) for weights in (EVIDENCE, ALONE))
"""The most that the evidence of a sentence can weigh."""

_QUESTION: Final = -1.5
_ACCEPTED: Final = 1.8
_ECHOED: Final = 0.7
_NEEDED: Final = 6.0
_NEEDED_ALONE: Final = 4.4
"""The weights from which nine of ten sentences of those chats are rules."""

_REPLY_SENTENCES: Final = 2
_SHARED_MIN: Final = 2
"""Words in common of a rule and a reply that echoes it, or a sentence that takes it back."""

_ANEW_SHARE: Final = 0.75
_ANEW_MIN: Final = 3
"""Words, and their share of the shorter rule, that two rules have in common of which the newer one stands."""

_STEM_CHARS: Final = 5
"""Letters by which the forms of a word are compared in any language: `Buchung`, `Buchungen`."""

_WORD_MIN: Final = 4
"""Letters of a word that names something; of scripts without spaces, every pair of characters counts."""

_WIDE: Final = "\u2e80"

_NUMBER: Final = re.compile(r"\d+")


class Statement(NamedTuple):
    """A sentence that lays down a rule, or takes one back.

    Attributes:
        text: The sentence as it was written.
        is_rule: True if it lays down a rule.
        takes_back: True if it has the words of one that takes a rule back.
        names_rule: True if it speaks of a rule as such.
        words: The stems of what it is about.
        around: The stems with those of the sentence before it.
    """

    text: str
    is_rule: bool
    takes_back: bool
    names_rule: bool
    words: frozenset[str]
    around: frozenset[str]


def statements(text: str, reply: str = "") -> Iterator[Statement]:
    """The sentences of a message that lay down a rule, or take one back, in order. Linear in the text.

    One with a secret lays down none, because a rule is kept letter by letter.
    `reply` is the assistant's next message; empty before there is one.
    """
    if len(text) > SAID_CHARS_MAX:
        return
    prose = "\n".join(text.split("```")[::2])
    answered = _plain(" ".join(islice(parts_of(reply[:SAID_CHARS_MAX]), _REPLY_SENTENCES)))
    accepted = _ACCEPTED if has_phrase(answered, Phrase.ACKNOWLEDGES) else 0.0
    echo = _stems(answered)
    for before, sentence in pairwise(("", *parts_of(prose))):
        if len(sentence) > RULE_CHARS_MAX or sentence.startswith((">", "#")):
            continue
        own = _plain(without_quotations(sentence))
        echoed = _ECHOED if echo and len(_stems(sentence) & echo) >= _SHARED_MIN else 0.0
        is_rule = _lays_down(own, _NEEDED - accepted - echoed) and not contains_secret(sentence)
        takes_back = not is_question(own) and has_phrase(own, Phrase.LIFTS_RULE)
        if is_rule or takes_back:
            names_rule, words = has_phrase(own, Phrase.ANNOUNCES_RULE), _stems(sentence)
            yield Statement(sentence, is_rule, takes_back, names_rule, words, words | _stems(before))


def states_preference(text: str) -> bool:
    """Return whether a message states a preference of its writer. Linear in the text."""
    return len(text) <= SAID_CHARS_MAX and has_phrase(_plain(" ".join(text.split("```")[::2])), Phrase.LIKES)


def words_of_rule(rule: str) -> frozenset[str]:
    """The stems of what a rule is about, by which a statement is held against it."""
    return _stems(rule)


def ended_rule(said: Statement, rules: Sequence[frozenset[str]]) -> int | None:
    """The place of the rule that the statement takes back or lays down anew; None for none.

    `rules` are the words of those before it, oldest first.
    """
    best, place = 0, None
    least = 1 if said.names_rule else _SHARED_MIN
    for at, words in enumerate(rules):
        shared = len(words & said.around)
        anew = max(_ANEW_MIN, _ANEW_SHARE * min(len(words), len(said.words)))
        is_anew = said.is_rule and shared >= anew and not _are_of_two_things(words, said.words)
        if shared >= best and (is_anew or (said.takes_back and shared >= least)):
            best, place = shared, at
    return place


def _are_of_two_things(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether each of two rules names something that the other does not: staging and production, not 60 and
    80."""
    return all(any(not stem.isdigit() for stem in left) for left in (one - other, other - one))


def _lays_down(own: str, needed: float) -> bool:
    """Return whether the evidence in a sentence weighs `needed`, or enough by itself.

    A sentence that tells what somebody asked lays nothing down.
    """
    if has_phrase(own, Phrase.REPORTS_QUESTION):
        return False
    found: dict[Phrase, bool] = {}
    asked = _QUESTION if is_question(own) else 0.0
    return _reaches(EVIDENCE, _FOR, needed - asked, own, found) or _reaches(
        ALONE, _FOR_ALONE, _NEEDED_ALONE - asked, own, found
    )


def _reaches(weights: Mapping[Phrase, float], left: float, needed: float, own: str, found: dict[Phrase, bool]) -> bool:
    """Return whether the evidence in a sentence weighs that much; most sentences are given up before all of it is
    sought. `left` is the most that it can weigh, `found` the evidence that was sought before."""
    weight = 0.0
    for kind, value in weights.items():
        if weight + left < needed:
            return False
        left -= max(0.0, value)
        if kind not in found:
            found[kind] = has_phrase(own, kind)
        if found[kind]:
            weight += value
    return weight >= needed


def _plain(text: str) -> str:
    return text.replace("\u2019", "'")


def _stems(text: str) -> frozenset[str]:
    """The numbers and the beginnings of the words that name things, without those that name a rule as such."""
    named = section_of(Phrase.ANNOUNCES_RULE).sub(" ", text)
    words = (term[:_STEM_CHARS] for term in terms_of(named) if len(term) >= _WORD_MIN or term >= _WIDE)
    return frozenset((*words, *_NUMBER.findall(named)))
