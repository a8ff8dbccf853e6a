"""The summary record, which a pass commits, and its limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice, repeat
from statistics import fmean, pvariance

from abridged.service.domain.message import Message, Role
from abridged.service.text.sentences import parts_of

KEY_POINTS_MAX = 30
PARTICIPANTS_MAX = 20
DECISIONS_MAX = 20
ACTION_ITEMS_MAX = 20
UNRESOLVED_MAX = 20
DOMAIN_ENTITIES_MAX = 60
STRING_CHARS_MAX = 1_000
SUMMARY_CHARS_MAX = 16_000
EVIDENCE_MAX = 3
"""Messages that a statement names as its evidence."""

FIGURE_NAMES_MAX = 64
"""Flows, and tools, that an episode lists."""


class FormName(StrEnum):
    """The form in which a model writes a record; `service.summarizer.forms` has the prompts and schema of each."""

    FACETS = "facets"
    TEXT = "text"
    EPISODE = "episode"
    DIGEST = "digest"


class Provenance(StrEnum):
    """The way in which a record was made."""

    MODEL = "model"
    EXTRACTIVE = "extractive"
    MERGED = "merged"
    REBASED = "rebased"


@dataclass(frozen=True, slots=True)
class MessageRange:
    """Messages `first` to `last`, both included, by their number in the conversation (1 is the first message)."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class ActionItem:
    """Something to do. `owner` and `due` are empty if the conversation does not say."""

    task: str
    owner: str = ""
    due: str = ""

    @property
    def text(self) -> str:
        """Task, owner and due date in one line."""
        return " ".join(filter(None, (self.task, self.owner, self.due)))


@dataclass(frozen=True, slots=True)
class RecordContext:
    """The structured facets of a summary; each is empty if the conversation has none.

    `raw` is JSON by an operator's own schema, as text; it is not part of the window.
    """

    participants: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    action_items: tuple[ActionItem, ...] = ()
    unresolved: tuple[str, ...] = ()
    domain_entities: tuple[str, ...] = ()
    raw: str = ""


@dataclass(frozen=True, slots=True)
class RecordEvidence:
    """The messages that each statement of a record rests on: for each list, as many tuples as it has items, in order.

    A tuple has up to EVIDENCE_MAX message numbers, ascending; none if the statement has no support. A list without any
    support has no tuples. `summary` has a tuple for each sentence of the narrative, so that a later record which takes
    one over inherits its messages.
    """

    key_points: tuple[tuple[int, ...], ...] = ()
    decisions: tuple[tuple[int, ...], ...] = ()
    action_items: tuple[tuple[int, ...], ...] = ()
    unresolved: tuple[tuple[int, ...], ...] = ()
    summary: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordQuality:
    """The figures of the checks.

    Attributes:
        identifier_survival: Share of the required identifiers that the record keeps, 0 to 1.
        unsupported_claims: Invented identifiers that were removed from the draft.
        unsupported_statements: Statements of the draft that no message is near, and that were removed.
        reduction: Share of the replaced tokens that the record saves.
        all_identifier_survival: Share of all identifiers that the record keeps, 0 to 1.
    """

    identifier_survival: float = 1.0
    unsupported_claims: int = 0
    reduction: float = 0.0
    all_identifier_survival: float = 1.0
    unsupported_statements: int = 0


@dataclass(frozen=True, slots=True)
class EpisodeFigures:
    """The figures of an episode, from the hints of its messages.

    Mean and variance (of the whole, not of a sample) are of the `sentiment_messages` user messages that have a
    sentiment, and None without one. Flows and tools come in order of first appearance.
    """

    sentiment_messages: int = 0
    sentiment_mean: float | None = None
    sentiment_variance: float | None = None
    flows: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SummaryRecord:
    """A validated summary of the `covered` messages.

    Attributes:
        id: The record's id.
        create_time_us: The time at which it was made, in microseconds since the epoch.
        depth: The record's place in the chain, from 0.
        parent_id: The record before it in the chain.
        summary: The narrative.
        key_points: The key points.
        context: The structured facets.
        covered: The messages that it covers, in ascending ranges.
        tokens_before: Tokens that it replaces in the window: older records and messages.
        tokens_after: The record's tokens as rendered.
        model: The maker, as `provider:model`.
        prompt_name: The template's name.
        prompt_version: The template's version.
        provenance: The way in which it was made.
        attempts: Model calls of its pass.
        latency_ms: Milliseconds that making it took.
        tokens_read: Tokens that the model calls read, as their servers counted.
        tokens_written: Tokens that they wrote.
        quality: The figures of the checks.
        covered_tokens: Tokens to read the covered messages again.
        rewrites: The number of records that the oldest part of the text has passed through since its originals were
            read; 0 if it was made from originals alone.
        stands_alone: True if it covers everything outside the window, so that its ancestors are only kept for audit.
        label: A short name for people; empty if the profile gives none.
        short_summary: An episode in one or two sentences; empty for records with one text.
        short_tokens: The record's tokens as rendered with `short_summary`; 0 without one.
        episode: The figures of an episode; None for other records.
        evidence: The messages that its statements rest on.
        left_out: The number of messages that its text stands for, in a window with room to say how to reach them; else
            0.
    """

    id: str
    create_time_us: int
    depth: int
    parent_id: str
    summary: str
    key_points: tuple[str, ...]
    context: RecordContext
    covered: tuple[MessageRange, ...]
    tokens_before: int
    tokens_after: int
    model: str
    prompt_name: str
    prompt_version: str
    provenance: Provenance
    attempts: int
    latency_ms: int
    quality: RecordQuality = RecordQuality()
    covered_tokens: int = 0
    rewrites: int = 0
    stands_alone: bool = False
    label: str = ""
    short_summary: str = ""
    short_tokens: int = 0
    episode: EpisodeFigures | None = None
    evidence: RecordEvidence = RecordEvidence()
    tokens_read: int = 0
    tokens_written: int = 0
    left_out: int = 0

    @property
    def covered_count(self) -> int:
        return sum(len(r) for r in self.covered)


def statements_of(record: SummaryRecord) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The statements of a record with the messages that each rests on."""
    context, evidence = record.context, record.evidence
    listed = (
        (record.key_points, evidence.key_points),
        (context.decisions, evidence.decisions),
        (tuple(item.text for item in context.action_items), evidence.action_items),
        (context.unresolved, evidence.unresolved),
    )
    return tuple(pair for texts, numbers in listed for pair in zip(texts, chain(numbers, repeat(())), strict=False))


def narrative_of(record: SummaryRecord) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The sentences of a record's narrative with the messages that each rests on.

    A narrative that has no evidence, or not as many tuples as sentences, comes whole and rests on no message.
    """
    parts = tuple(parts_of(record.summary))
    numbers = record.evidence.summary
    return tuple(zip(parts, numbers, strict=True)) if len(parts) == len(numbers) else ((record.summary, ()),)


def figures_of(messages: Sequence[Message]) -> EpisodeFigures:
    """The figures of an episode of these messages."""
    said = [m.sentiment for m in messages if m.role is Role.USER and m.sentiment is not None]
    return EpisodeFigures(
        sentiment_messages=len(said),
        sentiment_mean=fmean(said) if said else None,
        sentiment_variance=pvariance(said) if said else None,
        flows=_once(flow for m in messages for flow in m.flows),
        tools=_once(tool for m in messages for tool in (*m.tools, *(call.name for call in m.tool_calls))),
    )


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(dict.fromkeys(names), FIGURE_NAMES_MAX))
