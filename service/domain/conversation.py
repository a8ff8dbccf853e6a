"""A conversation's state, folded from its events: `evolve` is the only way in which it changes.

The same fold serves commands, projections and replay. Token counts are kept as they were counted; the calibration
factor is applied to their sum, so that one usage report corrects the whole window at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
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
from service.domain.record import MessageRange, SummaryRecord
from service.domain.sequence import Sequence
from service.domain.tokens import TokenSource, calibrated_tokens

__all__ = [
    "Conversation",
    "EndedPass",
    "LastSummarization",
    "covers",
    "evolve",
    "fold",
    "initial_state",
    "lineage",
    "live_coverage",
    "merged",
    "record_named",
]


@dataclass(frozen=True, slots=True)
class EndedPass:
    """A pass that is over, one way or another. Exactly one of `record_id`, `error_class`, `skip_reason` is set.

    `cause` and `asked` say more of an `error_class`, as in SummarizationFailed.
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


@dataclass(frozen=True, slots=True)
class LastSummarization:
    """What the last completed pass found when it was requested."""

    depth: int
    message_count: int
    token_ratio: float


class Conversation(NamedTuple):
    """What is known of a conversation after `event_version` events.

    What a message changes comes first, up to `messages_since_pass`. `window` holds the messages in the window without
    the summary; `exact_tokens` and `estimated_tokens` are the sums of their counts. `original_tokens` sums every
    message ever appended but system messages. Times are microseconds.
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
    live: SummaryRecord | None = None
    live_source: TokenSource = TokenSource.ESTIMATE
    live_is_fallback: bool = False
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
    def summary_tokens(self) -> int:
        """What the live record costs in the window, as it was counted; 0 without one."""
        return self.live.tokens_after if self.live else 0

    @property
    def window_tokens(self) -> int:
        """What the window costs: messages and summary, estimates corrected."""
        exact, estimated = self.exact_tokens, self.estimated_tokens
        if self.live:
            if self.live_source is TokenSource.ESTIMATE:
                estimated += self.live.tokens_after
            else:
                exact += self.live.tokens_after
        return exact + calibrated_tokens(estimated, self.settings.calibration_factor)

    @property
    def budget(self) -> int:
        """Context length without what is kept for the answer; at least 1."""
        return max(1, self.settings.context_length - self.settings.reserved_output_tokens)

    @property
    def ratio(self) -> float:
        """How full the window is: (window + overhead) / budget."""
        return (self.window_tokens + self.settings.overhead_tokens) / self.budget

    def waiting(self, now_us: int) -> bool:
        """Whether failures hold the next pass back: until enough messages or enough time have passed."""
        return (
            self.failures_in_row > 0 and self.message_version < self.wait_until_version and now_us < self.wait_until_us
        )


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
    """The live record and the ancestors that it stands on, newest first.

    A record at depth 0 stands on nothing: a rebased record keeps its parent's id for audit only.
    """
    chain: list[SummaryRecord] = []
    record = state.live
    while record is not None:
        chain.append(record)
        record = record_named(state, record.parent_id) if record.depth > 0 and record.parent_id else None
    return tuple(chain)


def live_coverage(state: Conversation) -> tuple[MessageRange, ...]:
    """The messages that the live record and its ancestors stand for."""
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
    left = tuple(m for m in state.window if not covers(record.covered, m.number))
    state = state._replace(
        window=Sequence(left),
        chat_messages=sum(m.message.role is not Role.SYSTEM for m in left),
        exact_tokens=sum(m.tokens for m in left if m.source is not TokenSource.ESTIMATE),
        estimated_tokens=sum(m.tokens for m in left if m.source is TokenSource.ESTIMATE),
        records=state.records.append(record),
        live=record,
        live_source=event.source,
        live_is_fallback=event.fallback,
        completed_passes=state.completed_passes + 1,
        messages_since_pass=0,
        last_summarization=LastSummarization(plan.depth, plan.message_version, plan.token_ratio),
        failures_in_row=0,
        wait_until_version=0,
        wait_until_us=0,
    )
    if plan.trigger is not Trigger.REMAKE:
        state = _may_speak_again(state)
    ended = EndedPass(
        plan, state.pending_since_us, at_us, record.attempts, record_id=record.id, fallback=event.fallback
    )
    return _ended(state, ended)._replace(lowest_ratio_since_pass=state.ratio)


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
    )
    state = _ended(state, ended)
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
    return _waiting(_ended(state, ended), event.wait_messages, event.wait_until_us)


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


def covers(ranges: tuple[MessageRange, ...], number: int) -> bool:
    """Whether a message lies in ascending ranges; logarithmic, since system messages may cut a range into thousands."""
    place = bisect_right(ranges, number, key=_first)
    return place > 0 and number <= ranges[place - 1].last


def _first(r: MessageRange) -> int:
    return r.first
