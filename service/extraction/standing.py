"""Whether a sentence can be read without the ones before it: it names what it is about, and it is no chatter."""

from __future__ import annotations

import re
from typing import Final

from service.text.identifiers import identifiers
from service.text.phrases import Words, words_of
from service.text.sentences import terms_of

_OPENING: Final = re.compile(
    r"^\W*(?:(?:yes|yeah|yep|no|nope|ok|okay|sure|right|alright|all right|well|so|and|but|oh|ah|um|uh|then|great"
    r"|perfect|got it|i see|in that case|with that|oui|ja|nein|sí|si|d'accord|genau)\b[\s,.!;:]*)+",
    re.IGNORECASE,
)
"""Words that take up what was said before."""

_POINTING: Final = re.compile(
    r"\b(?:this|that|these|those)(?: (?:one|ones|option|options|change|changes|detail|details|information|way|thing"
    r"|things|step|steps|request|booking|reservation|point|part|stuff|number|numbers))?(?=[\s,.!?;:]|$)"
    r"|\b(?:it|them|the same|the (?:first|second|other|latter|former) (?:one|option))\b",
    re.IGNORECASE,
)
"""Words that only point at something that another sentence names."""

_CHOICE: Final = re.compile(r"\b(?:[Oo]ption|[Pp]lan|[Vv]ariant|[Pp]roposal) (?:\d{1,2}|[A-Z])\b")
"""Something that has its own name in the conversation."""

_NAMING_MIN: Final = 2
"""The fewest other words that name a thing; a sentence that only points at something needs twice as many."""


def stands_alone(text: str) -> bool:
    """Whether `text` names what it is about: by an identifier, or by words that are not general.

    A sentence that points ("that one", "the other option") needs more of them. Words of languages other than English
    are never general, so their sentences pass with two.
    """
    bare = _OPENING.sub("", text)
    named = _POINTING.sub(" ", bare)
    words_min = _NAMING_MIN if named == bare else 2 * _NAMING_MIN
    return (
        _CHOICE.search(bare) is not None
        or any(identifiers(named))
        or len(terms_of(named) - words_of(Words.GENERAL)) >= words_min
    )
