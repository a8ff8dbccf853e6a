"""The fold of docs/adr/0016-going-back.md, tried beside the one that is shipped: revoke, rewind, redact.

`returning` says which messages an event brings back into the window, whoever folds reads them from the log, and
`evolved` puts them in. A state keeps no message that is outside its window; what it keeps of those are number ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from service.domain.conversation import Conversation, ShownRecord, current_id, initial_state, live_coverage
from service.domain.events import Event, MessageAppended, SummarizationCompleted
from service.domain.fold import evolve
from service.domain.message import Role
from service.domain.ranges import merged, without
from service.domain.record import MessageRange
from service.domain.sequence import Sequence as Window
from service.domain.tokens import TokenSource

__all__ = [
    "ConversationRewound",
    "Entry",
    "GoingBack",
    "History",
    "MessagesRedacted",
    "Read",
    "Restore",
    "SummaryRevoked",
    "dependents",
    "evolved",
    "folded",
    "in_window",
    "restored",
    "returning",
    "shown_without",
]


@dataclass(frozen=True, slots=True)
class SummaryRevoked:
    """Records are out of use: the one that was revoked and all that were made from it. The window shows `shown_ids`."""

    revoked_ids: frozenset[str]
    shown_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConversationRewound:
    """The messages behind number `to` have left the conversation. Their numbers are not used again."""

    to: int
    revoked_ids: frozenset[str]
    shown_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessagesRedacted:
    """The text of these messages is gone; `tokens` has what each costs without it, by number."""

    tokens: Mapping[int, int]
    revoked_ids: frozenset[str]
    shown_ids: tuple[str, ...]


GoingBack = SummaryRevoked | ConversationRewound | MessagesRedacted

Entry = tuple[Event | GoingBack, int]
"""An event of a log and its time in microseconds."""

Read = Callable[[tuple[MessageRange, ...]], Sequence[MessageAppended]]
"""The messages of ascending ranges, as the log has them."""


class History(NamedTuple):
    """A conversation, and what going back needs: bounded by records and by events that went back, not by messages.

    `sources` is who counted each record's tokens. `conversation.records` has the records in use alone, so that no rule
    can build on another.
    """

    conversation: Conversation = initial_state()
    sources: Mapping[str, TokenSource] = MappingProxyType({})
    revoked: frozenset[str] = frozenset()
    removed: tuple[MessageRange, ...] = ()
    redacted: Mapping[int, int] = MappingProxyType({})


Restore = Callable[[History, Iterable[MessageAppended]], Iterable[MessageAppended]]


def returning(history: History, event: Event | GoingBack) -> tuple[MessageRange, ...]:
    """The messages outside the window that the event brings back into it, as ascending ranges; mostly none."""
    if not isinstance(event, GoingBack):
        return ()
    after = _shown(history, event)
    back = without(live_coverage(history.conversation), live_coverage(after.conversation))
    return without(back, after.removed)


def evolved(
    history: History,
    event: Event | GoingBack,
    at_us: int,
    returned: Iterable[MessageAppended] = (),
    restore: Restore | None = None,
) -> History:
    """The history after one more event. `returned` are the messages that `returning` names, as the log has them."""
    if not isinstance(event, GoingBack):
        state = evolve(history.conversation, event, at_us)
        sources = history.sources
        if isinstance(event, SummarizationCompleted):
            sources = MappingProxyType({**sources, event.record.id: event.source})
        return history._replace(conversation=state, sources=sources)
    after = _shown(history, event)
    window = in_window(after, [*after.conversation.window, *(restore or restored)(after, returned)])
    estimated = sum(m.tokens for m in window if m.source is TokenSource.ESTIMATE)
    state = after.conversation._replace(
        event_version=history.conversation.event_version + 1,
        updated_us=at_us,
        window=Window(window),
        chat_messages=sum(m.message.role is not Role.SYSTEM for m in window),
        exact_tokens=sum(m.tokens for m in window) - estimated,
        estimated_tokens=estimated,
    )
    lowest = min(state.lowest_ratio_since_pass, state.ratio)
    return after._replace(conversation=state._replace(lowest_ratio_since_pass=lowest))


def restored(history: History, messages: Iterable[MessageAppended]) -> Iterable[MessageAppended]:
    """Messages of the log as the conversation has them: without the text that was redacted."""
    return [_redacted(m, history.redacted[m.number]) if m.number in history.redacted else m for m in messages]


def in_window(history: History, messages: Iterable[MessageAppended]) -> list[MessageAppended]:
    """The messages that were not removed, by number."""
    kept = [m for m in messages if not any(r.first <= m.number <= r.last for r in history.removed)]
    return sorted(kept, key=lambda m: m.number)


def folded(
    log: Iterable[Entry], read: Read, *, since: History | None = None, restore: Restore | None = None
) -> History:
    """The history after a log; `read` is asked for the few messages that come back, and for no others."""
    history = since or History()
    for event, at_us in log:
        ranges = returning(history, event)
        history = evolved(history, event, at_us, read(ranges) if ranges else (), restore)
    return history


def dependents(history: History, record_ids: Iterable[str]) -> frozenset[str]:
    """These records and all in use whose text was made from one of them."""
    state = history.conversation
    found = set(record_ids)
    bases = {ended.record_id: ended.plan.base_id for ended in state.passes if ended.record_id}
    # A record's base is committed before it, and so stands before it.
    for record in state.records:
        base = bases[record.id]
        if base and current_id(state, base) in found:
            found.add(record.id)
    return frozenset(found)


def shown_without(history: History, revoked: frozenset[str]) -> tuple[str, ...]:
    """What profile CHAIN shows without these records: in each one's place the nearest before it that is in use."""
    state = history.conversation
    in_use = {record.id: record for record in state.records if record.id not in revoked}
    parents = {record.id: record.parent_id for record in state.records}
    found: list[str] = []
    for shown in state.shown:
        name = shown.record.id
        while name and name not in in_use:
            name = current_id(state, parents.get(name, ""))
        if name:
            found.append(name)
    return tuple(found)


def _shown(history: History, event: GoingBack) -> History:
    """What is in use and in the window behind the event; the messages are still those before it."""
    state = history.conversation
    kept = [record for record in state.records if record.id not in event.revoked_ids]
    by_id = {record.id: record for record in kept}
    state = state._replace(
        records=Window(kept),
        shown=tuple(ShownRecord(by_id[name], history.sources[name]) for name in event.shown_ids),
    )
    history = history._replace(conversation=state, revoked=history.revoked | event.revoked_ids)
    match event:
        case ConversationRewound(to=to):
            behind = MessageRange(to + 1, state.message_version)
            return history._replace(removed=merged((*history.removed, behind)))
        case MessagesRedacted(tokens=tokens):
            history = history._replace(redacted=MappingProxyType({**history.redacted, **tokens}))
            return history._replace(conversation=state._replace(window=Window(restored(history, state.window))))
        case _:
            return history


def _redacted(appended: MessageAppended, tokens: int) -> MessageAppended:
    message = appended.message
    calls = tuple(type(call)(call.id, call.name) for call in message.tool_calls)
    blank = message._replace(content="", tool_calls=calls, attachments=(), name="", labels=MappingProxyType({}))
    return appended._replace(message=blank, tokens=tokens)
