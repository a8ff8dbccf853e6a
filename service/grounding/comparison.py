"""Compares a draft with what it is made from: its source, the previous record, and the record that it would replace.

A decoder bound to a schema makes any text valid JSON. A summary must be about this conversation, about more than its
beginning, and keep what was known. Each floor is a field of the policy; 0 disables it. Problems contain names and
counts, never text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from abridged.service.domain.policy import Policy
from abridged.service.domain.record import SummaryRecord
from abridged.service.grounding.claims import survival
from abridged.service.grounding.draft import Problem, ProblemCode
from abridged.service.grounding.ground import Ground
from abridged.service.text.identifiers import Identifier
from abridged.service.text.scripts import LETTERS, SOUTHEAST
from abridged.service.text.words import known_share, word_keys

_REQUIRED_MIN: Final = 16
"""The absence of fewer required identifiers proves nothing."""

_WITHOUT_NAMES: Final = 0.1

_INSTRUCTION_SHARE_MAX: Final = 0.5
_INSTRUCTION_WORDS_MIN: Final = 5

_FORMAT_TALK: Final = re.compile(
    r"\b(?:previous|earlier|last|first|former|my) (?:answer|response|output|attempt|reply|json)\b.{0,60}"
    r"\b(?:accepted|rejected|valid|invalid|corrected|incorrect|error|wrong|cut off|fixed|format|schema)"
    r"|\b(?:corrected|valid|requested|required|whole|complete|following|single|one) json\b"
    r"|\bjson (?:object|format|schema|array|output|response|answer|string)s?\b"
    r"|\b(?:required|requested|specified|given) (?:format|schema|keys|fields)\b"
    r"|\bkey_points\b|\bdomain_entities\b|\baction_items\b|\b(?:short|long)_summary\b",
    re.IGNORECASE | re.DOTALL,
)
_FORMAT_WORDS: Final = re.compile(r"\b(?:json|schema)\b|key_points", re.IGNORECASE)

_DECISION_KEPT: Final = 0.5
_MATTER_KEPT: Final = 0.2
"""Words of a point that a draft must contain to carry it."""

_POINTS_MIN: Final = 2
"""A single point may have become irrelevant; two that vanish together were lost."""

_RUN: Final = 4
"""Units of a run: nobody says four words twice in the same order by chance."""

_UNITS_MIN: Final = 12
"""A shorter text has no room for a loop."""

_UNIT: Final = re.compile(rf"[{SOUTHEAST}{LETTERS}]|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Compared:
    """The other side of a draft's comparison. `required` are the identifiers that it should keep."""

    ground: Ground
    required: tuple[Identifier, ...]
    previous: SummaryRecord | None
    replaces: SummaryRecord | None
    said_of_format: bool
    instruction_keys: frozenset[str]

    @classmethod
    def of(
        cls,
        ground: Ground,
        *,
        required: tuple[Identifier, ...],
        previous: SummaryRecord | None,
        replaces: SummaryRecord | None,
        source: str,
        instructions: str,
    ) -> Compared:
        """The other side of a comparison; `source` is all that was said, as one text."""
        return cls(
            ground=ground,
            required=required,
            previous=previous,
            replaces=replaces,
            said_of_format=_FORMAT_WORDS.search(source) is not None,
            instruction_keys=word_keys(instructions) - ground.said,
        )


def compared(
    texts: Mapping[str, Sequence[str]],
    beside: Compared,
    policy: Policy,
    *,
    kept: Mapping[str, Sequence[str]],
) -> tuple[Problem, ...]:
    """Every problem that shows only in comparison with `beside`, for a draft given as texts by field.

    `kept` is the draft with the statements that code keeps beside it: what these hold is not lost.
    """
    parts = [text for field in texts.values() for text in field if text]
    own = "\n".join(parts)
    whole = "\n".join(text for field in kept.values() for text in field if text)
    keys = word_keys(whole)
    return (
        *_loop_problems(parts, policy),
        *_format_problems(own, beside),
        *_ground_problems(own, beside, policy),
        *_coverage_problems(keys, beside, policy),
        *_identifier_problems(whole, beside, policy),
        *_carried_problems(keys, beside, policy),
        *_remake_problems(keys, whole, beside, policy),
    )


