"""Revoke, rewind, redact, pin, unpin: events that bring messages back into a window, or remove them without a record.

A state keeps no message outside its window (ADR 16). `returning` names those that an event brings back; the caller of
the fold reads them from the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType

from abridged.service.domain.conversation import Conversation, ShownRecord, current_id, events_before, live_coverage
from abridged.service.domain.events import (
    ConversationRewound,
    Event,
    MessageAppended,
    MessagesPinned,
    MessagesRedacted,
    MessagesUnpinned,
    ResultMark,
    SummaryRevoked,
)
from abridged.service.domain.ledger import NO_LEDGER, Ledger
from abridged.service.domain.material import kept_text
from abridged.service.domain.message import Role
from abridged.service.domain.ranges import covers, merged, ranges_of, without
from abridged.service.domain.record import MessageRange, SummaryRecord
from abridged.service.domain.redaction import (
    Redaction,
    as_redacted,
    redacted_mark,
    redacted_receipt,
    redacted_record,
)
from abridged.service.domain.render import around_rules, text_beside_ledger
from abridged.service.domain.rules import NO_RULES
from abridged.service.domain.sequence import Sequence as Window
from abridged.service.domain.tokens import TokenSource

WayBackEvent = SummaryRevoked | ConversationRewound | MessagesRedacted | MessagesPinned | MessagesUnpinned


def outside(state: Conversation) -> tuple[MessageRange, ...]:
    """The messages outside the window: removed by a rewind, or covered by a record in use and not pinned."""
    return merged((*without(live_coverage(state), ranges_of(state.pins)), *state.removed))


def returning(state: Conversation, event: Event) -> tuple[MessageRange, ...]:
    """The messages that the event brings back into the window, as ascending ranges; none for most events."""
    if not isinstance(event, WayBackEvent):
        return ()
    return merged((*without(outside(state), outside(in_use_after(state, event))), *_unmarked(state, event)))


def after_way_back(state: Conversation, event: WayBackEvent, originals: Iterable[MessageAppended]) -> Conversation:
    """The state after the event. `originals` are messages as the log has them, including those of `returning`."""
    after = in_use_after(state, event)
    before_ranges, after_ranges = outside(state), outside(after)
    unmarked = _unmarked(state, event)
    back = merged((*without(before_ranges, after_ranges), *unmarked))
    returned = [_as_marked(after, as_redacted(m, after.redaction)) for m in originals if covers(back, m.number)]
    assert len(returned) == sum(map(len, back)), "all messages that come back were read"
    gone = merged((*after_ranges, *unmarked))
    kept = [m for m in state.window if not covers(gone, m.number)]
    if isinstance(event, MessagesRedacted):
        kept = [_renamed(after, as_redacted(m, after.redaction)) for m in kept]
    window = sorted([*kept, *returned], key=lambda m: m.number)
    estimated = sum(m.tokens for m in window if m.source is TokenSource.ESTIMATE)
    redone = isinstance(event, SummaryRevoked) or (isinstance(event, MessagesRedacted) and bool(returned))
    after = after._replace(
        window=state.window.replaced(window),
        chat_messages=sum(m.message.role is not Role.SYSTEM for m in window),
        exact_tokens=sum(m.tokens for m in window) - estimated,
        estimated_tokens=estimated,
        messages_since_pass=state.messages_since_pass + (len(returned) if redone else 0),
        redo_due=after.redo_due or redone,
        epoch=state.epoch + 1,
        went_back_at=state.message_version,
        irreducible_said_at=None,
        depth_limit_said=False,
    )
    if isinstance(event, MessagesRedacted):
        return _after_redaction(after, event)
    rules = after.rules.restricted(lambda number: not covers(after.removed, number), around_rules(after))
    is_shown_otherwise = rules.shown != after.rules.shown
    after = after._replace(rules=rules)
    if is_shown_otherwise or isinstance(event, SummaryRevoked | ConversationRewound):
        return after._replace(ledger=_ledger_after(after))
    return after


def _after_redaction(state: Conversation, event: MessagesRedacted) -> Conversation:
    """The state with nothing that redacted texts had a part in, but for what the event says.

    Events before may be blanked already, or some of them: what these lead to otherwise is not taken from the state.
    """
    redaction = state.redaction
    state = state._replace(
        revoked=Window([redacted_record(record, redaction) for record in state.revoked]),
        passes=Window([replace(e, receipt=redacted_receipt(e.receipt, redaction)) for e in state.passes]),
        title="" if event.revoked_ids else state.title,
        # At most as many as events, so that it is above every epoch before.
        epoch=events_before(state) + 1,
        # Armed, because no lower one may be known.
        lowest_ratio_since_pass=0.0,
        purge_due=state.event_version + 1,
    )
    around = around_rules(state)
    state = state._replace(rules=NO_RULES.after(event.rules, around).without(event.dropped_rules, around))
    return state._replace(ledger=NO_LEDGER.after(event.finds, text_beside_ledger(state)))


def _ledger_after(after: Conversation) -> Ledger:
    """The ledger of what records in use still cover: pinned messages, too."""
    covered = without(live_coverage(after), after.removed)
    return after.ledger.restricted(
        lambda number: covers(covered, number),
        lambda number: not covers(after.removed, number),
        text_beside_ledger(after),
    )


def with_marks(state: Conversation, marks: Sequence[ResultMark]) -> Conversation:
    """The state with these marks in the place of their messages' texts."""
    if not marks:
        return state
    state = state._replace(marks=MappingProxyType({**state.marks, **{mark.number: mark for mark in marks}}))
    window = [_as_marked(state, m) for m in state.window]
    estimated = sum(m.tokens for m in window if m.source is TokenSource.ESTIMATE)
    return state._replace(
        window=state.window.replaced(window),
        exact_tokens=sum(m.tokens for m in window) - estimated,
        estimated_tokens=estimated,
    )


