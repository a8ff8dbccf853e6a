"""Text of others as data inside a frame of ours: a frame is a pair of tags that no text within can open or close.

Frames are found as a model reads them (`service.text.lookalikes`), so no other spelling of a tag gets through, nor
one with invisible characters in it. Text without such tags, marks and lines is returned as it is.
"""

from __future__ import annotations

import re
from typing import Final

from abridged.service.text.lookalikes import LINE_ENDS, reading, replaced
from abridged.service.text.markup import strip_marks, without_marks

FRAMES: Final = (
    "transcript",
    "message",
    "previous_summary",
    "previous_messages",
    "partial_summary",
    "statements",
    "conversation_summary",
    "meta",
    "instructions",
)
"""The tags of every prompt and of the rendered window."""

_BREAKS_OUT: Final = re.compile(
    rf"<(?=\s*(?:[/\\]\s*)?(?:conversation_summary|(?:{'|'.join(FRAMES)})\b))"
    # Where templates without marks of their own begin a turn: Alpaca, Vicuna. `user:` in lower case is how extracts
    # name a speaker, and begins a turn in no template.
    r"|^(?=[^\S\n]*(?:\#{1,6}[^\S\n]*(?:instructions?|system|user|human|assistant|input|response)\b"
    r"|(?:instructions?|system|human|(?-i:(?!user|assistant))(?:user|assistant))[^\S\n]*:))",
    re.IGNORECASE | re.MULTILINE,
)
_LINE_QUOTE: Final = "> "

_SPECIAL: Final = re.compile(r'[<>"&]')
_ENTITIES: Final = {"<": "&lt;", ">": "&gt;", '"': "&quot;", "&": "&amp;"}
_BRACKET: Final = re.compile(r"[\[\]]")
_ANY_SPACE: Final = re.compile(rf"[\s{LINE_ENDS}]+")


def quoted(text: str) -> str:
    """Text that opens or closes no frame, has no mark of a chat template and no line that begins another's turn.

    A tag's bracket becomes `&lt;`, a mark a line's end, and such a line starts with `> `. Quoting it again changes
    nothing.
    """
    read = replaced(without_marks(text), _BREAKS_OUT, lambda found: _ENTITIES.get(found[0], _LINE_QUOTE))
    # As written, too: an invisible character may end the name of a tag.
    return _BREAKS_OUT.sub(lambda found: _ENTITIES.get(found[0], _LINE_QUOTE), read)


def attribute(text: str) -> str:
    """Text for a tag's attribute: one line that ends neither the attribute nor the tag."""
    return replaced(_one_line(text), _SPECIAL, lambda found: _ENTITIES[found[0]])


def noted(text: str) -> str:
    """Text for a note of ours in square brackets: one quoted line in which each bracket has its pair.

    The note's own bracket is thus the one that ends it. Brackets without a pair become `&#91;` and `&#93;`, and with
    them all others.
    """
    line = quoted(_one_line(text))
    return line if _is_paired(reading(line).text) else replaced(line, _BRACKET, lambda found: f"&#{ord(found[0])};")


def _one_line(text: str) -> str:
    return _ANY_SPACE.sub(" ", strip_marks(text)).strip()


def _is_paired(text: str) -> bool:
    depth = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket == "[" else -1
        if depth < 0:
            return False
    return not depth
