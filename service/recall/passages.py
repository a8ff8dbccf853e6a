"""Finds the searchable text of a message or a record, and the pieces of it that get vectors. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from abridged.service.domain.material import read_text
from abridged.service.domain.message import Message
from abridged.service.domain.record import SummaryRecord

PIECE_CHARS = 1_200
"""Characters of a piece: about 300 tokens. The vector of a longer text says less of each of its parts."""

PIECES_MAX = 16
"""The first pieces of a text get vectors, which bounds those of a tool's huge output. Words are found in all of it."""

SNIPPET_CHARS = 240
PASSAGE_CHARS = 600
"""Characters of a passage for a model to read: a longer one takes the room of another exchange."""

PLACES_MAX = 64
"""Places of a text that are compared; bounds the work on a text that repeats a word."""

_LEAD_CHARS = 60
"""Characters of a snippet before its first match."""

_CUT = "…"


def text_of_message(message: Message) -> str:
    """Return the message's text: as people and models read it, then its calls with their arguments."""
    calls = (f"{call.name} {call.arguments}" for call in message.tool_calls)
    return "\n".join(part for part in (read_text(message), *calls) if part)


def text_of_record(record: SummaryRecord) -> str:
    """Return the record's text, its lists included, a line each; an episode in short first."""
    context = record.context
    items = (" ".join(filter(None, (item.owner, item.task, item.due))) for item in context.action_items)
    return "\n".join(
        (
            *([record.short_summary] if record.short_summary else []),
            record.summary,
            *record.key_points,
            *context.participants,
            *context.decisions,
            *items,
            *context.unresolved,
            *context.domain_entities,
        )
    )


def pieces_of(text: str) -> list[str]:
    """The text in pieces of at most PIECE_CHARS, cut where it has a blank, the first PIECES_MAX of them."""
    return list(islice(_cut(text), PIECES_MAX))


def _cut(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + PIECE_CHARS
        if end < len(text):
            # A text without blanks is cut where the piece is full.
            blank = max(text.rfind(" ", start + PIECE_CHARS // 2, end), text.rfind("\n", start + PIECE_CHARS // 2, end))
            end = blank + 1 if blank >= 0 else end
        yield text[start:end]
        start = end


def snippet_of(text: str, stems: Sequence[str]) -> str:
    """SNIPPET_CHARS of the text at most, on one line, around the place where most of the folded `stems` begin words."""
    return " ".join(_around(text, stems, SNIPPET_CHARS).split())


def passage_of(text: str, stems: Sequence[str]) -> str:
    """Return at most PASSAGE_CHARS of the text as it is written, around the same place."""
    return text if len(text) <= PASSAGE_CHARS else _around(text, stems, PASSAGE_CHARS)


def _around(text: str, stems: Sequence[str], chars: int) -> str:
    places = list(islice(_places(text, stems), PLACES_MAX))
    best = max((at for at, _ in places), key=lambda at: _worth(places, at, chars), default=0)
    start = max(0, best - _LEAD_CHARS)
    if start:
        start = text.find(" ", start, best) + 1 or start
    shown = text[start : start + chars].strip()
    return f"{_CUT if start else ''}{shown}{_CUT if start + chars < len(text) else ''}"


def _places(text: str, stems: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the places where words begin with one of the stems, each with that stem."""
    if not stems:
        return
    # Scripts without spaces have no place where a word begins.
    begins = (rf"(?<![^\W_]){re.escape(stem)}" if stem.isascii() else re.escape(stem) for stem in stems)
    for match in re.finditer("|".join(begins), text, re.IGNORECASE):
        yield match.start(), match[0].casefold()


def _worth(places: Sequence[tuple[int, str]], start: int, chars: int) -> float:
    """Weigh the different stems among the characters around this place: a long one, and one that the text has
    once, tells more."""
    counts = Counter(stem for _, stem in places)
    return sum(
        len(stem) / counts[stem] for stem in {stem for at, stem in places if start <= at < start + chars - _LEAD_CHARS}
    )
