"""The statements of a draft before its source: what each rests on, and which of them may not stay.

A decision or an action item without support is taken out. The judge also takes out every statement whose source says
the opposite or which names another speaker than its source, every decision that an assistant only proposed, and every
statement of a value that no longer holds. A key point or an open question without support stays, without message
numbers. The narrative is judged as a whole, because only a model can write it again.

A statement that code has found, or that an earlier record names with its messages, rests on these without a search: it
needs no other support, unless a later message gave another value to what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from abridged.service.domain.record import RecordEvidence
from abridged.service.extraction.replaced import superseding
from abridged.service.grounding.draft import Problem, ProblemCode
from abridged.service.grounding.polarity import contradicting
from abridged.service.grounding.roles import decides, only_proposed
from abridged.service.grounding.speakers import said_by_another
from abridged.service.grounding.support import Concordance, Support
from abridged.service.text.identifiers import identifiers
from abridged.service.text.phrases import Phrase, has_phrase
from abridged.service.text.sentences import parts_of, sentences

_Numbers = tuple[int, ...]

_NEEDS_SUPPORT: Final = frozenset({"decisions", "action_items"})
_OPPOSABLE: Final = frozenset({"key_points", "decisions", "action_items"})
_NARRATIVE_SENTENCES_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Judged:
    """The statements of a draft, by list.

    Attributes:
        taken_out: The items that may not stay.
        evidence: The messages that the others rest on.
        unsupported: The number of all items that rest on no message.
        removed: Why items were taken out: lists, counts and message numbers, no text.
    """

    taken_out: Mapping[str, frozenset[str]]
    evidence: RecordEvidence
    unsupported: int
    removed: tuple[Problem, ...]


@dataclass(slots=True)
class _List:
    taken_out: set[str] = field(default_factory=set)
    numbers: list[_Numbers] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    opposed: list[_Numbers] = field(default_factory=list)
    proposed: list[_Numbers] = field(default_factory=list)
    by_others: list[_Numbers] = field(default_factory=list)
    outdated: list[_Numbers] = field(default_factory=list)


def judged(
    statements: Mapping[str, Sequence[str]],
    concordance: Concordance,
    rests_on: Mapping[str, _Numbers] = MappingProxyType({}),
    superseded: Mapping[str, int] = MappingProxyType({}),
) -> Judged:
    """The statements, given by list, before what their source says. Statements in `rests_on` rest on these messages,
    and `superseded` are values that no longer hold, with the messages that say so."""
    lists = {name: _judged_list(name, texts, concordance, rests_on, superseded) for name, texts in statements.items()}
    removed = [problem for name, found in lists.items() for problem in _removals(name, found)]
    evidence = RecordEvidence(
        **{name: tuple(found.numbers) if any(found.numbers) else () for name, found in lists.items()}
    )
    unsupported = sum(len(found.unsupported) + found.numbers.count(()) for found in lists.values())
    return Judged(
        {name: frozenset(found.taken_out) for name, found in lists.items()},
        evidence,
        unsupported,
        tuple(removed),
    )


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


def _judged_list(
    name: str,
    texts: Sequence[str],
    concordance: Concordance,
    rests_on: Mapping[str, _Numbers],
    superseded: Mapping[str, int],
) -> _List:
    found = _List()
    for text in texts:
        support, known = concordance.support(text), rests_on.get(text, ())
        if name in _NEEDS_SUPPORT and not support.supported and not concordance.is_empty:
            if known and not _is_replaced(text, known, support):
                found.numbers.append(known)
                continue
            # What no model wrote is no fault of its answer.
            found.unsupported.extend(() if known else (text,))
        elif name in _OPPOSABLE and (against := contradicting(text, support, concordance)) is not None:
            found.opposed.append(against)
        elif _is_decision(name, text) and (proposal := only_proposed(text, support, concordance)) is not None:
            found.proposed.append(proposal)
        elif name in _OPPOSABLE and (another := said_by_another(text, support, concordance)) is not None:
            found.by_others.append(another)
        elif name in _OPPOSABLE and (later := superseding(text, superseded)):
            found.outdated.append((later,))
        else:
            found.numbers.append(known or support.numbers)
            continue
        found.taken_out.add(text)
    return found


def _is_replaced(text: str, numbers: _Numbers, support: Support) -> bool:
    """Return whether a message after these gives another value to what a statement says."""
    later = (heard for heard in support.heard if max(heard.passages[0].numbers, default=0) > max(numbers))
    return any(
        corrects(sentence, text) for heard in later for passage in heard.passages for sentence in parts_of(passage.text)
    )


def _is_decision(name: str, text: str) -> bool:
    return name == "decisions" or (name == "key_points" and decides(text))


def _removals(name: str, found: _List) -> Iterator[Problem]:
    if found.unsupported:
        count = len(found.unsupported)
        yield Problem(ProblemCode.NO_EVIDENCE, f"{name}: {count} rest on no message and were taken out")
    if found.opposed:
        yield Problem(
            ProblemCode.OPPOSITE, f"{name}: {len(found.opposed)} say the opposite of {_messages(found.opposed)}"
        )
    if found.proposed:
        count = len(found.proposed)
        yield Problem(ProblemCode.ONLY_PROPOSED, f"{name}: {count} were only proposed, in {_messages(found.proposed)}")
    if found.outdated:
        count = len(found.outdated)
        yield Problem(
            ProblemCode.OUTDATED, f"{name}: {count} have a value for which {_messages(found.outdated)} has another"
        )
    if found.by_others:
        count = len(found.by_others)
        yield Problem(
            ProblemCode.OTHER_SPEAKER, f"{name}: {count} name another speaker than {_messages(found.by_others)}"
        )


def _messages(numbers: Iterable[_Numbers]) -> str:
    listed = sorted({number for some in numbers for number in some})
    return f"message {', '.join(map(str, listed))}" if listed else "the earlier summary"
