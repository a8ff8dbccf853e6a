"""Repairs a window by hand: revoke, rate, pin, unpin, drop rules, rewind and redact, as decisions.

A decision that brings messages back counts the window as it will be, so it needs them: `needed` names what to read from
the log first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from abridged.service.domain.amendments_fold import (
    WayBackEvent,
    dependents,
    in_use_after,
    outside,
    returning,
    short_without,
    shown_without,
)
from abridged.service.domain.commands import (
    Amendment,
    AppendMessages,
    DropRules,
    ForkConversation,
    PinMessages,
    RateSummary,
    RedactMessages,
    RevokeSummary,
    RewindConversation,
    UnpinMessages,
)
from abridged.service.domain.conversation import Conversation, live_coverage, record_named
from abridged.service.domain.errors import (
    MessageNotFound,
    MessageRemoved,
    PinsTooLarge,
    RuleNotFound,
    SummaryNotFound,
    SummaryNotInUse,
    VersionNotReached,
)
from abridged.service.domain.events import (
    ConversationRewound,
    Event,
    MessageAppended,
    MessagesPinned,
    MessagesRedacted,
    MessagesUnpinned,
    RulesDropped,
    SummaryRated,
    SummaryRevoked,
)
from abridged.service.domain.ledger import LedgerFinds
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy
from abridged.service.domain.ranges import common, covers, merged, ranges_of, without
from abridged.service.domain.record import MessageRange
from abridged.service.domain.rules import FoundRule, RevokedRule, RuleFinds
from abridged.service.domain.rules_found import known_rules
from abridged.service.domain.triggers import cancelled
from abridged.service.domain.window import counted_tokens, pinned_units, tool_pairs, tool_units

UNIT_REACH = 128
"""Messages on either side of a pin outside the window that are first read for its tool call and results."""

GOES_BACK_MAX = 2
"""Records that a rewind takes back for a user's message. A pass leaves the newest one in the window, so that it is in
the last record, or in the one before if a pass took only a part of its messages."""

UNIT_REACH_GROWS = 4
"""Factor by which that reach grows while one of them is missing."""


def needed(state: Conversation, command: object, read: Sequence[MessageAppended] = ()) -> tuple[MessageRange, ...]:
    """The messages outside the window that deciding on the command still needs, as ascending ranges, once `read` has
    been read; empty for most commands.

    Read them and ask again until the answer is empty: where a tool call ends is only known from its results.
    """
    match command:
        case PinMessages() | UnpinMessages() if read:
            return _rest_of_units(state, command.numbers, read)
        case RewindConversation():
            return _back_by_rewind(state, command.to, read)
        case AppendMessages() if command.replace_after is not None:
            return _back_by_rewind(state, command.replace_after, read, [one.message for one in command.messages])
        case _ if read:
            return ()
        case RevokeSummary() if any(record.id == command.record_id for record in state.records):
            return returning(state, revocation(state, command.record_id))
        case ForkConversation():
            return _returning(state, taken_from_fork(state, command))
        case RedactMessages():
            return _returning(state, _redacted(state, command.numbers))
        case PinMessages():
            return _around(state, command.numbers, pins=state.pins)
        case UnpinMessages():
            return _around(state, command.numbers)
        case _:
            return ()


def taken_back(
    state: Conversation, command: Amendment, policy: Policy, originals: Sequence[MessageAppended]
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
            return _unpinned(state, command, originals)
        case DropRules():
            return _dropped(state, command)
        case RewindConversation():
            return rewound(state, command.to, originals)
        case RedactMessages():
            redacted = _redacted(state, command.numbers)
            return [*pending_cancelled(state), *redacted] if redacted else []


def taken_from_fork(state: Conversation, command: ForkConversation) -> list[WayBackEvent]:
    """The events by which a fork, which begins as `state`, is without what its source has taken back since."""
    events: list[WayBackEvent] = [*_redacted(state, command.redacted)]
    for event in events:
        state = in_use_after(state, event)
    revoked = [name for name in command.revoked if record_named(state, name) is not None]
    return [*events, revocation(state, *revoked)] if revoked else events


def redaction(state: Conversation, numbers: Sequence[int]) -> MessagesRedacted | None:
    """The event that redacts those of these messages that are not redacted yet; None without any.

    Raises MessageNotFound.
    """
    _require_appended(state, numbers)
    new = tuple(sorted({number for number in numbers if not state.redaction.has(number)}))
    if not new:
        return None
    gone = _made_of(state, new)
    shown = shown_without(state, gone)
    event = MessagesRedacted(new, gone, shown, short_without(state, shown))
    after = in_use_after(state, event)
    held = without(live_coverage(after), merged((*after.removed, *after.redaction.messages)))
    spelled = LedgerFinds(after.ledger.entries).without(after.redaction.has).entries
    ledger = after.ledger._replace(entries=spelled).restricted(lambda number: covers(held, number), lambda _: True)
    rules = [rule for rule in after.rules.entries if not after.redaction.has(rule.number)]
    return replace(
        event,
        finds=LedgerFinds(ledger.entries, (), ledger.limit_tokens, ledger.memory_tokens, ledger.source),
        rules=RuleFinds(
            tuple(FoundRule(rule.text, rule.number, rule.tokens, rule.doubt) for rule in rules),
            tuple(RevokedRule(rule.text, rule.number, rule.revoked_by) for rule in rules if rule.revoked_by),
            after.rules.limit_tokens,
            after.rules.source,
        ),
        dropped_rules=tuple(rule.name for rule in rules if rule.dropped),
    )


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
    return [*pending_cancelled(state), revocation(state, command.record_id)]


def revocation(state: Conversation, *record_ids: str) -> SummaryRevoked:
    """The event that takes these records out of use, and every record made from them."""
    revoked = dependents(state, record_ids)
    shown = shown_without(state, revoked)
    return SummaryRevoked(record_ids[0], revoked, shown, short_without(state, shown))


def _rated(state: Conversation, command: RateSummary) -> list[Event]:
    if record_named(state, command.record_id) is None and all(r.id != command.record_id for r in state.revoked):
        raise SummaryNotFound(command.record_id)
    return [SummaryRated(command.record_id, command.rating, command.comment)]


def _pinned(
    state: Conversation, command: PinMessages, policy: Policy, originals: Sequence[MessageAppended]
) -> list[Event]:
    _require_messages(state, command.numbers)
    chat = _chat(state, originals)
    units = tool_units(chat, tool_pairs(chat))
    wanted = state.pins.union(command.numbers)
    pinned = [m for unit in pinned_units(units, wanted) for m in unit]
    new = tuple(sorted({m.number for m in pinned} - state.pins))
    if not new:
        return []
    require_pins_fit(state, pinned, policy)
    return [*_cancelled_if_touching(state, new), MessagesPinned(new)]


def _unpinned(state: Conversation, command: UnpinMessages, originals: Sequence[MessageAppended]) -> list[Event]:
    """Any message of a unit stands for all of it: a pin keeps the whole unit, whichever of it is pinned."""
    _require_messages(state, command.numbers)
    chat = _chat(state, originals)
    units = pinned_units(tool_units(chat, tool_pairs(chat)), frozenset(command.numbers))
    gone = tuple(sorted({*command.numbers, *(m.number for unit in units for m in unit)} & state.pins))
    return [*pending_cancelled(state), MessagesUnpinned(gone)] if gone else []


def _dropped(state: Conversation, command: DropRules) -> list[Event]:
    """Drop rules that are known, or that a message of the window lays down."""
    _require_messages(state, (command.number,))
    named = [r for r in known_rules(state) if r.number == command.number and command.text in ("", r.text)]
    if not named:
        raise RuleNotFound(command.number)
    names = tuple(rule.name for rule in named if not rule.dropped)
    return [RulesDropped(names)] if names else []


def rewound(
    state: Conversation, to: int, originals: Sequence[MessageAppended], *, appended: Sequence[Message] = ()
) -> list[Event]:
    """The events that remove what follows message `to`, before others are `appended`; none if nothing does.

    Raises VersionNotReached.
    """
    if to > state.message_version:
        raise VersionNotReached(wanted=to, actual=state.message_version)
    if to == state.message_version or (
        covers(state.removed, state.message_version) and state.removed[-1].first <= to + 1
    ):
        return []
    return [*pending_cancelled(state), _rewind(state, to, originals, appended)]


def _rewind(
    state: Conversation, to: int, read: Sequence[MessageAppended], appended: Sequence[Message]
) -> ConversationRewound:
    """The event that removes what follows message `to`. Of the messages that it brings back only `read` are known.

    What is left has the newest user's message in its own words, unless that is further back than GOES_BACK_MAX records.
    """
    known = {m.number: m.message for m in (*state.window, *read)}
    newest = first = _newest_left(state, to)
    events: list[ConversationRewound] = []
    for _ in range(1 + GOES_BACK_MAX):
        revoked = dependents(state, [record.id for record in state.records if record.covered[-1].last >= first])
        shown = shown_without(state, revoked)
        event = ConversationRewound(to, revoked, shown, short_without(state, shown))
        events.append(event)
        covered = live_coverage(after := in_use_after(state, event))
        own = [message for number, message in known.items() if number <= newest and not covers(covered, number)]
        earlier = [record.covered[-1].last for record in after.records]
        is_read = not without(returning(state, event), ranges_of(known))
        if not is_read or any(message.role is Role.USER for message in (*own, *appended)):
            return event
        if not earlier:
            break
        first = max(earlier)
    return events[0]


def _back_by_rewind(
    state: Conversation, to: int, read: Sequence[MessageAppended], appended: Sequence[Message] = ()
) -> tuple[MessageRange, ...]:
    if to >= state.message_version:
        return ()
    return without(returning(state, _rewind(state, to, read, appended)), ranges_of(m.number for m in read))


def _newest_left(state: Conversation, to: int) -> int:
    """Return the newest message that a rewind leaves, which the window is to have in its own words; 0 without any."""
    for gone in reversed(state.removed):
        if covers((gone,), to):
            to = gone.first - 1
    return to


def _redacted(state: Conversation, numbers: Sequence[int]) -> list[MessagesRedacted]:
    event = redaction(state, numbers)
    return [event] if event else []


def _made_of(state: Conversation, numbers: Sequence[int]) -> tuple[str, ...]:
    """The records for which these messages were read, and those that were made of them, in use or not."""
    covered = {record.id: record.covered for record in (*state.records, *state.revoked)}
    found: dict[str, None] = {}
    # A record is committed after what it is made of.
    for ended in state.passes:
        if ended.record_id not in covered:
            continue
        read = merged((*covered[ended.record_id], *ended.plan.overlap))
        made_of = (ended.plan.base_id, *ended.plan.merged_ids)
        if any(covers(read, number) for number in numbers) or any(name in found for name in made_of):
            found[ended.record_id] = None
    return tuple(found)


def _returning(state: Conversation, events: Iterable[WayBackEvent]) -> tuple[MessageRange, ...]:
    """The messages that these events bring back, one after the other."""
    ranges: list[MessageRange] = []
    for event in events:
        ranges += returning(state, event)
        state = in_use_after(state, event)
    return merged(ranges)


def _require_appended(state: Conversation, numbers: Iterable[int]) -> None:
    for number in numbers:
        if not 1 <= number <= state.message_version:
            raise MessageNotFound(number)


def _require_messages(state: Conversation, numbers: Iterable[int]) -> None:
    for number in numbers:
        _require_appended(state, (number,))
        if covers(state.removed, number):
            raise MessageRemoved(number)


def _around(
    state: Conversation, numbers: Iterable[int], *, pins: frozenset[int] = frozenset()
) -> tuple[MessageRange, ...]:
    """The messages close enough to one of these to belong to its tool call that the window has not, or only as a mark,
    and the marks in the units of `pins`, which may have grown since they were pinned.

    Returns None if the window has them all. Messages that a rewind removed belong to nothing.
    """
    hidden, asked = _hidden(state), frozenset(numbers)
    chat = _chat(state, ())
    units = tool_units(chat, tool_pairs(chat))
    # Messages between a call and its result belong to both.
    belonging = (m for unit in pinned_units(units, asked) for m in unit)
    halves = {m.number for m in belonging if m.message.role is Role.TOOL or m.message.tool_calls}
    reaching = sorted(halves | {n for n in asked if covers(hidden, n)})
    close = common(merged(MessageRange(max(1, n - UNIT_REACH), n + UNIT_REACH) for n in reaching), hidden)
    marked = ranges_of(m.number for unit in pinned_units(units, pins) for m in unit if m.number in state.marks)
    return merged((*close, *marked))


def _rest_of_units(
    state: Conversation, numbers: Iterable[int], read: Sequence[MessageAppended]
) -> tuple[MessageRange, ...]:
    """Return the ranges to read next for the calls and results of these messages, with the gaps between those found."""
    unread = without(_hidden(state), ranges_of(m.number for m in read))
    if not unread:
        return ()
    chat = _chat(state, read)
    pairs = tool_pairs(chat)
    wanted: list[MessageRange] = []
    for unit in pinned_units(tool_units(chat, pairs), frozenset(numbers)):
        first, last = min(m.number for m in unit), max(m.number for m in unit)
        wanted.append(MessageRange(first, last))
        calls = ((m.number, place) for m in unit for place in range(len(m.message.tool_calls)))
        if any(one not in pairs.results for one in calls):
            start = next((max(r.first, first) for r in unread if r.last > first), first)
            wanted.append(MessageRange(start, start + UNIT_REACH_GROWS * (start - first)))
        if any(m.number in pairs.orphans for m in unit):
            end = next((min(r.last, last) for r in reversed(unread) if r.first < last), last)
            wanted.append(MessageRange(max(1, end - UNIT_REACH_GROWS * (last - end)), end))
    return common(merged(wanted), unread)


def _hidden(state: Conversation) -> tuple[MessageRange, ...]:
    """The ranges that the window lacks, or shows only as a mark, without those that a rewind removed."""
    covered = without(outside(state), state.removed)
    return merged((*covered, *ranges_of(n for n in state.marks if not covers(outside(state), n))))


def _chat(state: Conversation, read: Sequence[MessageAppended]) -> list[MessageAppended]:
    """The window with these messages in their places, without system messages."""
    numbers = {m.number for m in read}
    chat = [m for m in state.window if m.message.role is not Role.SYSTEM and m.number not in numbers]
    chat += (m for m in read if m.message.role is not Role.SYSTEM)
    return sorted(chat, key=attrgetter("number"))


def pending_cancelled(state: Conversation) -> list[Event]:
    """The end of a pending pass, because what it reads or continues has changed since its plan."""
    return [cancelled(state.pending.pass_id, attempts=0)] if state.pending else []


def cancelled_by_pins(state: Conversation, appended: Sequence[MessageAppended]) -> list[Event]:
    """The end of a pending pass that would cover the call of a pinned result among these new messages."""
    pinned = frozenset(m.number for m in appended if m.message.pinned and m.message.role is Role.TOOL)
    if not pinned or state.pending is None:
        return []
    chat = _chat(state, appended)
    units = pinned_units(tool_units(chat, tool_pairs(chat)), pinned)
    return _cancelled_if_touching(state, [m.number for unit in units for m in unit])


def _cancelled_if_touching(state: Conversation, numbers: Iterable[int]) -> list[Event]:
    covered = state.pending.covered if state.pending else ()
    return pending_cancelled(state) if any(covers(covered, number) for number in numbers) else []