def marked(appended: MessageAppended, mark: ResultMark) -> MessageAppended:
    """The message with the mark in the place of its content, its attachments and its blocks that have texts."""
    message = appended.message._replace(content=mark.text, attachments=())
    if kept_text(message):
        message = message._replace(extra_json="")
    return appended._replace(
        message=message,
        tokens=mark.tokens,
        source=TokenSource.ESTIMATE,
        cleared_tokens=appended.cleared_tokens or appended.tokens,
    )


def _as_marked(state: Conversation, appended: MessageAppended) -> MessageAppended:
    mark = state.marks.get(appended.number)
    return appended if mark is None or appended.cleared_tokens else marked(appended, mark)


def _renamed(state: Conversation, appended: MessageAppended) -> MessageAppended:
    """The message with its mark as it reads now, if it has one."""
    if not appended.cleared_tokens:
        return appended
    return appended._replace(message=appended.message._replace(content=state.marks[appended.number].text))


def _unmarked(state: Conversation, event: WayBackEvent) -> tuple[MessageRange, ...]:
    """The messages that the event pins while the window shows a mark in their place."""
    pinned = event.numbers if isinstance(event, MessagesPinned) else ()
    return ranges_of(number for number in pinned if number in state.marks and not covers(outside(state), number))


def dependents(state: Conversation, record_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the records of these ids and all records in use made from them, in the order of their commits."""
    found = set(record_ids)
    made_of = {e.record_id: (e.plan.base_id, *e.plan.merged_ids) for e in state.passes if e.record_id}
    # A record is committed after what it is made of.
    for record in state.records:
        if any(name and current_id(state, name) in found for name in made_of.get(record.id, ())):
            found.add(record.id)
    return tuple(record.id for record in state.records if record.id in found)


def shown_without(state: Conversation, revoked_ids: Iterable[str]) -> tuple[str, ...]:
    """Return the window without these records: in each one's place its nearest ancestor that stays in use, in the order
    of their coverage.

    One that merged others has those for ancestors.
    """
    gone = set(revoked_ids)
    in_use = {record.id: record.covered[-1].last for record in state.records if record.id not in gone}
    parents: dict[str, tuple[str, ...]] = {
        record.id: (record.parent_id,) for record in (*state.records, *state.revoked)
    }
    parents |= {ended.record_id: ended.plan.merged_ids for ended in state.passes if ended.plan.merged_ids}
    found: list[str] = []
    places = [shown.record.id for shown in reversed(state.shown)]
    while places:
        name = places.pop()
        if name in in_use:
            found.append(name)
        elif name:
            places.extend(current_id(state, parent) for parent in reversed(parents.get(name, ())))
    return tuple(sorted(dict.fromkeys(found), key=lambda name: in_use[name]))


def short_without(state: Conversation, shown_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the ones of `shown_ids` that the window shows by their short text: all that have one, but for the
    newest."""
    short = {record.id for record in state.records if record.short_summary}
    return tuple(name for name in shown_ids[:-1] if name in short)


def in_use_after(state: Conversation, event: WayBackEvent) -> Conversation:
    """Return the records in use and the pins after the event; the window's messages are still those before it."""
    match event:
        case MessagesPinned():
            marks = {number: mark for number, mark in state.marks.items() if number not in event.numbers}
            return state._replace(pins=state.pins.union(event.numbers), marks=MappingProxyType(marks))
        case MessagesUnpinned():
            return state._replace(pins=state.pins.difference(event.numbers))
        case ConversationRewound():
            state = _without_records(state, event)
            removed = MessageRange(event.to + 1, state.message_version)
            return state._replace(
                removed=merged((*state.removed, removed)),
                pins=frozenset(number for number in state.pins if number <= event.to),
            )
        case SummaryRevoked():
            return _without_records(state, event)
        case MessagesRedacted():
            state = _without_records(state, event)
            redaction = Redaction(
                merged((*state.redaction.messages, *ranges_of(event.numbers))),
                tuple(sorted({*state.redaction.record_ids, *event.revoked_ids})),
            )
            marks = {n: redacted_mark(mark) for n, mark in state.marks.items() if not redaction.has(n)}
            return state._replace(redaction=redaction, marks=MappingProxyType(marks))


def _without_records(
    state: Conversation, event: SummaryRevoked | ConversationRewound | MessagesRedacted
) -> Conversation:
    gone = frozenset(event.revoked_ids)
    if not any(record.id in gone for record in state.records):
        return state
    kept: list[SummaryRecord] = []
    revoked = state.revoked
    for record in state.records:
        if record.id in gone:
            revoked = revoked.append(record)
        else:
            kept.append(record)
    by_id = {record.id: record for record in kept}
    return state._replace(
        records=Window(kept),
        revoked=revoked,
        shown=tuple(ShownRecord(by_id[name], state.sources[name], name in event.short_ids) for name in event.shown_ids),
    )