def record_texts(record: SummaryRecord) -> tuple[str, ...]:
    context = record.context
    return (
        record.summary,
        *record.key_points,
        *context.decisions,
        *(" ".join((item.task, item.owner, item.due)) for item in context.action_items),
        *context.unresolved,
        *context.participants,
        *context.domain_entities,
    )


def compared_short(text: str, beside: Compared, policy: Policy) -> tuple[Problem, ...]:
    """The problems of a text of one or two sentences, which cannot speak of every part of its source."""
    problems = (*_loop_problems((text,), policy), *_ground_problems(text, beside, policy))
    return tuple(Problem(problem.code, f"short_summary {problem.detail}") for problem in problems)


def talks_of_format(text: str) -> bool:
    """Return whether a text speaks of JSON, a schema or the keys of an answer."""
    return _FORMAT_TALK.search(text) is not None


def without_loops(texts: Sequence[str], most: float) -> list[str]:
    """The texts without those of which more than this share of the runs occurred before, if all of them loop."""
    if _repetition(texts) <= most:
        return list(texts)
    seen: set[tuple[str, ...]] = set()
    kept: list[str] = []
    for text in texts:
        runs = list(_runs(text))
        if not runs or sum(run in seen for run in runs) <= most * len(runs):
            kept.append(text)
        seen.update(runs)
    return kept


def _loop_problems(parts: Sequence[str], policy: Policy) -> Iterator[Problem]:
    if not policy.max_repetition:
        return
    share = _repetition(parts)
    if share > policy.max_repetition:
        yield Problem(ProblemCode.REPETITION, f"{share:.0%} of the words only repeat what the draft said before")


def _format_problems(whole: str, beside: Compared) -> Iterator[Problem]:
    if not beside.said_of_format and talks_of_format(whole):
        yield Problem(ProblemCode.FORMAT_TALK, "speaks of the answer's format, which the conversation does not")
        return
    copied = known_share(whole, beside.instruction_keys)
    if copied.known >= _INSTRUCTION_WORDS_MIN and copied.share >= _INSTRUCTION_SHARE_MAX:
        yield Problem(ProblemCode.ECHO, "most of its words are those of the instructions, not of the conversation")


def _ground_problems(whole: str, beside: Compared, policy: Policy) -> Iterator[Problem]:
    known = beside.ground.known(whole)
    needed = beside.ground.words_needed(policy.min_shared_words)
    if known.known < needed:
        count = round(known.known)
        yield Problem(
            ProblemCode.GENERIC,
            (f"has only {count}" if count else "names none")
            + f" of the source's own words, and needs {needed}: say what this conversation is about, with its names",
        )
    elif known.total > needed and known.share < _grounded_share_asked(whole, beside, policy):
        yield Problem(
            ProblemCode.UNGROUNDED,
            f"{1 - known.share:.0%} of its words are not in the source: tell what was said, in the same language",
        )


def _grounded_share_asked(whole: str, beside: Compared, policy: Policy) -> float:
    """Asks for more if a draft keeps none of many identifiers: another chat about the same topic shares its words
    too."""
    asked = policy.min_grounded_share
    if asked and len(beside.required) >= _REQUIRED_MIN and not survival(beside.required, whole):
        return min(1.0, asked + _WITHOUT_NAMES)
    return asked


def speaks_of_too_little(texts: Iterable[str], beside: Compared, policy: Policy) -> bool:
    """Return whether texts say nothing new, or speak of too few parts of the source."""
    return any(True for _ in _coverage_problems(word_keys("\n".join(texts)), beside, policy))


