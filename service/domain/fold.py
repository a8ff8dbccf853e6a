"""The fold of a conversation's events. Only `evolve` changes a state, in commands, projections and replay alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Messages
from dataclasses import replace
from types import MappingProxyType
from typing import Final, assert_never

from abridged.service.domain.amendments_fold import WayBackEvent, after_way_back, returning, with_marks
from abridged.service.domain.conversation import (
    Ancestor,
    Conversation,
    EndedPass,
    LastSummarization,
    ShownRecord,
    initial_state,
)
from abridged.service.domain.events import (
    ConversationArchived,
    ConversationClosed,
    ConversationErased,
    ConversationForked,
    ConversationOpened,
    ConversationReopened,
    ConversationUnarchived,
    ErasedEvent,
    ErrorClass,
    Event,
    MessageAppended,
    PassPlan,
    RulesDropped,
    Settings,
    SettingsChanged,
    SkipReason,
    SummarizationCleared,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationReleased,
    SummarizationRequested,
    SummarizationSkipped,
    SummarizationStarted,
    SummaryRated,
    TextPurged,
    TitleChanged,
    Trigger,
    UsageReported,
)
from abridged.service.domain.ledger import LedgerFinds
from abridged.service.domain.message import Role
from abridged.service.domain.ranges import partitioned, ranges_of, without
from abridged.service.domain.record import MessageRange
from abridged.service.domain.render import around_rules, text_beside_ledger
from abridged.service.domain.rules import RuleFinds
from abridged.service.domain.tokens import TokenSource

Originals = Callable[[tuple[MessageRange, ...]], Messages[MessageAppended]]
"""Returns the messages of ascending ranges, as the log has them."""


def _none(_ranges: tuple[MessageRange, ...]) -> Messages[MessageAppended]:
    return ()


def fold(
    events: Iterable[tuple[Event, int]], state: Conversation | None = None, *, originals: Originals = _none
) -> Conversation:
    """The state after `events`, each with its time in microseconds, from `state` or from the beginning.

    The events of a fork begin with `state` as that of the conversation that it was forked from. Events after one that
    was erased or archived are on their way there too: they only count, up to ConversationErased or
    ConversationArchived.

    `originals` is called for messages that come back into the window, and for no others.
    """
    state = state or initial_state()
    erased = state.is_blanked
    joining: list[MessageAppended] = []
    joining_us = 0
    for event, at_us in events:
        ends = isinstance(event, ConversationErased | ConversationArchived)
        # The way back from an earlier archive, whose events a later one has blanked from the first on.
        lacking = isinstance(event, ConversationUnarchived) and state.before_archiving is None
        erased = not ends and (erased or lacking or isinstance(event, ErasedEvent))
        if erased:
            state = evolve(state, ErasedEvent(), at_us)
            continue
        if isinstance(event, MessageAppended):
            joining.append(event)
            joining_us = at_us
            continue
        if joining:
            state = _messages_appended(state, joining, joining_us)
            joining = []
        ranges = returning(state, event)
        state = evolve(state, event, at_us, originals(ranges) if ranges else ())
    return _messages_appended(state, joining, joining_us) if joining else state


def evolve(state: Conversation, event: Event, at_us: int, originals: Iterable[MessageAppended] = ()) -> Conversation:
    """The state after one more event, written at `at_us`.

    `originals` are messages as the log has them; they include those that `returning` names for this event.
    """
    if isinstance(event, MessageAppended):
        return _messages_appended(state, (event,), at_us)
    used_us = state.used_us if _is_own(event) else at_us
    state = _applied(state, event, at_us, originals)
    state = state._replace(event_version=state.event_version + 1, updated_us=at_us, used_us=used_us)
    return state._replace(lowest_ratio_since_pass=min(state.lowest_ratio_since_pass, state.ratio))


_CHANGED_BY_A_MESSAGE: Final = 10
"""The number of Conversation's leading fields that a message changes; a literal, so that mypy knows the others' types.
"""

assert Conversation._fields[_CHANGED_BY_A_MESSAGE - 1] == "messages_since_pass", "what a message changes comes first"

_NOTHING_FOLLOWS: Final = "nothing but TextPurged follows an erasure"
_AWAY: Final = "nothing follows an archiving before the conversation is unarchived or erased"

_RareEvent = (
    ConversationOpened
    | ConversationForked
    | SettingsChanged
    | UsageReported
    | SummarizationRequested
    | SummarizationStarted
    | SummarizationReleased
    | SummarizationCompleted
    | SummarizationCleared
    | SummarizationFailed
    | SummarizationSkipped
    | SummaryRated
    | RulesDropped
    | ConversationClosed
    | ConversationReopened
    | TitleChanged
    | ConversationErased
    | ConversationArchived
    | ConversationUnarchived
    | TextPurged
    | ErasedEvent
    | WayBackEvent
)

_OwnEvent: Final = (
    SummarizationStarted,
    SummarizationReleased,
    SummarizationCompleted,
    SummarizationCleared,
    SummarizationFailed,
    SummarizationSkipped,
    TitleChanged,
    TextPurged,
)

_AfterArchiving: Final = (ConversationErased, ConversationUnarchived, TextPurged, ErasedEvent)


def _is_own(event: Event) -> bool:
    """Return whether the sidecar writes the event by itself."""
    if isinstance(event, SummarizationRequested):
        return event.plan.trigger is not Trigger.FORCED
    return isinstance(event, _OwnEvent)


def _applied(state: Conversation, event: _RareEvent, at_us: int, originals: Iterable[MessageAppended]) -> Conversation:
    assert not state.erased or isinstance(event, TextPurged | ErasedEvent), _NOTHING_FOLLOWS
    assert not state.archive_file or isinstance(event, _AfterArchiving), _AWAY
    if isinstance(event, WayBackEvent):
        return after_way_back(state, event, originals)
    match event:
        case ConversationOpened():
            return state._replace(id=event.conversation_id, settings=event.settings, created_us=at_us)
        case ConversationForked():
            return _forked(state, event, at_us)
        case SettingsChanged():
            state = _may_speak_again(state) if _bears_on_passes(state.settings, event.settings) else state
            # Reports of one model say nothing about another.
            reports = state.usage_reports if event.settings.model == state.settings.model else 0
            return state._replace(settings=event.settings, usage_reports=reports)
        case UsageReported():
            return state._replace(
                settings=replace(state.settings, calibration_factor=event.calibration_factor),
                usage_reports=event.reports or state.usage_reports + 1,
                usage_reported_at=event.message_version,
            )
        case SummarizationRequested():
            return _unclaimed(state)._replace(pending=event.plan, pending_since_us=at_us)
        case SummarizationStarted():
            token = state.event_version + 1
            return state._replace(claims=event.claim, claim_token=token, claim_owner=event.owner)
        case SummarizationReleased():
            return _unclaimed(state, claims=max(0, state.claims - 1))
        case SummarizationCompleted():
            return _completed(state, event, at_us)
        case SummarizationCleared():
            return _cleared(state, event, at_us)
        case SummarizationFailed():
            return _failed(state, event, at_us)
        case SummarizationSkipped():
            return _skipped(state, event, at_us)
        case SummaryRated():
            return state._replace(ratings=MappingProxyType({**state.ratings, event.record_id: event.rating}))
        case RulesDropped():
            rules = state.rules.without(event.rules, around_rules(state))
            if rules.shown == state.rules.shown:
                return state._replace(rules=rules)
            return _with_other_texts(state._replace(rules=rules, epoch=state.epoch + 1))
        case ConversationClosed():
            return state._replace(closed=True)
        case ConversationReopened():
            return state._replace(closed=False)
        case TitleChanged():
            return state._replace(title=event.title)
        case ErasedEvent():
            created_us = state.created_us if state.is_open else at_us
            return initial_state()._replace(event_version=state.event_version, created_us=created_us)
        case ConversationErased():
            return _erased(state, event)
        case ConversationArchived():
            return _archived(state, event)
        case ConversationUnarchived():
            assert state.before_archiving is not None, "a fold without it knows only that events are erased"
            return state.before_archiving._replace(event_version=state.event_version, purge_due=state.event_version + 1)
        case TextPurged():
            return state._replace(purge_due=0) if state.purge_due <= event.event_version else state
        case _:
            assert_never(event)


def _messages_appended(state: Conversation, joining: Messages[MessageAppended], at_us: int) -> Conversation:
    """The hot path of a fold: one or more messages rebuild the leading fields. A message never lowers the ratio, so the
    lowest stays.
    """
    assert not state.erased, _NOTHING_FOLLOWS
    assert not state.archive_file, _AWAY
    exact = estimated = system = system_tokens = 0
    pinned: list[int] = []
    for event in joining:
        message, tokens = event.message, event.tokens
        if event.source is TokenSource.ESTIMATE:
            estimated += tokens
        else:
            exact += tokens
        if message.role is Role.SYSTEM:
            system += 1
            system_tokens += tokens
        if message.pinned:
            pinned.append(event.number)
    if pinned:
        state = state._replace(pins=state.pins.union(pinned))
    return Conversation(
        state.event_version + len(joining),
        at_us,
        at_us,
        joining[-1].number,
        state.window.extended(joining),
        state.chat_messages + len(joining) - system,
        state.exact_tokens + exact,
        state.estimated_tokens + estimated,
        state.original_tokens + exact + estimated - system_tokens,
        state.messages_since_pass + len(joining),
        *state[_CHANGED_BY_A_MESSAGE:],
    )


def _erased(state: Conversation, event: ConversationErased) -> Conversation:
    return initial_state()._replace(
        event_version=state.event_version,
        message_version=event.messages,
        id=event.conversation_id,
        created_us=state.created_us,
        # Beyond that of every state before, also where the events that led to these are erased already.
        epoch=state.event_version + 1,
        closed=True,
        erased=True,
        purge_due=state.event_version + 1,
    )


def _archived(state: Conversation, event: ConversationArchived) -> Conversation:
    return initial_state()._replace(
        event_version=state.event_version,
        message_version=event.messages,
        id=event.conversation_id,
        settings=Settings(labels=event.labels, title=event.title),
        created_us=state.created_us,
        epoch=state.event_version + 1,
        closed=True,
        purge_due=state.event_version + 1,
        archive_file=event.file,
        before_archiving=None if state.is_blanked or not state.is_open else state,
        ancestors=archived_fork(event.forked_from),
    )


def archived_fork(forked_from: str) -> tuple[Ancestor, ...]:
    """The ancestors of an archived conversation: as much as lists of forks need; none with an empty id."""
    return (Ancestor(forked_from, 0, 0),) if forked_from else ()


def _completed(state: Conversation, event: SummarizationCompleted, at_us: int) -> Conversation:
    after = recorded(state, event, at_us)
    assert state.pending is not None, "a completed pass was pending"
    if state.pending.trigger is Trigger.REMAKE:
        return after
    return with_finds(with_marks(after, event.marks), event.finds, event.rules)


def with_rules(state: Conversation, found: RuleFinds) -> Conversation:
    """Return the state with the standing rules that its pass leaves."""
    if not found.rules and not state.rules.entries:
        return state
    return state._replace(rules=state.rules.after(found, around_rules(state)))


def with_finds(state: Conversation, finds: LedgerFinds, rules: RuleFinds) -> Conversation:
    """Return the state with the rules and the ledger that its pass leaves, and the ratio that the window now rises
    from."""
    state = with_rules(state, rules)
    state = state._replace(ledger=state.ledger.after(finds, text_beside_ledger(state)))
    return state._replace(lowest_ratio_since_pass=state.ratio)


def recorded(state: Conversation, event: SummarizationCompleted, at_us: int) -> Conversation:
    """Return the state with the record of a pass in use, before its marks and its finds."""
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
        receipt=event.receipt,
    )
    state = _ended(state, ended)._replace(
        records=state.records.append(record),
        sources=MappingProxyType({**state.sources, record.id: event.source}),
        epoch=state.epoch + 1,
    )
    if event.fallback:
        state = state._replace(fallback_ids=state.fallback_ids | {record.id})
    if event.wait_until_us:
        state = _waiting(state, event.wait_messages, event.wait_until_us)
    elif not event.fallback:
        state = state._replace(failures_in_row=0, wait_until_version=0, wait_until_us=0)
    if plan.trigger is Trigger.REMAKE:
        return _remade(state, plan.replaces_id, event)
    inside, left = partitioned(state.window, without(record.covered, ranges_of(state.pins)))
    estimated = sum(m.tokens for m in inside if m.source is TokenSource.ESTIMATE)
    return _may_speak_again(state)._replace(
        window=state.window.replaced(left),
        chat_messages=state.chat_messages - sum(m.message.role is not Role.SYSTEM for m in inside),
        exact_tokens=state.exact_tokens - (sum(m.tokens for m in inside) - estimated),
        estimated_tokens=state.estimated_tokens - estimated,
        shown=_shown_beside(state, plan, ShownRecord(record, event.source)),
        completed_passes=state.completed_passes + 1,
        messages_since_pass=0,
        redo_due=False,
        last_summarization=LastSummarization(plan.depth, plan.message_version, plan.token_ratio),
    )


def _cleared(state: Conversation, event: SummarizationCleared, at_us: int) -> Conversation:
    """A pass like any other: the next one waits for its cooldown, and for the ratio to rise again."""
    state = with_marks(_may_speak_again(state), event.marks)._replace(
        passes=state.passes.append(EndedPass(event.plan, at_us, at_us, 0, cleared=True, receipt=event.receipt)),
        completed_passes=state.completed_passes + 1,
        messages_since_pass=0,
        redo_due=False,
        epoch=state.epoch + 1,
    )
    return state._replace(lowest_ratio_since_pass=state.ratio)


def _remade(state: Conversation, replaced_id: str, event: SummarizationCompleted) -> Conversation:
    """Put the record in the place of a fallback record, anywhere in the chain. Cooldown and arming do not change."""
    record = event.record
    successors = {old: record.id if new == replaced_id else new for old, new in state.successors.items()}
    state = state._replace(
        fallback_ids=state.fallback_ids - {replaced_id},
        successors=MappingProxyType({**successors, replaced_id: record.id}),
    )
    shown = tuple(ShownRecord(record, event.source, s.short) if s.record.id == replaced_id else s for s in state.shown)
    state = state._replace(shown=shown)
    return _with_other_texts(state._replace(rules=state.rules.restricted(lambda _: True, around_rules(state))))


def _with_other_texts(state: Conversation) -> Conversation:
    """The state with the ledger that its window needs beside other texts."""
    ledger = state.ledger.restricted(lambda _: True, lambda _: True, text_beside_ledger(state))
    return state._replace(ledger=ledger)


def _shown_beside(state: Conversation, plan: PassPlan, new: ShownRecord) -> tuple[ShownRecord, ...]:
    kept = [
        shown._replace(short=shown.record.id in plan.short_ids)
        for shown in state.shown
        if shown.record.id in plan.beside_ids
    ]
    return tuple(sorted([*kept, new], key=lambda shown: shown.record.covered[-1].last))


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
    """Return whether a remake that made no call counts as tried: not if the host refused it or it never began."""
    if error_class is ErrorClass.CANCELLED:
        return begun
    return error_class not in (ErrorClass.TRANSPORT, ErrorClass.MODEL_MISSING)


def _remake_counted(state: Conversation, ended: EndedPass) -> Conversation:
    """Count a failed remake against its record, not against the conversation."""
    replaced = ended.plan.replaces_id
    if not replaced:
        return state
    return state._replace(remakes=MappingProxyType({**state.remakes, replaced: state.remakes.get(replaced, 0) + 1}))


def _ended(state: Conversation, ended: EndedPass) -> Conversation:
    return _unclaimed(state)._replace(pending=None, pending_since_us=0, passes=state.passes.append(ended))


def _unclaimed(state: Conversation, claims: int = 0) -> Conversation:
    return state._replace(claims=claims, claim_token=0, claim_owner="")


def _waiting(state: Conversation, wait_messages: int, wait_until_us: int) -> Conversation:
    return state._replace(
        failures_in_row=state.failures_in_row + 1,
        wait_until_version=state.message_version + wait_messages,
        wait_until_us=wait_until_us,
    )


def _forked(parent: Conversation, event: ConversationForked, at_us: int) -> Conversation:
    """The state of a fork before its own events, from that of the conversation that it begins as."""
    assert parent.event_version == event.parent_event_version, "a fork is folded from its parent as it was"
    ancestor = Ancestor(event.parent_id, event.parent_event_version, event.message_version)
    return _unclaimed(parent)._replace(
        id=event.conversation_id,
        event_version=0,
        created_us=at_us,
        pending=None,
        pending_since_us=0,
        closed=False,
        ancestors=(ancestor, *parent.ancestors),
        purge_due=0,
    )


def _bears_on_passes(old: Settings, new: Settings) -> bool:
    return replace(old, title=new.title, labels=new.labels) != new


def _may_speak_again(state: Conversation) -> Conversation:
    """Allow IRREDUCIBLE and DEPTH_LIMIT to be reported again: the window has changed."""
    return state._replace(irreducible_said_at=None, depth_limit_said=False)
