"""A conversation's state, as the fold of its events leaves it, and look-ups in it.

Token counts are stored uncorrected. The calibration factor applies to their sum, so a usage report corrects the whole
window at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from abridged.service.domain.events import (
    ErrorClass,
    MessageAppended,
    PassPlan,
    Rating,
    ResultMark,
    Settings,
    SkipReason,
    Trigger,
)
from abridged.service.domain.ledger import Ledger
from abridged.service.domain.policy import wait_s
from abridged.service.domain.ranges import merged
from abridged.service.domain.receipt import Receipt
from abridged.service.domain.record import MessageRange, SummaryRecord
from abridged.service.domain.redaction import NO_REDACTION, Redaction
from abridged.service.domain.rules import NO_RULES, Rules
from abridged.service.domain.sequence import Sequence
from abridged.service.domain.tokens import TokenSource, calibrated_tokens

REMAKES_MAX = 2
"""Attempts of a model to replace a fallback record before that record stays."""


@dataclass(frozen=True, slots=True)
class EndedPass:
    """A pass that has ended. Exactly one of `record_id`, `error_class`, `skip_reason` and `cleared` is set.

    Attributes:
        plan: The plan of the pass.
        requested_us: The time at which it was requested.
        ended_us: The time at which it ended.
        attempts: Model calls that it made.
        record_id: The record that it committed.
        fallback: True if that is a fallback record.
        error_class: Why it failed.
        retryable: True if a retry can help after a failure.
        skip_reason: Why it was skipped.
        cause: The failure in our own words, as in SummarizationFailed.
        asked: True if any call reached a model before the failure.
        tried: The models that it turned to, in order, as `provider:model`.
        cleared: True if it cleared tool results and needed no record.
        receipt: The places of everything that left the window; None if nothing was committed, or before there were
            receipts.
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
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True)
class LastSummarization:
    """The last completed pass that was not a remake, as of its trigger.

    Attributes:
        depth: Depth of its record.
        message_count: Messages of the conversation.
        token_ratio: The ratio.
    """

    depth: int
    message_count: int
    token_ratio: float


class Ancestor(NamedTuple):
    """A conversation that a fork began as: its messages up to number `message_version` are in the stream of
    `conversation_id`, among the first `event_version` events."""

    conversation_id: str
    event_version: int
    message_version: int


class ShownRecord(NamedTuple):
    """A record in the window, who counted its tokens, and whether its short text is shown."""

    record: SummaryRecord
    source: TokenSource
    short: bool = False

    @property
    def tokens(self) -> int:
        """The tokens that it takes as it is shown, as it was counted."""
        return self.record.short_tokens if self.short else self.record.tokens_after