def _coverage_problems(keys: frozenset[str], beside: Compared, policy: Policy) -> Iterator[Problem]:
    if not policy.min_coverage:
        return
    if beside.previous and beside.ground.says_nothing_new(keys):
        yield Problem(ProblemCode.UNCHANGED, "tells the earlier summary again and nothing of the new messages")
        return
    coverage = beside.ground.coverage(keys)
    # A record that continues another one shares its room with it.
    if coverage < (policy.min_coverage / 2 if beside.previous else policy.min_coverage):
        parts = len(beside.ground.parts)
        yield Problem(
            ProblemCode.COVERAGE,
            f"speaks of {round(coverage * parts)} of {parts} parts of the source: tell of all of it, the end included",
        )


def _identifier_problems(whole: str, beside: Compared, policy: Policy) -> Iterator[Problem]:
    if not policy.min_identifier_survival or len(beside.required) < _REQUIRED_MIN:
        return
    kept = survival(beside.required, whole)
    if kept < policy.min_identifier_survival:
        total = len(beside.required)
        yield Problem(
            ProblemCode.LOST_IDENTIFIERS,
            f"keeps {round(kept * total)} of {total} identifiers that are still needed: "
            "name the most important ones exactly as they were written",
        )


def _carried_problems(keys: frozenset[str], beside: Compared, policy: Policy) -> Iterator[Problem]:
    for points in _carried_from(beside.previous, keys) if beside.previous else ():
        if points.falls_below(policy.min_carried_share):
            yield Problem(
                ProblemCode.DROPPED,
                f"drops {points.total - points.kept} of {points.total} {points.kind} of the earlier summary "
                "without saying what became of them",
            )


def _remake_problems(keys: frozenset[str], whole: str, beside: Compared, policy: Policy) -> Iterator[Problem]:
    if beside.replaces is None or not policy.min_remake_share:
        return
    replaced = "\n".join(record_texts(beside.replaces))
    share = policy.min_remake_share
    if survival(beside.required, whole) < share * survival(beside.required, replaced):
        yield Problem(
            ProblemCode.WORSE, "keeps fewer of the identifiers that are still needed than the record that it replaces"
        )
    elif beside.ground.coverage(keys) < share * beside.ground.coverage(word_keys(replaced)):
        yield Problem(ProblemCode.WORSE, "speaks of less of the source than the record that it replaces")


@dataclass(frozen=True, slots=True)
class _Carried:
    """`kept` of `total` points of one kind, named by `kind`."""

    kind: str
    kept: int
    total: int

    def falls_below(self, share: float) -> bool:
        """Return whether less than `share` of the points is carried."""
        return self.total >= _POINTS_MIN and self.kept < share * self.total


def _carried_from(previous: SummaryRecord, keys: frozenset[str]) -> tuple[_Carried, ...]:
    """Counts the decisions and open points of `previous` that a draft with the words `keys` carries over."""
    context = previous.context
    tasks = tuple(f"{item.task} {item.owner} {item.due}" for item in context.action_items)
    decisions, open_points = context.decisions, (*context.unresolved, *tasks)
    found = (
        _carried("decisions", decisions, keys, _DECISION_KEPT),
        _carried("open points and action items", open_points, keys, _MATTER_KEPT),
    )
    if all(points.total < _POINTS_MIN for points in found):
        return (_carried("decisions and open points", (*decisions, *open_points), keys, _MATTER_KEPT),)
    return found


def _carried(kind: str, points: Sequence[str], keys: frozenset[str], share: float) -> _Carried:
    kept = sum(known_share(point, keys).share >= share for point in points)
    return _Carried(kind, kept, len(points))


def _repetition(texts: Iterable[str]) -> float:
    """Share of the runs of `texts` that occurred in them before, 0..1; 0.0 if they are too short to tell."""
    seen: set[tuple[str, ...]] = set()
    again = total = units_total = 0
    for text in texts:
        for run in _runs(text):
            again += run in seen
            seen.add(run)
            total += 1
        units_total += len(_UNIT.findall(text))
    return again / total if units_total >= _UNITS_MIN else 0.0


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    """The runs of a text's units; a short text is one run: a list of one item twenty times is a loop too."""
    units = _UNIT.findall(text.casefold())
    size = min(_RUN, len(units))
    for i in range(len(units) - size + 1 if units else 0):
        yield tuple(units[i : i + size])
