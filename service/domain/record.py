"""The summary record: what a pass commits. Its limits are here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "ACTION_ITEMS_MAX",
    "DECISIONS_MAX",
    "DOMAIN_ENTITIES_MAX",
    "KEY_POINTS_MAX",
    "PARTICIPANTS_MAX",
    "STRING_CHARS_MAX",
    "SUMMARY_CHARS_MAX",
    "UNRESOLVED_MAX",
    "ActionItem",
    "FormName",
    "MessageRange",
    "Provenance",
    "RecordContext",
    "RecordQuality",
    "SummaryRecord",
]

KEY_POINTS_MAX = 30
PARTICIPANTS_MAX = 20
DECISIONS_MAX = 20
ACTION_ITEMS_MAX = 20
UNRESOLVED_MAX = 20
DOMAIN_ENTITIES_MAX = 60
STRING_CHARS_MAX = 1_000
SUMMARY_CHARS_MAX = 16_000


class FormName(StrEnum):
    """What a model is asked to write for a record; `service.summarizer.forms` has the prompts and schema of each."""

    FACETS = "facets"


class Provenance(StrEnum):
    """How a record came to be."""

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
    """Something to do. `owner` and `due` are empty when the conversation does not name them."""

    task: str
    owner: str = ""
    due: str = ""


@dataclass(frozen=True, slots=True)
class RecordContext:
    """The structured facets of a summary; empty where the conversation has none."""

    participants: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    action_items: tuple[ActionItem, ...] = ()
    unresolved: tuple[str, ...] = ()
    domain_entities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordQuality:
    """Figures of the checks. Ratios lie in 0..1; `unsupported_claims` counts invented identifiers of the
    draft, which were left out.

    `identifier_survival` is of the identifiers that a reader could need, `all_identifier_survival` of every one.
    """

    identifier_survival: float = 1.0
    unsupported_claims: int = 0
    reduction: float = 0.0
    all_identifier_survival: float = 1.0


@dataclass(frozen=True, slots=True)
class SummaryRecord:
    """A validated summary of `covered` messages.

    `depth` is the place in the chain, 0 first. `tokens_before` counts what the record replaces in the window (older
    summary and dropped messages); `tokens_after` counts the record as it is rendered. `covered_tokens` is what it costs
    to read the covered messages again. `rewrites` counts the records that the oldest part of the text went through
    since its original messages were read: 0 for a record made from originals alone. A `stands_alone` record covers
    everything that has left the window, so its ancestors are kept for audit alone.
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

    @property
    def covered_count(self) -> int:
        """How many messages the record stands for."""
        return sum(len(r) for r in self.covered)
