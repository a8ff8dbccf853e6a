"""Finds statements that give to one speaker what another said: `the user proposed`, where the assistant did.

A statement names a speaker if it says that somebody decides, wants or proposes. What comes closest to it in the source
shows who did. A person whose wish an assistant voiced first may have taken it up; nobody else's proposal is one's own.
A name that the closest message mentions is reported, and so may be right.

The phrases are those of `service/text/languages/`. A statement that no phrase fits names no speaker.
"""

from __future__ import annotations

import re
from typing import Final

from abridged.service.domain.message import Role
from abridged.service.grounding.roles import is_taken_up
from abridged.service.grounding.support import Concordance, Heard, Support
from abridged.service.text.phrases import Phrase, pattern_of
from abridged.service.text.words import folded, word_forms

_CLOSE: Final = 0.25
"""Share of a statement that a message must have to show who said it."""

_BESIDE: Final = 0.75
"""A message with this much of the closest one's share says it too: the first of them shows who said it."""

_SUBJECT_CHARS: Final = 48
"""Of a speaker with what is said of it."""

_PARTICLE: Final = re.compile("(?<=[\u3041-\u9fff])[\u306f\u304c\u3082]")
"""Marks the subject of a Japanese sentence."""


def said_by_another(statement: str, support: Support, concordance: Concordance) -> tuple[int, ...] | None:
    """The message of another speaker that says what `statement` gives to its own; None if there is no such message."""
    plain = folded(statement)
    proposal, wish = pattern_of(Phrase.TELLS_PROPOSAL).search(plain), pattern_of(Phrase.TELLS_WISH).search(plain)
    act = proposal or wish
    if act is None:
        return None
    subject = _subject(plain[: act.start()])
    claimed = Role.ASSISTANT if _is_assistant(subject) else Role.USER
    near = [heard for heard in support.heard if heard.passages[0].role in (Role.USER, Role.ASSISTANT)]
    most = max((heard.share for heard in near), default=0.0)
    close = sorted((h for h in near if h.share >= max(_CLOSE, _BESIDE * most)), key=lambda h: h.passages[0].source)
    others = [heard for heard in close if heard.passages[0].role is not claimed]
    if not others or _is_reported(subject, others[0]):
        return None
    if proposal is not None:
        return None if close[0] is not others[0] else others[0].passages[0].numbers
    if claimed is Role.USER and (len(others) < len(close) or is_taken_up(others[0], concordance)):
        return None
    return others[0].passages[0].numbers


def _subject(before: str) -> str:
    """The speaker of a statement, in the text before the verb; up to a particle in languages whose verb comes last."""
    return _PARTICLE.split(before, maxsplit=1)[0][:_SUBJECT_CHARS]


def _is_assistant(subject: str) -> bool:
    """Whether a subject is an assistant, and not somebody of whom it is said to be one's."""
    found = pattern_of(Phrase.NAMES_ASSISTANT).search(subject)
    return found is not None and not any(word_forms(subject[: found.start()]))


def _is_reported(subject: str, heard: Heard) -> bool:
    """Whether the message mentions the subject, and so may report what somebody else said."""
    text = folded("\n".join(passage.text for passage in heard.passages))
    return any(form in text for form, _ in word_forms(subject))
