"""Safe output to a terminal: conversations, files and server responses contain text from anyone.

Invariant: such text can neither control the terminal nor begin a line of a command's output.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click

from abridged.service.config.sources import environment

WIDTH_MIN = 40
WIDTH_MAX = 120

# Everything that controls a terminal: C0 except tab and newline, DEL, C1, marks that change the writing direction, and
# the two separators that some treat as a newline.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """The text with control characters replaced by U+FFFD."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def escaped(json_text: str) -> str:
    """JSON with those characters escaped: the same value, spelled differently."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def one_line(text: str) -> str:
    """The text with line breaks and tabs replaced too."""
    return printable(text).replace("\n", "\N{REPLACEMENT CHARACTER}").replace("\t", " ")


def number_of(count: int, noun: str) -> str:
    """The count with its noun."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{'' if count == 1 else ending}"


class OutputFailed(click.ClickException):
    """The output of a command has an error, as on a full disk."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the message to standard error."""
        click.echo(marked(f"abridged: {self.message}", "red"), file=file, err=file is None)


@contextmanager
def writing(to: str = "standard output") -> Iterator[None]:
    """Turn an error of the output into OutputFailed, but for a pipe that nobody reads: click ends silently at that."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(f"cannot write to {to}: {error.strerror or error}") from error


def say(text: str = "", *, is_error: bool = False, mark: str = "") -> None:
    """Write one line to standard output, or to standard error. All output of commands goes through here.

    `mark` is the colour of its first word, on a terminal whose user has not set NO_COLOR.
    """
    with writing("standard error" if is_error else "standard output"):
        click.echo(marked(text, mark), err=is_error)


def marked(text: str, colour: str) -> str:
    """The text as one line, its first word in a colour, which click leaves out where the output is no terminal."""
    line = one_line(text)
    if not colour or environment().get("NO_COLOR"):
        return line
    word, space, rest = line.partition(" ")
    return f"{click.style(word, fg=colour)}{space}{rest}"


def say_text(text: str, *, indent: str = "", newline: bool = True) -> None:
    """Write text of several lines, with `indent` before each line but the first, so none can pass for ours."""
    with writing():
        click.echo(printable(text).replace("\n", f"\n{indent}"), nl=newline)


def excerpt(text: str, *, chars_max: int) -> str:
    """The beginning of a text as one line of at most `chars_max` characters."""
    line = " ".join(printable(text[: chars_max * 4]).split())
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"


def width() -> int:
    """Columns to use, from 40 to 120."""
    return max(WIDTH_MIN, min(WIDTH_MAX, shutil.get_terminal_size((100, 24)).columns))


def is_interactive() -> bool:
    """Return whether both standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def program_name(started_as: Path, *, in_environment: bool) -> str:
    """The command with which another shell starts this program; `started_as` is how this one did.

    The command of a script in a virtual environment is its path, because another shell may not have activated it.
    """
    if not in_environment or not started_as.is_file():
        return "abridged"
    return shlex.quote(str(started_as.absolute()))
