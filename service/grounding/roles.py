"""Finds statements that make a decision of an assistant's proposal.

A proposal is decided once a user takes it up: says so in the next messages, says the same, or agrees in few words. One
that nobody took up stays a proposal, and so does one that was turned down or put off. A message may report one thing
and propose another, so its sentences are judged one by one.

The phrases are those of `service/text/languages/`. A sentence that no phrase fits proposes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from abridged.service.domain.message import Role
from abridged.service.grounding.reading import Passage, denies
from abridged.service.grounding.support import Concordance, Heard, Support, keys_in
from abridged.service.text.phrases import Phrase, has_phrase, section_of
from abridged.service.text.sentences import parts_of
from abridged.service.text.words import as_phrased, folded

_SAYS_SAME: Final = 0.5
"""Share of a statement that a user's own words must have to be the user's."""

_PROPOSED: Final = 0.3
"""Share of a statement that a proposal must have to be what it was made from."""

_REPLY_CHARS: Final = 160
_SHORT_WORDS: Final = 3
"""A reply this short takes up what it does not turn down: `the second one`."""

_REPLIES_MAX: Final = 2
"""Messages of users after a proposal in which it is taken up."""

_FOLLOWING_MAX: Final = 12
"""Messages in which to look for them."""

_ITEM: Final = re.compile(r"\s*(?:[-*+\u2022]|\d{1,2}[.)]|\(?[a-z]\))\s")


def decides(statement: str) -> bool:
    """Return whether a sentence says that somebody decided something, and not that an assistant proposed it."""
    plain = folded(statement)
    return has_phrase(plain, Phrase.TELLS_DECISION) and not _tells_of_proposal(plain)


def only_proposed(statement: str, support: Support, concordance: Concordance) -> tuple[int, ...] | None:
    """The message of an assistant that proposes what `statement` says is decided; None if it may be decided."""
    if _tells_of_proposal(folded(statement)):
        return None
    near = [heard for heard in support.heard if heard.share >= _PROPOSED]
    proposals = [heard for heard in near if heard.passages[0].role is Role.ASSISTANT]
    if not proposals or any(_is_own(statement, heard) for heard in near):
        return None
    if any(is_taken_up(heard, concordance) for heard in near):
        return None
    if denies(statement) and any(_is_refused(heard, concordance) for heard in proposals):
        return None
    return proposals[0].passages[0].numbers


def _tells_of_proposal(plain: str) -> bool:
    return has_phrase(plain, Phrase.NAMES_ASSISTANT) or has_phrase(plain, Phrase.TELLS_PROPOSAL)


def _is_own(statement: str, heard: Heard) -> bool:
    """Return whether a message settles a statement: a person says it, or an assistant or a tool states it, or the
    previous record."""
    if heard.passages[0].role is Role.ASSISTANT:
        return _is_stated(statement, "\n".join(passage.text for passage in heard.passages))
    return heard.share >= _SAYS_SAME


def _is_stated(statement: str, text: str) -> bool:
    """Return whether sentences of `text` that propose nothing say `statement`. They must report something done or
    decided, and have all words of the statement that the text has, if a proposal may be about the same."""
    wanted, is_look = keys_in(statement), has_phrase(folded(statement), Phrase.TELLS_LOOKING)
    plain = [as_phrased(sentence) for sentence in parts_of(text)]
    proposals, others = _parted(plain)
    if not any(has_phrase(proposal, Phrase.POINTS_BACK) or wanted & keys_in(proposal) for proposal in proposals):
        return True
    reported = [
        other for other in others if _is_report(other) and (is_look or not has_phrase(other, Phrase.TELLS_LOOKING))
    ]
    known = wanted & keys_in("\n".join(reported))
    return bool(known) and known >= wanted & keys_in("\n".join(plain))


def _is_report(sentence: str) -> bool:
    return has_phrase(sentence, Phrase.TELLS_DONE) or has_phrase(sentence, Phrase.TELLS_DECISION)


def _parted(plain: list[str]) -> tuple[list[str], list[str]]:
    """The sentences that propose, with the items of a list after them, and the others."""
    proposals: list[str] = []
    others: list[str] = []
    is_proposal = False
    for sentence in plain:
        is_proposal = has_phrase(sentence, Phrase.PROPOSES) or (is_proposal and _ITEM.match(sentence) is not None)
        (proposals if is_proposal else others).append(sentence)
    return proposals, others


def is_taken_up(heard: Heard, concordance: Concordance) -> bool:
    """Return whether users agree to a proposal, or do not turn it down in the few words that they say next."""
    for place, reply in enumerate(_replies(heard.passages[-1], concordance)):
        if section_of(Phrase.AGREES).match(reply) or (
            has_phrase(reply, Phrase.TAKES_UP) and not has_phrase(reply, Phrase.TURNS_DOWN)
        ):
            return True
        if place == 0 and has_phrase(reply, Phrase.TURNS_DOWN):
            return False
        if reply.isascii() and len(reply.split()) <= _SHORT_WORDS:
            return True
    return False


def _is_refused(heard: Heard, concordance: Concordance) -> bool:
    """Return whether the next reply of a user denies a proposal, so that it is decided against."""
    return has_phrase(next(_replies(heard.passages[-1], concordance), ""), Phrase.DENIES)


def _replies(proposal: Passage, concordance: Concordance) -> Iterator[str]:
    """The beginnings of what users say next, folded."""
    replies, passage = 0, concordance.after(proposal)
    for _ in range(_FOLLOWING_MAX):
        if passage is None or replies == _REPLIES_MAX:
            return
        if passage.role is Role.USER:
            replies += 1
            yield as_phrased(passage.text[:_REPLY_CHARS])
        passage = concordance.after(passage)
