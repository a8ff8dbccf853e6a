"""Standing rules that a later message ends, or does not, by writers who never saw the code; and which are taken to end.

A line of `LANGUAGE.tsv` has a label, a rule, and a later message of the same person: `lifted` takes the rule back,
`changed` lays it down in another way, after `stands` it holds. A dozen lines make a conversation: first all the rules,
then all the later messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from abridged.service.domain.events import MessageAppended
from abridged.service.domain.message import Message, Role
from abridged.service.domain.rules import Rule, Rules
from abridged.service.domain.rules_found import found_rules
from abridged.service.domain.tokens import TokenSource
from bench.quality.examined import Share

LIFTED: Final = "lifted"
STANDS: Final = "stands"
LINES: Final = 12
"""The lines of a conversation."""


class Line(NamedTuple):
    """A rule and a later message, with what becomes of the rule."""

    label: str
    rule: str
    later: str


class Ended(NamedTuple):
    """The share of ended rules that are known to be, and the share of those known to be that were."""

    found: Share
    right: Share


def dozens(folder: Path) -> Iterator[list[Line]]:
    """The conversations of a half, by language."""
    for path in sorted(folder.glob("lifts/*.tsv")):
        lines = [Line(*line.split("\t")) for line in path.read_text("utf-8").splitlines()]
        yield from (lines[start : start + LINES] for start in range(0, len(lines), LINES))


def ended_read(folder: Path) -> Ended:
    """Read the conversations of a half as a pass does, the rules standing before them."""
    read = Ended(Share(), Share())
    for lines in dozens(folder):
        rules = Rules(tuple(Rule(line.rule, number) for number, line in enumerate(lines, 1)))
        said = enumerate((Message("", Role.USER, line.later) for line in lines), len(lines) + 1)
        later = [MessageAppended(number, message, 0, TokenSource.ESTIMATE) for number, message in said]
        ended = {(one.number, one.by) for one in found_rules(later, (), rules)[1] if one.number <= len(lines)}
        true = {(n, n + len(lines)) for n, line in enumerate(lines, 1) if line.label != STANDS}
        read.found.add(len(true & ended), len(true))
        read.right.add(len(true & ended), len(ended))
    return read
