"""What repairs a window by hand: revoke, rate, pin, unpin and rewind, as decisions.

A decision that brings messages back counts the window as it will be, so it needs them: `needed` names what to read from
the log first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from service.domain.commands import PinMessages, RateSummary, RevokeSummary, RewindConversation, UnpinMessages, WayBack
from service.domain.conversation import Conversation, record_named
from service.domain.errors import (
    MessageNotFound,
    MessageRemoved,
    PinsTooLarge,
    SummaryNotFound,
    SummaryNotInUse,
    VersionNotReached,
)
from service.domain.events import (
    ConversationRewound,
    Event,
    MessageAppended,
    MessagesPinned,
    MessagesUnpinned,
    SummaryRated,
    SummaryRevoked,
)
from service.domain.message import Role
from service.domain.policy import Policy
from service.domain.ranges import covers, merged, ranges_of, without
from service.domain.record import MessageRange, SummaryRecord
from service.domain.triggers import cancelled
from service.domain.ways_back_fold import dependents, outside, returning, short_without, shown_without
from service.domain.window import counted_tokens, pinned_units, tool_pairs, tool_units

__all__ = ["needed", "pending_cancelled", "require_pins_fit", "taken_back"]

UNIT_REACH = 128
"""How far from a pin outside the window, in messages on either side, its tool call and results are looked for."""


def needed(state: Conversation, command: object) -> tuple[MessageRange, ...]:
    """The messages outside the window that deciding on the command needs, as ascending ranges; none for most
    commands."""
    match command:
        case RevokeSummary() if any(record.id == command.record_id for record in state.records):
            return returning(state, _revocation(state, command.record_id))
        case RewindConversation() if command.to < state.message_version:
            return returning(state, _rewind(state, command.to))
        case PinMessages():
            return _around(state, command.numbers)
        case _:
            return ()


def taken_back(
    state: Conversation, command: WayBack, policy: Policy, originals: Sequence[MessageAppended]
) -> list[Event]:
    """The events of the command, without those of the rules; none if it changes nothing."""
    match command:
        case RevokeSummary():
            return _revoked(state, command)
        case RateSummary():
            return _rated(state, command)
        case PinMessages():
            return _pinned(state, command, policy, originals)
        case UnpinMessages():
            return _unpinned(state, command)
        case RewindConversation():
            return _rewound(state, command)


def require_pins_fit(state: Conversation, pinned: Iterable[MessageAppended], policy: Policy) -> None:
    """Raise PinsTooLarge if these messages, the pins after the command, exceed their share of the budget."""
    tokens, limit = (
        counted_tokens(pinned, state.settings.calibration_factor),
        int(policy.pin_token_ratio * state.budget),
    )
    if tokens > limit:
        raise PinsTooLarge(tokens=tokens, limit=limit)


def _revoked(state: Conversation, command: RevokeSummary) -> list[Event]:
    if any(record.id == command.record_id for record in state.revoked):
        raise SummaryNotInUse(command.record_id)
    if record_named(state, command.record_id) is None:
        raise SummaryNotFound(command.record_id)
    return [*pending_cancelled(state), _revocation(state, command.record_id)]


def _revocation(state: Conversation, record_id: str) -> SummaryRevoked:
    revoked = dependents(state, [record_id])
    shown = shown_without(state, revoked)
    return SummaryRevoked(record_id, revoked, shown, short_without(state, shown))


def _rated(state: Conversation, command: RateSummary) -> list[Event]:
    if record_named(state, command.record_id) is None and all(r.id != command.record_id for r in state.revoked):
        raise SummaryNotFound(command.record_id)
    return [SummaryRated(command.record_id, command.rating, command.comment)]


def _pinned(
    state: Conversation, command: PinMessages, policy: Policy, originals: Sequence[MessageAppended]
) -> list[Event]:
    _require_messages(state, command.numbers)
    read = {m.number for m in originals}
    chat = [m for m in state.window if m.message.role is not Role.SYSTEM and m.number not in read]
    chat += (m for m in originals if m.message.role is not Role.SYSTEM)
    chat.sort(key=attrgetter("number"))
    units = tool_units(chat, tool_pairs(chat))
    wanted = state.pins.union(command.numbers)
    pinned = [m for unit in pinned_units(units, wanted) for m in unit]
    new = tuple(sorted({m.number for m in pinned} - state.pins))
    if not new:
        return []
    require_pins_fit(state, pinned, policy)
    return [*_cancelled_if_touching(state, new), MessagesPinned(new)]


def _unpinned(state: Conversation, command: UnpinMessages) -> list[Event]:
    _require_messages(state, command.numbers)
    chat = [m for m in state.window if m.message.role is not Role.SYSTEM]
    units = pinned_units(tool_units(chat, tool_pairs(chat)), frozenset(command.numbers) & state.pins)
    gone = tuple(sorted({m.number for unit in units for m in unit} & state.pins))
    return [*pending_cancelled(state), MessagesUnpinned(gone)] if gone else []


def _rewound(state: Conversation, command: RewindConversation) -> list[Event]:
    if command.to > state.message_version:
        raise VersionNotReached(wanted=command.to, actual=state.message_version)
    event = _rewind(state, command.to)
    if covers(state.removed, state.message_version) and state.removed[-1].first <= command.to + 1:
        return []
    return [] if command.to == state.message_version else [*pending_cancelled(state), event]


def _rewind(state: Conversation, to: int) -> ConversationRewound:
    touched = [record.id for record in state.records if _reaches_past(record, to)]
    revoked = dependents(state, touched)
    shown = shown_without(state, revoked)
    return ConversationRewound(to, revoked, shown, short_without(state, shown))


def _reaches_past(record: SummaryRecord, to: int) -> bool:
    return record.covered[-1].last > to


def _require_messages(state: Conversation, numbers: Iterable[int]) -> None:
    for number in numbers:
        if not 1 <= number <= state.message_version:
            raise MessageNotFound(number)
        if covers(state.removed, number):
            raise MessageRemoved(number)


def _around(state: Conversation, numbers: Iterable[int]) -> tuple[MessageRange, ...]:
    """The messages close enough to one of these to belong to its tool call that the window has not, or only as a mark.

    None if the window has them all. What a rewind removed belongs to nothing.
    """
    covered = without(outside(state), state.removed)
    hidden = merged((*covered, *ranges_of(n for n in state.marks if not covers(outside(state), n))))
    halves = {m.number for m in state.window if m.message.role is Role.TOOL or m.message.tool_calls}
    reaching = (n for n in numbers if n in halves or covers(hidden, n))
    near = merged(MessageRange(max(1, n - UNIT_REACH), n + UNIT_REACH) for n in reaching)
    return tuple(
        MessageRange(max(one.first, other.first), min(one.last, other.last))
        for one in near
        for other in hidden
        if one.first <= other.last and other.first <= one.last
    )


def pending_cancelled(state: Conversation) -> list[Event]:
    """The end of a pending pass, because what it reads or continues has changed since its plan."""
    return [cancelled(state.pending.pass_id, attempts=0)] if state.pending else []


def _cancelled_if_touching(state: Conversation, numbers: Iterable[int]) -> list[Event]:
    covered = state.pending.covered if state.pending else ()
    return pending_cancelled(state) if any(covers(covered, number) for number in numbers) else []
