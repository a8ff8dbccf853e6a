"""A conversation's state, folded from its events: `evolve` is the only way in which it changes.

The same fold serves commands, projections and replay. Token counts are kept as they were counted; the calibration
factor is applied to their sum, so that one usage report corrects the whole window at once.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple, assert_never

from service.domain.events import (
    ConversationOpened,
    ErrorClass,
    Event,
    MessageAppended,
    PassPlan,
    Settings,
    SettingsChanged,
    SkipReason,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationReleased,
    SummarizationRequested,
    SummarizationSkipped,
    SummarizationStarted,
    Trigger,
    UsageReported,
)
from service.domain.message import Role
from service.domain.policy import wait_s
from service.domain.record import MessageRange, SummaryRecord
from service.domain.sequence import Sequence
from service.domain.tokens import TokenSource, calibrated_tokens

__all__ = [
    "Conversation",
    "EndedPass",
    "LastSummarization",
    "ShownRecord",
    "covers",
    "current_id",
    "evolve",
    "fold",
    "initial_state",
    "lineage",
    "live_coverage",
    "merged",
    "next_remake",
    "partitioned",
    "record_named",
    "without",
]

REMAKES_MAX = 2
"""How often a model is asked to make a stand-in's record anew before the stand-in stays."""


@dataclass(frozen=True, slots=True)
class EndedPass:
    """A pass that is over, one way or another. Exactly one of `record_id`, `error_class`, `skip_reason` is set.

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
        """Every message ever appended but system messages, which never leave the window."""
        return self.message_version - (len(self.window) - self.chat_messages)

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


def fold(events: Iterable[tuple[Event, int]], state: Conversation | None = None) -> Conversation:
    """The state after `events`, each with its time in microseconds, from `state` or from the beginning."""
    state = state or initial_state()
    for event, at_us in events:
        state = evolve(state, event, at_us)
    return state


def evolve(state: Conversation, event: Event, at_us: int) -> Conversation:
    """The state after one more event, which was written at `at_us`."""
    if isinstance(event, MessageAppended):
        return _message_appended(state, event, at_us)
    state = _applied(state, event, at_us)._replace(event_version=state.event_version + 1, updated_us=at_us)
    return state._replace(lowest_ratio_since_pass=min(state.lowest_ratio_since_pass, state.ratio))


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


def merged(ranges: Iterable[MessageRange]) -> tuple[MessageRange, ...]:
    """The same messages in ascending ranges that neither touch nor overlap."""
    result: list[MessageRange] = []
    for r in sorted(ranges, key=lambda r: r.first):
        if result and r.first <= result[-1].last + 1:
            result[-1] = MessageRange(result[-1].first, max(result[-1].last, r.last))
        else:
            result.append(r)
    return tuple(result)


def without(ranges: Iterable[MessageRange], taken: Iterable[MessageRange]) -> tuple[MessageRange, ...]:
    """The messages of ascending `ranges` that are not in ascending `taken`; linear in both."""
    result: list[MessageRange] = []
    holes = iter((*taken, MessageRange(sys.maxsize, sys.maxsize)))
    hole = next(holes)
    for r in ranges:
        first = r.first
        while hole.first <= r.last:
            if first < hole.first:
                result.append(MessageRange(first, hole.first - 1))
            first = max(first, hole.last + 1)
            if hole.last > r.last:
                break
            hole = next(holes)
        if first <= r.last:
            result.append(MessageRange(first, r.last))
    return tuple(result)


_CHANGED_BY_A_MESSAGE: Final = 9
"""So many fields of a Conversation, its first ones; a literal, so that the types of the others are known."""

assert Conversation._fields[_CHANGED_BY_A_MESSAGE - 1] == "messages_since_pass", "what a message changes comes first"

_RareEvent = (
    ConversationOpened
    | SettingsChanged
    | UsageReported
    | SummarizationRequested
    | SummarizationStarted
    | SummarizationReleased
    | SummarizationCompleted
    | SummarizationFailed
    | SummarizationSkipped
)


def _applied(state: Conversation, event: _RareEvent, at_us: int) -> Conversation:
    match event:
        case ConversationOpened():
            return state._replace(id=event.conversation_id, settings=event.settings, created_us=at_us)
        case SettingsChanged():
            state = _may_speak_again(state) if _bears_on_passes(state.settings, event.settings) else state
            return state._replace(settings=event.settings)
        case UsageReported():
            return state._replace(
                settings=replace(state.settings, calibration_factor=event.calibration_factor),
                usage_reports=state.usage_reports + 1,
                usage_reported_at=event.message_version,
            )
        case SummarizationRequested():
            return state._replace(pending=event.plan, pending_since_us=at_us, claims=0)
        case SummarizationStarted():
            return state._replace(claims=event.claim)
        case SummarizationReleased():
            return state._replace(claims=max(0, state.claims - 1))
        case SummarizationCompleted():
            return _completed(state, event, at_us)
        case SummarizationFailed():
            return _failed(state, event, at_us)
        case SummarizationSkipped():
            return _skipped(state, event, at_us)
        case _:
            assert_never(event)


def _message_appended(state: Conversation, event: MessageAppended, at_us: int) -> Conversation:
    """The hot path of a fold: the first fields are new. A message never lowers the ratio, so its lowest value stays."""
    tokens = event.tokens
    estimated = event.source is TokenSource.ESTIMATE
    chat = event.message.role is not Role.SYSTEM
    return Conversation(
        state.event_version + 1,
        at_us,
        event.number,
        state.window.append(event),
        state.chat_messages + chat,
        state.exact_tokens + (0 if estimated else tokens),
        state.estimated_tokens + (tokens if estimated else 0),
        state.original_tokens + (tokens if chat else 0),
        state.messages_since_pass + 1,
        *state[_CHANGED_BY_A_MESSAGE:],
    )


def _completed(state: Conversation, event: SummarizationCompleted, at_us: int) -> Conversation:
    record, plan = event.record, state.pending
    assert plan is not None, "a completed pass was pending"
    assert plan.pass_id == event.pass_id, "the completed pass was the pending one"
    ended = EndedPass(
        plan,
        state.pending_since_us,
        at_us,
        record.attempts,
        record_id=record.id,
        fallback=event.fallback,
        tried=event.tried,
    )
    state = _ended(state, ended)._replace(records=state.records.append(record))
    if event.fallback:
        state = state._replace(fallback_ids=state.fallback_ids | {record.id})
    if event.wait_until_us:
        state = _waiting(state, event.wait_messages, event.wait_until_us)
    elif not event.fallback:
        state = state._replace(failures_in_row=0, wait_until_version=0, wait_until_us=0)
    if plan.trigger is Trigger.REMAKE:
        return _remade(state, plan.replaces_id, event)
    inside, left = partitioned(state.window, record.covered)
    estimated = sum(m.tokens for m in inside if m.source is TokenSource.ESTIMATE)
    state = _may_speak_again(state)._replace(
        window=Sequence(left),
        chat_messages=state.chat_messages - sum(m.message.role is not Role.SYSTEM for m in inside),
        exact_tokens=state.exact_tokens - (sum(m.tokens for m in inside) - estimated),
        estimated_tokens=state.estimated_tokens - estimated,
        shown=_shown_beside(state, plan.beside_ids, ShownRecord(record, event.source)),
        completed_passes=state.completed_passes + 1,
        messages_since_pass=0,
        last_summarization=LastSummarization(plan.depth, plan.message_version, plan.token_ratio),
    )
    return state._replace(lowest_ratio_since_pass=state.ratio)


def _remade(state: Conversation, replaced_id: str, event: SummarizationCompleted) -> Conversation:
    """The record takes the place of a stand-in, wherever in the chain that is; cooldown and arming are as they were."""
    record = event.record
    successors = {old: record.id if new == replaced_id else new for old, new in state.successors.items()}
    state = state._replace(
        fallback_ids=state.fallback_ids - {replaced_id},
        successors=MappingProxyType({**successors, replaced_id: record.id}),
    )
    shown = tuple(ShownRecord(record, event.source) if s.record.id == replaced_id else s for s in state.shown)
    return state._replace(shown=shown)


def _shown_beside(state: Conversation, beside_ids: tuple[str, ...], new: ShownRecord) -> tuple[ShownRecord, ...]:
    kept = [shown for shown in state.shown if shown.record.id in beside_ids]
    return tuple(sorted([*kept, new], key=lambda shown: shown.record.covered[0].first))


def _failed(state: Conversation, event: SummarizationFailed, at_us: int) -> Conversation:
    assert state.pending is not None, "a failed pass was pending"
    assert state.pending.pass_id == event.pass_id, "the failed pass was the pending one"
    ended = EndedPass(
        state.pending,
        state.pending_since_us,
        at_us,
        event.attempts,
        error_class=event.error_class,
        retryable=event.retryable,
        cause=event.cause,
        asked=event.asked,
        tried=event.tried,
    )
    begun = state.claims > 0
    state = _ended(state, ended)
    if event.attempts or _counts_unasked(event.error_class, begun=begun):
        state = _remake_counted(state, ended)
    if not event.wait_until_us:
        return state
    return _waiting(state, event.wait_messages, event.wait_until_us)


def _skipped(state: Conversation, event: SummarizationSkipped, at_us: int) -> Conversation:
    if event.reason is SkipReason.IRREDUCIBLE:
        state = state._replace(irreducible_said_at=state.message_version)
    elif event.reason is SkipReason.DEPTH_LIMIT:
        state = state._replace(depth_limit_said=True)
    if not event.pass_id:
        return state
    assert state.pending is not None, "a skipped pass was pending"
    assert state.pending.pass_id == event.pass_id, "the skipped pass was the pending one"
    ended = EndedPass(state.pending, state.pending_since_us, at_us, event.attempts, skip_reason=event.reason)
    state = _remake_counted(_ended(state, ended), ended)
    return _waiting(state, event.wait_messages, event.wait_until_us) if event.wait_until_us else state


def _counts_unasked(error_class: ErrorClass, *, begun: bool) -> bool:
    """Whether a remake without a call counts: not one that a host refused, nor one that was never begun."""
    if error_class is ErrorClass.CANCELLED:
        return begun
    return error_class not in (ErrorClass.TRANSPORT, ErrorClass.MODEL_MISSING)


def _remake_counted(state: Conversation, ended: EndedPass) -> Conversation:
    """A remake in vain counts against its record, not against the conversation."""
    replaced = ended.plan.replaces_id
    if not replaced:
        return state
    return state._replace(remakes=MappingProxyType({**state.remakes, replaced: state.remakes.get(replaced, 0) + 1}))


def _ended(state: Conversation, ended: EndedPass) -> Conversation:
    return state._replace(pending=None, pending_since_us=0, claims=0, passes=state.passes.append(ended))


def _waiting(state: Conversation, wait_messages: int, wait_until_us: int) -> Conversation:
    return state._replace(
        failures_in_row=state.failures_in_row + 1,
        wait_until_version=state.message_version + wait_messages,
        wait_until_us=wait_until_us,
    )


def _bears_on_passes(old: Settings, new: Settings) -> bool:
    return replace(old, title=new.title, labels=new.labels) != new


def _may_speak_again(state: Conversation) -> Conversation:
    """What was said of a window that could not be compressed is said of another one now."""
    return state._replace(irreducible_said_at=None, depth_limit_said=False)


def partitioned(
    window: Iterable[MessageAppended], ranges: tuple[MessageRange, ...]
) -> tuple[list[MessageAppended], list[MessageAppended]]:
    """The messages of a window that lie in ascending ranges, and the others; none after the ranges is looked at."""
    messages = list(window)
    end = bisect_right(messages, ranges[-1].last, key=attrgetter("number")) if ranges else 0
    inside: list[MessageAppended] = []
    left: list[MessageAppended] = []
    for m in messages[:end]:
        (inside if covers(ranges, m.number) else left).append(m)
    return inside, left + messages[end:]


def covers(ranges: tuple[MessageRange, ...], number: int) -> bool:
    """Whether a message lies in ascending ranges; logarithmic, since system messages may cut a range into thousands."""
    place = bisect_right(ranges, number, key=_first)
    return place > 0 and number <= ranges[place - 1].last


def _first(r: MessageRange) -> int:
    return r.first
