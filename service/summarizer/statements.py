"""The statements of a draft before its source: which of them are proved, and what is quoted in place of the others.

A statement of a model stands in its own words if the source proves it. In place of any other the record has the
source's own sentences that come nearest, with their speakers, as key points: what a model meant is kept, and what it
made up is not told. Nothing takes the place of a statement that nothing is near, or of what the record says already.

A statement that code has found, or that an earlier record names with its messages, needs no proof, and goes if a later
message gave another value to what it says. A narrative is judged sentence by sentence for what contradicts its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from abridged.service.domain.message import Role
from abridged.service.extraction.cues import asks, is_decision, leaves_open
from abridged.service.extraction.passages import speaker_of
from abridged.service.extraction.replaced import superseding
from abridged.service.grounding.draft import Problem, ProblemCode
from abridged.service.grounding.polarity import contradicting
from abridged.service.grounding.roles import decides, only_proposed
from abridged.service.grounding.speakers import said_by_another
from abridged.service.grounding.support import Concordance
from abridged.service.grounding.testimony import Line, Witnessed
from abridged.service.text.identifiers import identifiers
from abridged.service.text.markup import strip_marks
from abridged.service.text.phrases import Phrase, has_phrase
from abridged.service.text.secrets import mask_secrets
from abridged.service.text.sentences import clipped, sentences

_Numbers = tuple[int, ...]

_SUPERSEDABLE: Final = frozenset({"decisions", "action_items"})
_NARRATIVE_SENTENCES_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Judged:
    """The statements of a draft, by list.

    Attributes:
        taken_out: The items that may not stay.
        quoted: The lines that stand in their place, by list: a line of a decision or of an open point in the list of
            its statement, and any other among the key points.
        unsupported: The items that nothing in the source is near.
        rests_on: The messages of all statements that stay and of the quoted lines.
        removed: Why items that a model wrote were taken out: lists, counts and message numbers, no text.
    """

    taken_out: Mapping[str, frozenset[str]]
    quoted: Mapping[str, tuple[str, ...]]
    unsupported: Mapping[str, frozenset[str]]
    rests_on: Mapping[str, _Numbers]
    removed: tuple[Problem, ...]


@dataclass(slots=True)
class _List:
    quoted: dict[str, _Numbers] = field(default_factory=dict)
    unsupported: set[str] = field(default_factory=set)
    outdated: set[str] = field(default_factory=set)

    @property
    def taken_out(self) -> frozenset[str]:
        return frozenset((*self.quoted, *self.unsupported, *self.outdated))


def judged(
    statements: Mapping[str, Sequence[str]],
    concordance: Concordance,
    rests_on: Mapping[str, _Numbers] = MappingProxyType({}),
    superseded: Mapping[str, int] = MappingProxyType({}),
) -> Judged:
    """The statements, given by list, before what their source says. Statements in `rests_on` rest on these messages,
    and `superseded` are values that no longer hold, with the messages that say so."""
    if concordance.is_empty:
        nothing = dict.fromkeys(statements, frozenset[str]())
        return Judged(nothing, {}, nothing, rests_on, ())
    rests = dict(rests_on)
    quoted: dict[str, list[str]] = {}
    lists: dict[str, _List] = {}
    for name, texts in statements.items():
        found = lists[name] = _List()
        for text in dict.fromkeys(texts):
            if text in rests_on:
                if _is_outdated(name, text, rests_on[text], concordance, superseded):
                    found.outdated.add(text)
                continue
            testimony = concordance.testimony(text, lambda line: bool(superseding(line, superseded)))
            if testimony.is_proof and not (name == "decisions" and _is_proposal(text, testimony, concordance)):
                rests[text] = testimony.numbers
            elif testimony.lines:
                found.quoted[text] = testimony.numbers
                for line in testimony.lines:
                    said, numbers = quotation(line)
                    quoted.setdefault(name if _is_of(name, line.text) else "key_points", []).append(said)
                    rests.setdefault(said, numbers)
            else:
                found.unsupported.add(text)
    return Judged(
        {name: found.taken_out for name, found in lists.items()},
        {name: tuple(filter(None, dict.fromkeys(lines))) for name, lines in quoted.items()},
        {name: frozenset(found.unsupported) for name, found in lists.items()},
        rests,
        tuple(problem for name, found in lists.items() for problem in _removals(name, found)),
    )


def _is_outdated(
    name: str, text: str, known: _Numbers, concordance: Concordance, superseded: Mapping[str, int]
) -> bool:
    """Return whether a later message gave another value to what a known statement says, or, of a decision or a task,
    corrects it."""
    if superseding(text, superseded):
        return True
    if name not in _SUPERSEDABLE:
        return False
    testimony = concordance.testimony(text)
    later = (line for line in testimony.lines if max(line.passage.numbers, default=0) > max(known, default=0))
    return not testimony.is_proof and any(corrects(line.text, text) for line in later)


def quotation(line: Line) -> tuple[str, tuple[int, ...]]:
    """The line that a record quotes, empty if clipping leaves no word; and its messages."""
    text = clipped(" ".join(mask_secrets(strip_marks(line.text)).split()))
    speaker = speaker_of(line.passage.message) if line.passage.message else ""
    return f"{speaker}: {text}" if speaker and text else text, line.passage.numbers


def _is_of(name: str, text: str) -> bool:
    """Return whether a quoted sentence itself says that something is decided, or leaves something open."""
    return (name == "decisions" and is_decision(text)) or (name == "unresolved" and (asks(text) or leaves_open(text)))


def _is_proposal(text: str, testimony: Witnessed, concordance: Concordance) -> bool:
    """Return whether only an assistant proposes what a statement says."""
    is_assistant = any(line.passage.role is Role.ASSISTANT for line in testimony.lines)
    return is_assistant and only_proposed(text, concordance.support(text), concordance) is not None


def corrects(sentence: str, text: str) -> bool:
    """Return whether a sentence speaks of a change and has another value than a text: `it moves to 04:00` corrects no
    text that says 04:00."""
    return has_another_value(sentence, text) and has_phrase(sentence, Phrase.CORRECTS)


def has_another_value(sentence: str, text: str) -> bool:
    """Return whether a sentence has an identifier that a text lacks, of a kind that the text has."""
    known = {found.text.casefold(): found.kind for found in identifiers(text)}
    kinds = frozenset(known.values())
    return any(found.kind in kinds for found in identifiers(sentence) if found.text.casefold() not in known)


def narrative_problems(field: str, text: str, concordance: Concordance) -> Iterator[Problem]:
    """The sentences of a narrative whose source says the opposite, or which make a decision of a proposal."""
    opposed: list[_Numbers] = []
    proposed: list[_Numbers] = []
    by_others: list[_Numbers] = []
    for _, sentence in zip(range(_NARRATIVE_SENTENCES_MAX), sentences(text), strict=False):
        support = concordance.support(sentence)
        if (against := contradicting(sentence, support, concordance)) is not None:
            opposed.append(against)
        elif decides(sentence) and (proposal := only_proposed(sentence, support, concordance)) is not None:
            proposed.append(proposal)
        elif (another := said_by_another(sentence, support, concordance)) is not None:
            by_others.append(another)
    if opposed:
        yield Problem(ProblemCode.OPPOSITE, f"{field} says the opposite of {_messages(opposed)}")
    if proposed:
        yield Problem(
            ProblemCode.ONLY_PROPOSED, f"{field} makes a decision of what {_messages(proposed)} only proposed"
        )
    if by_others:
        yield Problem(
            ProblemCode.OTHER_SPEAKER, f"{field} gives to one speaker what another says in {_messages(by_others)}"
        )


def _removals(name: str, found: _List) -> Iterator[Problem]:
    if found.quoted:
        count, said = len(found.quoted), _messages(found.quoted.values())
        yield Problem(ProblemCode.UNPROVED, f"{name}: {count} are not proved, and gave way to the words of {said}")
    if found.unsupported:
        count = len(found.unsupported)
        yield Problem(ProblemCode.NO_EVIDENCE, f"{name}: {count} rest on no message and were taken out")


def _messages(numbers: Iterable[_Numbers]) -> str:
    listed = sorted({number for some in numbers for number in some})
    return f"message {', '.join(map(str, listed))}" if listed else "the earlier summary"
