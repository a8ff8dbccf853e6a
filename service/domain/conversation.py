"""A conversation's state, as the fold of its events leaves it, and what can be looked up in it.

Token counts are kept as they were counted; the calibration
factor is applied to their sum, so that one usage report corrects the whole window at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from service.domain.events import (
    ErrorClass,
    MessageAppended,
    PassPlan,
    Rating,
    ResultMark,
    Settings,
    SkipReason,
    Trigger,
)
from service.domain.policy import wait_s
from service.domain.ranges import merged
from service.domain.record import MessageRange, SummaryRecord
from service.domain.sequence import Sequence
from service.domain.tokens import TokenSource, calibrated_tokens

__all__ = [
    "Conversation",
    "EndedPass",
    "LastSummarization",
    "ShownRecord",
    "current_id",
    "initial_state",
    "lineage",
    "live_coverage",
    "next_remake",
    "record_named",
]

REMAKES_MAX = 2
"""How often a model is asked to make a stand-in's record anew before the stand-in stays."""


@dataclass(frozen=True, slots=True)
class EndedPass:
    """A pass that is over, one way or another. Of `record_id`, `error_class` and `skip_reason` exactly one is set, or
    none if it `cleared` tool results.

    `cause` and `asked` say more of an `error_class`, as in SummarizationFailed; `tried` names the models turned to.
    """

    plan: PassPlan
    requested_us: int
    ended_us: int
    attempts: int
    record_id: str = ""
    fallback: bool = False
    error_class: ErrorClass | None = None
    retryable: bool = False
    skip_reason: SkipReason | None = None
    cause: str = ""
    asked: bool = False
    tried: tuple[str, ...] = ()
    cleared: bool = False


@dataclass(frozen=True, slots=True)
class LastSummarization:
    """What the last completed pass found when it was requested; a remake is not one of them."""

    depth: int
    message_count: int
    token_ratio: float


class ShownRecord(NamedTuple):
    """A record in the window. `source` is who counted its tokens."""

    record: SummaryRecord
    source: TokenSource


