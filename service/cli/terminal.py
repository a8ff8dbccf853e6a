"""What may be written to a terminal: conversations hold anybody's text, and it must not steer the terminal."""

from __future__ import annotations

import re
import shutil
import sys

__all__ = ["excerpt", "is_interactive", "printable", "width"]

WIDTH_MIN = 40
WIDTH_MAX = 120

# Everything that a terminal obeys: C0 but tab and newline, DEL, C1, and what turns the direction of writing.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with control characters replaced by a mark."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def excerpt(text: str, *, chars_max: int) -> str:
    """The beginning of a text as one line of at most `chars_max` characters."""
    line = " ".join(printable(text[: chars_max * 4]).split())
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"


def width() -> int:
    """Columns to use."""
    return max(WIDTH_MIN, min(WIDTH_MAX, shutil.get_terminal_size((100, 24)).columns))


def is_interactive() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty()
