"""What may be written to a terminal: conversations hold anybody's text, and so do files and what servers answer.

Invariant: such a text neither steers the terminal nor begins a line that a command did not begin.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import click

__all__ = ["escaped", "excerpt", "is_interactive", "one_line", "printable", "program_name", "say", "say_text", "width"]

WIDTH_MIN = 40
WIDTH_MAX = 120

# Everything that a terminal obeys: C0 but tab and newline, DEL, C1, what turns the direction of writing, and the two
# separators that some take for a newline.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with control characters replaced by a mark."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def escaped(json_text: str) -> str:
    """JSON with the same characters as escapes: another spelling of the same value."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def one_line(text: str) -> str:
    """The text with line ends and tabs replaced too."""
    return printable(text).replace("\n", "\N{REPLACEMENT CHARACTER}").replace("\t", " ")


def say(text: str = "", *, is_error: bool = False) -> None:
    """Write one line to standard output, or to standard error. What a command tells goes through here."""
    click.echo(one_line(text), err=is_error)


def say_text(text: str, *, indent: str = "", newline: bool = True) -> None:
    """Write a text of several lines, each but the first behind `indent`; it stands where no line of ours does."""
    click.echo(printable(text).replace("\n", f"\n{indent}"), nl=newline)


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


def program_name(started_as: Path, *, in_environment: bool) -> str:
    """How another shell starts this program, `started_as` being how this one did.

    The script of a virtual environment is named by its path, since no other shell need have activated it.
    """
    if not in_environment or not started_as.is_file():
        return "abridged"
    return shlex.quote(str(started_as.absolute()))