class Conversation(NamedTuple):
    """What is known of a conversation after `event_version` events.

    What a message changes comes first, up to `messages_since_pass`. `window` holds the messages in the window;
    `exact_tokens` and `estimated_tokens` are the sums of their counts. `shown` are the records beside them, ordered by
    what they cover. `original_tokens` sums every message ever appended but system messages. Times are microseconds.

    `fallback_ids` names the records that stand in for a model's, `remakes` says how often a model was asked in vain to
    make one of them anew, and `successors` which record has taken the place of another.

    `epoch` counts how often something else than a new message changed the window. `pins` has the numbers of the
    messages that no pass covers, `removed` those that a rewind took out, `revoked` the records out of use, which
    `records` no longer has; `went_back_at` is the message version at the last such change. After a revocation
    `redo_due` says that the range waits for no cooldown. `sources` is who counted each record's tokens,
    `marks` has the lines that took the place of tool results, by number.
    """

    event_version: int = 0
    updated_us: int = 0
    message_version: int = 0
    window: Sequence[MessageAppended] = Sequence()
    chat_messages: int = 0
    exact_tokens: int = 0
    estimated_tokens: int = 0
    original_tokens: int = 0
    messages_since_pass: int = 0
    id: str = ""
    settings: Settings = Settings()
    created_us: int = 0
    records: Sequence[SummaryRecord] = Sequence()
    shown: tuple[ShownRecord, ...] = ()
    fallback_ids: frozenset[str] = frozenset()
    remakes: Mapping[str, int] = MappingProxyType({})
    successors: Mapping[str, str] = MappingProxyType({})
    pending: PassPlan | None = None
    pending_since_us: int = 0
    claims: int = 0
    passes: Sequence[EndedPass] = Sequence()
    completed_passes: int = 0
    lowest_ratio_since_pass: float = 0.0
    last_summarization: LastSummarization | None = None
    failures_in_row: int = 0
    wait_until_version: int = 0
    wait_until_us: int = 0
    irreducible_said_at: int | None = None
    depth_limit_said: bool = False
    usage_reports: int = 0
    usage_reported_at: int = 0
    epoch: int = 0
    went_back_at: int = 0
    redo_due: bool = False
    pins: frozenset[int] = frozenset()
    removed: tuple[MessageRange, ...] = ()
    revoked: Sequence[SummaryRecord] = Sequence()
    sources: Mapping[str, TokenSource] = MappingProxyType({})
    ratings: Mapping[str, Rating] = MappingProxyType({})
    marks: Mapping[int, ResultMark] = MappingProxyType({})

    @property
    def is_open(self) -> bool:
        """Whether the conversation exists."""
        return self.event_version > 0

    @property
    def due_pass(self) -> PassPlan | None:
        """The pending pass, unless it is a remake: nothing waits for one, and one is in nothing's way."""
        return None if self.pending is None or self.pending.trigger is Trigger.REMAKE else self.pending

    @property
    def chat_messages_ever(self) -> int:
        """Every message of the conversation as it stands but system messages, which no record covers."""
        removed = sum(len(r) for r in self.removed)
        return self.message_version - removed - (len(self.window) - self.chat_messages)

    @property
    def live(self) -> SummaryRecord | None:
        """The newest of the records that the window shows."""
        return self.shown[-1].record if self.shown else None

    @property
    def window_tokens(self) -> int:
        """What the window costs: messages and records, estimates corrected."""
        exact, estimated = self.exact_tokens, self.estimated_tokens
        for record, source in self.shown:
            if source is TokenSource.ESTIMATE:
                estimated += record.tokens_after
            else:
                exact += record.tokens_after
        return exact + calibrated_tokens(estimated, self.settings.calibration_factor)

    @property
    def budget(self) -> int:
        """Context length without what is kept for the answer; at least 1."""
        return self.settings.budget

    @property
    def ratio(self) -> float:
        """How full the window is: (window + overhead) / budget."""
        return (self.window_tokens + self.settings.overhead_tokens) / self.budget

    def waiting(self, now_us: int) -> bool:
        """Whether failures hold the next model call back: until enough messages or enough time have passed.

        A clock that was set back to before the wait's beginning says nothing of its end: then it is over.
        """
        if not self.failures_in_row or self.message_version >= self.wait_until_version:
            return False
        began_us = self.wait_until_us - wait_s(self.failures_in_row) * 1_000_000
        return began_us <= now_us < self.wait_until_us


def initial_state() -> Conversation:
    """A conversation that does not exist yet."""
    return Conversation()


def record_named(state: Conversation, record_id: str) -> SummaryRecord | None:
    """The record with this id, newest first since those are asked for most."""
    return next((r for r in reversed(state.records) if r.id == record_id), None)


def lineage(state: Conversation) -> tuple[SummaryRecord, ...]:
    """The records that are shown, each with the ancestors that it stands on, newest first; a remade record in its
    predecessor's place.
    """
    found: list[SummaryRecord] = []
    for shown in reversed(state.shown):
        record: SummaryRecord | None = shown.record
        while record is not None:
            found.append(record)
            # A record at depth 0 stands alone, also one from before there was a field that says so.
            alone = record.stands_alone or record.depth == 0
            record = None if alone else record_named(state, current_id(state, record.parent_id))
    return tuple(found)


def current_id(state: Conversation, record_id: str) -> str:
    """The id of the record that stands in the place of the one named: its own, or that of the one that remade it."""
    return state.successors.get(record_id, record_id)


def next_remake(state: Conversation) -> SummaryRecord | None:
    """The oldest record of the live chain that stands in for a model's and may still be made anew."""
    if not state.fallback_ids:
        return None
    for record in reversed(lineage(state)):
        if record.id in state.fallback_ids and state.remakes.get(record.id, 0) < REMAKES_MAX:
            return record
    return None


def live_coverage(state: Conversation) -> tuple[MessageRange, ...]:
    """The messages that the records in the window and their ancestors stand for."""
    return merged(r for record in lineage(state) for r in record.covered)
