"""Finds statements that give to one speaker what another said: `the user proposed`, where the assistant did.

A statement names a speaker if it says that somebody decides, wants, proposes or remarks. The message that comes closest
to it in the source shows who did. A person whose wish an assistant voiced first may have taken it up; nobody else's
proposal or remark is one's own. A report of the closest message, of a name or of a tool, may be right. An impersonal
sentence, `it was suggested`, has no speaker.

The phrases are those of `service/text/languages/`. A statement that no phrase fits names no speaker.
"""

from __future__ import annotations

import re
from typing import Final

from abridged.service.domain.message import Role
from abridged.service.grounding.polarity import is_quoted
from abridged.service.grounding.roles import is_taken_up
from abridged.service.grounding.support import Concordance, Heard, Support
from abridged.service.text.phrases import Phrase, has_phrase, section_of
from abridged.service.text.sentences import is_question
from abridged.service.text.words import as_phrased, folded, word_forms

_CLOSE: Final = 0.25
"""Share of a statement that a message must have to show who said it."""

_BESIDE: Final = 0.75
"""A message with this much of the closest one's share says it too: the first of them shows who said it."""

_SUBJECT_CHARS: Final = 48
"""The most characters of a speaker with what is said of it."""

_ROLES: Final = frozenset(Role)

_WORD: Final = re.compile(r"\w")
_TOPIC: Final = re.compile("([^\\W\u3041-\u309f]+(?:[\u3041-\u309f]{2})?)\\s?[\u306f\u304c\u3082]")
_CLEFT: Final = re.compile("\u306e\u306f\u3001?([\u30a0-\u9fff]+)")
"""The subject of a Japanese sentence: before its particle, or after the verb with `no wa`."""


def said_by_another(statement: str, support: Support, concordance: Concordance) -> tuple[int, ...] | None:
    """The message of another speaker that says what `statement` gives to its own; None if there is no such message."""
    if is_question(statement):
        return None
    plain = as_phrased(statement)
    voiced, wish = _first(plain, Phrase.TELLS_PROPOSAL, Phrase.TELLS_REMARK), _first(plain, Phrase.TELLS_WISH)
    act = voiced or wish
    if act is None or (claimed := _speaker(plain, act)) is None or _is_quotation(statement, support):
        return None
    near = [heard for heard in support.heard if heard.passages[0].role in (Role.USER, Role.ASSISTANT)]
    most = max((heard.share for heard in near), default=0.0)
    least = max(_CLOSE, _BESIDE * most)
    if any(heard.passages[0].role is Role.TOOL and heard.share >= least for heard in support.heard):
        return None
    close = sorted((heard for heard in near if heard.share >= least), key=lambda heard: heard.passages[0].source)
    others = [heard for heard in close if heard.passages[0].role is not claimed]
    if not others or _is_reported(_subject(plain, act), others[0]):
        return None
    if voiced is not None:
        return None if close[0] is not others[0] else others[0].passages[0].numbers
    if claimed is Role.USER and (len(others) < len(close) or is_taken_up(others[0], concordance)):
        return None
    if claimed is Role.USER and _attends(others[0]):
        return None
    return others[0].passages[0].numbers


def _is_quotation(statement: str, support: Support) -> bool:
    """Return whether a statement is what a message says, of the role before it if there is one, or stands in the
    previous record with its speaker: it tells of nobody's act."""
    speaker = statement.partition(": ")[0]
    return any(
        is_quoted(statement, heard)
        and (
            speaker not in _ROLES
            or heard.passages[0].role == speaker
            or any(passage.role is None and statement in passage.text for passage in heard.passages)
        )
        for heard in support.heard
    )


def _first(plain: str, *kinds: Phrase) -> re.Match[str] | None:
    found = [match for kind in kinds if (match := section_of(kind).search(plain))]
    return min(found, key=re.Match.start, default=None)


def _speaker(plain: str, act: re.Match[str]) -> Role | None:
    """The speaker of a statement whose verb is given; None if it names nobody."""
    subject = _subject(plain, act)
    if _is_assistant(subject) or has_phrase(plain[act.end() :], Phrase.ASSISTANT_FOLLOWS):
        return Role.ASSISTANT
    nameless = section_of(Phrase.NAMES_NOBODY).finditer(plain)
    if not _WORD.search(subject) or any(found.start() <= act.start() < found.end() for found in nameless):
        return None
    return Role.USER


def _subject(plain: str, act: re.Match[str]) -> str:
    """The speaker of a statement, in the text before the verb."""
    before = plain[: act.start()]
    found = _CLEFT.search(plain, act.end()) or _TOPIC.search(before)
    return found[1] if found else before[:_SUBJECT_CHARS]


def _is_assistant(subject: str) -> bool:
    """Return whether a subject is an assistant, and not somebody of whom it is said to be one's."""
    found = section_of(Phrase.NAMES_ASSISTANT).search(subject)
    return found is not None and not has_phrase(subject[: found.start()], Phrase.IS_ASIDE)


def _attends(heard: Heard) -> bool:
    """Return whether an assistant's message reports something done or asks for details: it repeats what a user
    wants."""
    return any(
        has_phrase(passage.text, kind)
        for passage in heard.passages
        for kind in (Phrase.REPORTS_DONE, Phrase.ASKS_FOR_ANSWER)
    )


def _is_reported(subject: str, heard: Heard) -> bool:
    """Return whether the message mentions the subject, and so may report what somebody else said."""
    text = folded("\n".join(passage.text for passage in heard.passages))
    return any(form in text for form, _ in word_forms(subject))