class Conversation(NamedTuple):
    """A conversation after `event_version` events. Times are in microseconds since the epoch.

    The fields that an appended message changes come first, up to `messages_since_pass`: the fold relies on it.

    Attributes:
        event_version: Events in the stream.
        updated_us: The time at which the last event was written.
        used_us: The time of the last one that a caller caused: passes, titles and purges write the others.
        message_version: Messages ever appended, and the number of the newest.
        window: Messages in the window, in order.
        chat_messages: The number of them that are not system messages.
        exact_tokens: Sum of their exact counts.
        estimated_tokens: Sum of their estimates, uncorrected.
        original_tokens: Sum of the counts of every message ever appended, system messages excluded.
        messages_since_pass: Messages since the last completed pass.
        id: The conversation's id.
        settings: The conversation's settings, resolved.
        created_us: The time at which it was opened.
        records: Records in use, in the order of their commits.
        shown: Records in the window, in the order of what they cover.
        fallback_ids: Records that stand in for a model's.
        remakes: The number of failed remakes of a fallback record, by its id.
        successors: The record that replaced another, by the replaced one's id.
        pending: The plan of the pending pass.
        pending_since_us: The time at which that was requested.
        claims: The number of times that it was claimed.
        claim_token: The version of the newest claim's event; 0 for none, and after that claim was given back.
        claim_owner: The process that made it.
        passes: Passes that have ended, in order.
        completed_passes: Completed passes that were not remakes.
        lowest_ratio_since_pass: Lowest ratio since the last of them.
        last_summarization: The last of them, as of its trigger.
        failures_in_row: Passes that failed or gained nothing since the last success.
        wait_until_version: Message version that ends the wait after failures.
        wait_until_us: Time that ends it; 0 for no wait.
        irreducible_said_at: Message version at which IRREDUCIBLE was reported for this window.
        depth_limit_said: True if DEPTH_LIMIT was reported for it.
        usage_reports: Usage reports of the model that taught the calibration factor at the last one of this
            conversation.
        usage_reported_at: Message version of the newest.
        epoch: The number of times that something other than a new message has changed the window.
        went_back_at: Message version at the last revocation, rewind, pin or unpin.
        redo_due: True if a revocation lets the next pass ignore the cooldown.
        pins: Numbers of the messages that no pass covers.
        removed: Messages that a rewind removed.
        revoked: Revoked records, which `records` no longer has.
        sources: The source of a record's token count, by its id.
        ratings: Users' ratings, by record id.
        marks: The lines in place of cleared tool results, by message number.
        title: The title that a model gave, whatever the client has set.
        closed: True if it takes no messages and no passes.
        ledger: The identifiers of what has left the window.
        ancestors: The conversations that it was forked from, nearest first.
        rules: Its standing rules.
        erased: Whether it was erased; it has no other content then.
        purge_due: Version of the newest event that took out something which the files may still have; 0 for none.
        redaction: Its redacted messages, and the records that were made of them.
        archive_file: The name of the file that has its contents; empty unless it is archived. An archived conversation
            has labels and a title, and no other content.
        before_archiving: The state before it was archived, if the events that led to it are still whole; else None.
    """

    event_version: int = 0
    updated_us: int = 0
    used_us: int = 0
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
    claim_token: int = 0
    claim_owner: str = ""
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
    title: str = ""
    closed: bool = False
    ledger: Ledger = Ledger()
    ancestors: tuple[Ancestor, ...] = ()
    rules: Rules = NO_RULES
    erased: bool = False
    purge_due: int = 0
    redaction: Redaction = NO_REDACTION
    archive_file: str = ""
    before_archiving: Conversation | None = None

    @property
    def is_blanked(self) -> bool:
        """True if the events so far were erased or archived, and the one that says so is still to come."""
        return self.is_open and not self.id

    @property
    def is_open(self) -> bool:
        """True if the conversation exists; a closed one does."""
        return self.event_version > 0

    @property
    def due_pass(self) -> PassPlan | None:
        """The pending pass, unless it is a remake: nothing waits for that."""
        return None if self.pending is None or self.pending.trigger is Trigger.REMAKE else self.pending

    @property
    def chat_messages_ever(self) -> int:
        """The number of its messages, without system messages and removed ones."""
        removed = sum(len(r) for r in self.removed)
        return self.message_version - removed - (len(self.window) - self.chat_messages)

    @property
    def shown_title(self) -> str:
        """The client's title, else a model's, else none."""
        return self.settings.title or self.title

    @property
    def live(self) -> SummaryRecord | None:
        """The newest record in the window."""
        return self.shown[-1].record if self.shown else None

    @property
    def window_tokens(self) -> int:
        """Tokens of the window: messages, records, rules and ledger, estimates corrected."""
        exact, estimated = self.uncorrected_tokens
        return exact + calibrated_tokens(estimated, self.settings.calibration_factor)

    @property
    def uncorrected_tokens(self) -> tuple[int, int]:
        """The window's exact tokens and its estimated ones: of messages, records, rules and ledger."""
        exact, estimated = self.exact_tokens, self.estimated_tokens
        parts: tuple[ShownRecord | Rules | Ledger, ...] = (*self.shown, self.rules, self.ledger)
        for part in parts:
            if part.source is TokenSource.ESTIMATE:
                estimated += part.tokens
            else:
                exact += part.tokens
        return exact, estimated

    @property
    def budget(self) -> int:
        """Context length minus reserved output; at least 1."""
        return self.settings.budget

    @property
    def ratio(self) -> float:
        """The fill of the window: (window + overhead) / budget."""
        return (self.window_tokens + self.settings.overhead) / self.budget

    def waiting(self, now_us: int) -> bool:
        """Return whether failures still hold back the next model call: until enough messages or enough time have
        passed.

        The wait is over if the clock was set back to before it began. A closed conversation never waits.
        """
        if self.closed or not self.failures_in_row or self.message_version >= self.wait_until_version:
            return False
        began_us = self.wait_until_us - wait_s(self.failures_in_row) * 1_000_000
        return began_us <= now_us < self.wait_until_us


class Holding(NamedTuple):
    """The messages of a conversation that one stream has: numbers, and at least how many events the stream has."""

    conversation_id: str
    numbers: MessageRange
    head: int


def events_before(state: Conversation) -> int:
    """Events that led to the state, of its own stream and of those of its ancestors."""
    return state.event_version + sum(ancestor.event_version for ancestor in state.ancestors)


def holdings(conversation_id: str, ancestors: Iterable[Ancestor], *, head: int = 0) -> tuple[Holding, ...]:
    """The places of a conversation's messages: the streams of its ancestors, the oldest first, and its own."""
    found: list[Holding] = []
    first = 1
    for ancestor in reversed(tuple(ancestors)):
        last = ancestor.message_version
        if last >= first:
            found.append(Holding(ancestor.conversation_id, MessageRange(first, last), ancestor.event_version))
            first = last + 1
    return (*found, Holding(conversation_id, MessageRange(first, sys.maxsize), head))


def initial_state() -> Conversation:
    """A conversation that does not exist yet."""
    return Conversation()


def record_named(state: Conversation, record_id: str) -> SummaryRecord | None:
    """The record in use with this id. Searches from the newest, which is asked for most."""
    return next((r for r in reversed(state.records) if r.id == record_id), None)


def lineage(state: Conversation) -> tuple[SummaryRecord, ...]:
    """The records in the window, each followed by its ancestors, newest first; a remake takes the place of what it
    replaced."""
    found: list[SummaryRecord] = []
    for shown in reversed(state.shown):
        record: SummaryRecord | None = shown.record
        while record is not None:
            found.append(record)
            # A record at depth 0 stands alone, even one from before `stands_alone` existed.
            alone = record.stands_alone or record.depth == 0
            record = None if alone else record_named(state, current_id(state, record.parent_id))
    return tuple(found)


def current_id(state: Conversation, record_id: str) -> str:
    """The id of the record that now stands in the place of the named one: its own, or its remake's."""
    return state.successors.get(record_id, record_id)


def next_remake(state: Conversation) -> SummaryRecord | None:
    """The oldest fallback record of the live chain that may still be remade; none of a closed conversation's."""
    if state.closed or not state.fallback_ids:
        return None
    for record in reversed(lineage(state)):
        if record.id in state.fallback_ids and state.remakes.get(record.id, 0) < REMAKES_MAX:
            return record
    return None


def live_coverage(state: Conversation) -> tuple[MessageRange, ...]:
    """The messages that the records in the window and their ancestors cover."""
    return merged(r for record in lineage(state) for r in record.covered)
