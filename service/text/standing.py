"""Tells the sentences by which a person lays down a standing rule.

No single word makes a rule: "always" stands in anecdotes, "please" in tasks. A trained model weighs the words of a
sentence and the phrases in it. In a language that it was not trained on it finds next to no rules, and nothing is
invented.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple

from abridged.service.text.likeness import Likeness, likeness_to, places_of
from abridged.service.text.phrases import Phrase, has_phrase, section_of
from abridged.service.text.scripts import EAST_BEGINS
from abridged.service.text.secrets import mask_secrets
from abridged.service.text.sentences import is_of_program, is_question, parts_of, terms_of, without_quotations
from abridged.service.text.words import straight

RULE_CHARS_MAX: Final = 240
"""A longer sentence has words of every kind by chance."""

SAID_CHARS_MAX: Final = 2_000
"""A longer message is a document or the output of a program, which nobody says to somebody."""


class Act(StrEnum):
    """Acts of a sentence upon rules; the value is the label of such sentences in the training and names the weights."""

    LAYS_DOWN = "rule"
    LIFTS = "lifted"


_QUESTION: Final = "question"
_PHRASES: Final = (
    Phrase.ANNOUNCES_RULE,
    Phrase.DIRECTS_READER,
    Phrase.FORBIDS,
    Phrase.HOLDS_ALWAYS,
    Phrase.IS_HEARSAY,
    Phrase.LIFTS_RULE,
    Phrase.NAMES_MATTER,
    Phrase.NAMES_OCCASION,
    Phrase.NAMES_ONCE,
    Phrase.NAMES_OUTPUT,
    Phrase.NAMES_SPEAKER,
    Phrase.NARRATES,
    Phrase.SAYS_HOW,
    Phrase.SETS_MANNER,
    Phrase.STATES_RULE,
    Phrase.TAKES_ALL,
    Phrase.WANTS_CONSENT,
)
"""Phrases that are evidence for or against an act beside the words."""

RULE_FROM: Final = 0.5
"""The log odds from which a sentence lays down a rule."""

DOUBT_MAX: Final = 1.95
"""The most that a tentative rule's log odds fall short of those that are needed."""

_DOUBT_STEPS: Final = 100
_STEM_CHARS: Final = 5
"""Letters by which the forms of a word are compared in any language: `Buchung`, `Buchungen`."""

_WORD_MIN: Final = 4
"""Letters of a word that names something; of scripts without spaces, every pair of characters counts."""

_NUMBER: Final = re.compile(r"\d+")


class Statement(NamedTuple):
    """A sentence of a person.

    Attributes:
        text: The sentence as it was written.
        before: The sentence before it in its message; empty for none.
        after: The one after it.
        own: The sentence as `words_of_writer` gives it.
        places: The places of its words, as `places_of` gives them.
        doubt: The log odds that it lacks to be a rule; 0 of a rule, infinite beyond DOUBT_MAX.
        words: The stems of what it is about.
        around: The stems with those of the sentence before it.
    """

    text: str
    before: str
    after: str
    own: str
    places: Sequence[int]
    doubt: float
    words: frozenset[str]
    around: frozenset[str]

    @property
    def is_rule(self) -> bool:
        """True if it lays down a rule."""
        return self.doubt == 0

    @property
    def may_be_rule(self) -> bool:
        """True if it lays down a rule, standing or tentative."""
        return self.doubt < math.inf


def statements(text: str) -> Iterator[Statement]:
    """The sentences of a message that may lay down a rule, or end one, in order. Linear in the text.

    One with a secret, or a part of one, lays down none, because a rule is kept letter by letter; nor does one that ends
    in a colon, which only announces, or that tells of a question.
    """
    if len(text) > SAID_CHARS_MAX:
        return
    prose = "\n".join(text.split("```")[::2])
    masked = ""
    parts = ("", *parts_of(prose), "")
    for before, sentence, after in zip(parts, parts[1:], parts[2:], strict=False):
        if len(sentence) > RULE_CHARS_MAX or sentence.startswith((">", "#")) or is_of_program(sentence):
            continue
        own = words_of_writer(sentence)
        places = places_of(own)
        doubt = math.inf if sentence.endswith((":", "\uff1a")) else doubt_of(own, places)
        if doubt < math.inf:
            masked = masked or mask_secrets(text)
            if has_phrase(own, Phrase.REPORTS_QUESTION) or sentence not in masked:
                doubt = math.inf
        words = _stems(sentence)
        yield Statement(sentence, before, after, own, places, doubt, words, words | _stems(before))


def doubt_of(own: str, places: Sequence[int]) -> float:
    """Return the log odds that a sentence lacks to lay down a rule: 0 if it does, infinite beyond DOUBT_MAX.

    `own` is the sentence as `words_of_writer` gives it, and `places` are those of its words.
    """
    lacking = RULE_FROM - odds_of(likeness_to(Act.LAYS_DOWN), own, places, RULE_FROM - DOUBT_MAX)
    # Rounded up: 0 is a verdict.
    return lacking if lacking == math.inf else max(0, math.ceil(lacking * _DOUBT_STEPS)) / _DOUBT_STEPS


def odds_of(model: Likeness, own: str, places: Sequence[int], least: float) -> float:
    """Return the log odds of a sentence by a model, minus infinity below `least`. Phrases are sought only as long as
    they can change that."""
    odds = model.of_words(places)
    if is_question(own):
        odds += model.of_evidence(_QUESTION)
    phrases, left = _weighed(model)
    for phrase, value in phrases:
        if odds + left < least:
            return -math.inf
        left -= max(0.0, value)
        if has_phrase(own, phrase):
            odds += value
    return odds if odds >= least else -math.inf


def evidence_in(own: str) -> Iterator[str]:
    """The kinds of evidence in a sentence as `words_of_writer` gives it."""
    if is_question(own):
        yield _QUESTION
    yield from (phrase for phrase in _PHRASES if has_phrase(own, phrase))


def words_of_writer(sentence: str) -> str:
    """A sentence without its quotations, its apostrophes straight."""
    return straight(without_quotations(sentence))


def states_preference(text: str) -> bool:
    """Return whether a message states a preference of its writer. Linear in the text."""
    return len(text) <= SAID_CHARS_MAX and has_phrase(straight(" ".join(text.split("```")[::2])), Phrase.LIKES)


def words_of_rule(rule: str) -> frozenset[str]:
    """The stems of what a rule is about, by which a statement is held against it."""
    return _stems(rule)


@cache
def _weighed(model: Likeness) -> tuple[Sequence[tuple[Phrase, float]], float]:
    """The phrases with their weights, the heaviest first, and the most that they can weigh together."""
    phrases = sorted(((phrase, model.of_evidence(phrase)) for phrase in _PHRASES), key=lambda item: -item[1])
    return phrases, sum(max(0.0, value) for _, value in phrases)


def _stems(text: str) -> frozenset[str]:
    """The numbers and the beginnings of the words that name things, without those that name a rule as such."""
    named = section_of(Phrase.ANNOUNCES_RULE).sub(" ", text)
    words = (term[:_STEM_CHARS] for term in terms_of(named) if len(term) >= _WORD_MIN or term >= EAST_BEGINS)
    return frozenset((*words, *_NUMBER.findall(named)))
