"""The statements of a draft before its source: which of them are proved, and what is quoted in place of the others.

A statement of a model stands in its own words if the source proves it. In place of any other the record has the
source's own sentences that come nearest, with their speakers, as key points: what a model meant is kept, and what it
made up is not told. Nothing takes the place of a statement that nothing is near, or of what the record says already.

A statement that code has found, or that an earlier record names with its messages, needs no proof, and goes if a later
message gave another value to what it says. A narrative is judged sentence by sentence for what contradicts its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from abridged.service.domain.message import Role
from abridged.service.extraction.cues import asks, is_decision, leaves_open
from abridged.service.extraction.passages import cleaned, line_of, speaker_of
from abridged.service.extraction.replaced import superseding
from abridged.service.extraction.talk import said_by
from abridged.service.grounding.draft import Problem, ProblemCode
from abridged.service.grounding.polarity import contradicting
from abridged.service.grounding.roles import decides, only_proposed
from abridged.service.grounding.speakers import said_by_another
from abridged.service.grounding.support import Concordance
from abridged.service.grounding.testimony import Line, Witnessed
from abridged.service.text.identifiers import identifiers
from abridged.service.text.phrases import Phrase, has_phrase
from abridged.service.text.sentences import sentences

KEY_POINTS: Final = "key_points"
"""The list of what is quoted and belongs to no other."""

_Numbers = tuple[int, ...]

_SUPERSEDABLE: Final = frozenset({"decisions", "action_items"})
_NARRATIVE_SENTENCES_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Judged:
    """The statements of a draft, by list.

    Attributes:
        given_way: The items in whose place the source is quoted, by list, with the lines.
        unsupported: The items that nothing in the source is near, or nothing that can be quoted.
        outdated: The items that a later message gives another value.
        quoted: The quoted lines, each once, by the list that it stands in: a line of a decision or of an open point in
            the list of its statement, and any other among the key points.
        rests_on: The messages of all statements that stay and of the quoted lines.
    """

    given_way: Mapping[str, Mapping[str, tuple[str, ...]]]
    unsupported: Mapping[str, frozenset[str]]
    outdated: Mapping[str, frozenset[str]]
    quoted: Mapping[str, tuple[str, ...]]
    rests_on: Mapping[str, _Numbers]

    @property
    def taken_out(self) -> Mapping[str, frozenset[str]]:
        """The items that may not stay, by list."""
        return {
            name: frozenset((*given_way, *self.unsupported[name], *self.outdated[name]))
            for name, given_way in self.given_way.items()
        }

    def removed(self, told: str) -> Iterator[Problem]:
        """The reasons why items that a model wrote are not in a record that says what is `told`: lists, counts and
        message numbers, no text."""
        for name, given_way in self.given_way.items():
            standing = [[line for line in lines if said_by(line)[1] in told] for lines in given_way.values()]
            lost = [lines for lines, stand in zip(given_way.values(), standing, strict=True) if not stand]
            for lines, fate in ((list(filter(None, standing)), "gave way to"), (lost, "have no room even for")):
                if lines:
                    of = _messages(self.rests_on[line] for some in lines for line in some)
                    yield Problem(
                        ProblemCode.UNPROVED, f"{name}: {len(lines)} are not proved, and {fate} the words of {of}"
                    )
            if count := len(self.unsupported[name]):
                yield Problem(ProblemCode.NO_EVIDENCE, f"{name}: {count} rest on no message and were taken out")


def judged(
    statements: Mapping[str, Sequence[str]],
    concordance: Concordance,
    rests_on: Mapping[str, _Numbers] = MappingProxyType({}),
    superseded: Mapping[str, int] = MappingProxyType({}),
) -> Judged:
    """The statements, given by list, before what their source says. Statements in `rests_on` rest on these messages,
    and `superseded` are values that no longer hold, with the messages that say so."""
    given_way: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name in statements}
    gone: dict[str, set[str]] = {name: set() for name in statements}
    outdated: dict[str, set[str]] = {name: set() for name in statements}
    places: dict[str, str] = {}
    rests = dict(rests_on)
    for name, texts in statements.items() if not concordance.is_empty else ():
        for text in dict.fromkeys(texts):
            if text in rests_on:
                if _is_outdated(name, text, rests_on[text], concordance, superseded):
                    outdated[name].add(text)
                continue
            testimony = concordance.testimony(text, lambda line: bool(superseding(line, superseded)))
            if testimony.is_proof and not (name == "decisions" and _is_proposal(text, testimony, concordance)):
                rests[text] = testimony.numbers
                continue
            lines = {said: line for line in testimony.lines if (said := quotation(line)[0])}
            if not lines:
                gone[name].add(text)
                continue
            given_way[name][text] = tuple(lines)
            for said, line in lines.items():
                rests.setdefault(said, line.passage.numbers)
                if _is_of(name, line.text):
                    places[said] = name
                places.setdefault(said, KEY_POINTS)
    return Judged(
        given_way,
        {name: frozenset(texts) for name, texts in gone.items()},
        {name: frozenset(texts) for name, texts in outdated.items()},
        {name: tuple(said for said, place in places.items() if place == name) for name in {*places.values()}},
        rests,
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
    speaker = speaker_of(line.passage.message) if line.passage.message else ""
    return line_of(" ".join(cleaned(line.text).split()), speaker), line.passage.numbers


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
        match concordance.once(_fault, sentence):
            case ProblemCode.OPPOSITE, against:
                opposed.append(against)
            case ProblemCode.ONLY_PROPOSED, proposal:
                proposed.append(proposal)
            case ProblemCode.OTHER_SPEAKER, another:
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


def _fault(sentence: str, concordance: Concordance) -> tuple[ProblemCode, _Numbers] | None:
    """The fault of a sentence before its source, and the messages that show it."""
    support = concordance.support(sentence)
    if (against := contradicting(sentence, support, concordance)) is not None:
        return ProblemCode.OPPOSITE, against
    if decides(sentence) and (proposal := only_proposed(sentence, support, concordance)) is not None:
        return ProblemCode.ONLY_PROPOSED, proposal
    if (another := said_by_another(sentence, support, concordance)) is not None:
        return ProblemCode.OTHER_SPEAKER, another
    return None


def _messages(numbers: Iterable[_Numbers]) -> str:
    listed = sorted({number for some in numbers for number in some})
    return f"message {', '.join(map(str, listed))}" if listed else "the earlier summary"
