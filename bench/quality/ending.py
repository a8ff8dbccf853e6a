"""Standing rules that a later message ends, or does not, by writers who never saw the code; and which are taken to end.

A line of `LANGUAGE.tsv` has a label, a rule, and a later message of the same person: `lifted` takes the rule back,
`changed` lays it down in another way, after `stands` it holds. A dozen lines make a conversation: first all the rules,
then all the later messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from abridged.service.text.ending import lifted_rule, renewed_rule
from abridged.service.text.standing import statements, words_of_rule
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
    """Hold each later message of a half against all the rules of its conversation."""
    read = Ended(Share(), Share())
    for lines in dozens(folder):
        rules = [words_of_rule(line.rule) for line in lines]
        for at, line in enumerate(lines):
            said = list(statements(line.later))
            renewed = (renewed_rule(one, rules) for one in said if one.is_rule)
            ended = {place for place in (*renewed, *(lifted_rule(one, rules) for one in said)) if place is not None}
            has_ended = line.label != STANDS
            if has_ended:
                read.found.add(at in ended, 1)
            read.right.add(has_ended and at in ended, len(ended))
    return read
