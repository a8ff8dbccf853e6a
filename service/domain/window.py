"""What is in the window, which messages belong together, and what of it may be compressed.

A tool call and its results are one unit: a boundary never runs through it. Everything else here follows from that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from service.domain.conversation import Conversation, merged
from service.domain.events import MessageAppended
from service.domain.message import Role
from service.domain.policy import Policy
from service.domain.record import MessageRange
from service.domain.tokens import TokenSource, calibrated_tokens

__all__ = ["TAIL_MESSAGES_MIN", "ToolPairs", "WindowSplit", "compressible", "counted_tokens", "split", "tool_pairs"]

TAIL_MESSAGES_MIN = 2
"""The tail never has fewer messages: the last exchange is always verbatim."""


@dataclass(frozen=True, slots=True)
class ToolPairs:
    """Which calls and results of a message list belong together; numbers are message numbers.

    `results` maps (message number, place of the call in it) to its result's number. `pending` calls may still be
    answered; `dead` ones may not, since the user spoke after them. `orphans` are results without a call.
    """

    results: Mapping[tuple[int, int], int]
    pending: frozenset[tuple[int, int]]
    dead: frozenset[tuple[int, int]]
    orphans: frozenset[int]


@dataclass(frozen=True, slots=True)
class WindowSplit:
    """What of a window a pass would compress; the rest of it stays verbatim."""

    dropped: tuple[MessageAppended, ...]

    @property
    def ranges(self) -> tuple[MessageRange, ...]:
        """The dropped messages by number."""
        return merged(MessageRange(m.number, m.number) for m in self.dropped)


def counted_tokens(messages: Iterable[MessageAppended], factor: float) -> int:
    """What `messages` cost, estimates corrected by `factor`."""
    exact = estimated = 0
    for m in messages:
        if m.source is TokenSource.ESTIMATE:
            estimated += m.tokens
        else:
            exact += m.tokens
    return exact + calibrated_tokens(estimated, factor)


def tool_pairs(messages: Iterable[MessageAppended]) -> ToolPairs:
    """Pair every result with the nearest preceding unanswered call of its id; linear time."""
    open_calls: dict[str, list[tuple[int, int]]] = {}
    results: dict[tuple[int, int], int] = {}
    dead: set[tuple[int, int]] = set()
    orphans: set[int] = set()
    for m in messages:
        if m.message.role is Role.USER:
            dead.update(call for calls in open_calls.values() for call in calls)
            open_calls.clear()
        elif m.message.role is Role.ASSISTANT:
            for place, call in enumerate(m.message.tool_calls):
                open_calls.setdefault(call.id, []).append((m.number, place))
        elif m.message.role is Role.TOOL:
            unanswered = open_calls.get(m.message.tool_call_id)
            if unanswered:
                results[unanswered.pop()] = m.number
            else:
                orphans.add(m.number)
    pending = frozenset(call for calls in open_calls.values() for call in calls)
    return ToolPairs(results, pending, frozenset(dead), frozenset(orphans))


def compressible(state: Conversation, policy: Policy, *, tail_messages: int) -> WindowSplit | None:
    """How a pass would split the window, or None when it would not be worth one.

    It is worth one when at least one message is dropped, and the dropped messages take at least min_range_tokens.
    """
    division = split(state, policy, tail_messages=tail_messages)
    if not division.dropped:
        return None
    if counted_tokens(division.dropped, state.settings.calibration_factor) < policy.min_range_tokens:
        return None
    return division


def split(state: Conversation, policy: Policy, *, tail_messages: int) -> WindowSplit:
    """Divide the window: system messages, the tail, the newest user message and pending calls stay."""
    chat = [m for m in state.window if m.message.role is not Role.SYSTEM]
    pairs = tool_pairs(chat)
    units = _units(chat, pairs)
    kept = {m.number for m in state.window if m.message.role is Role.SYSTEM}
    kept |= _tail(units, state, policy, tail_messages)
    newest_user = next((m.number for m in reversed(chat) if m.message.role is Role.USER), None)
    must_stay = {number for number, _ in pairs.pending}
    if newest_user is not None:
        must_stay.add(newest_user)
    for unit in units:
        if any(m.number in must_stay for m in unit):
            kept.update(m.number for m in unit)
    return WindowSplit(tuple(m for m in state.window if m.number not in kept))


def _tail(units: list[list[MessageAppended]], state: Conversation, policy: Policy, tail_messages: int) -> set[int]:
    """The newest whole units within both limits, but never fewer than TAIL_MESSAGES_MIN messages."""
    tokens_max = policy.tail_token_ratio * state.budget
    kept: set[int] = set()
    tokens = 0
    for unit in reversed(units):
        cost = counted_tokens(unit, state.settings.calibration_factor)
        fits = len(kept) + len(unit) <= tail_messages and tokens + cost <= tokens_max
        if len(kept) >= TAIL_MESSAGES_MIN and not fits:
            break
        kept.update(m.number for m in unit)
        tokens += cost
    return kept


def _units(chat: list[MessageAppended], pairs: ToolPairs) -> list[list[MessageAppended]]:
    """The messages in order, in groups that a boundary may not divide: each call with everything up to its results."""
    index = {m.number: i for i, m in enumerate(chat)}
    reach = list(range(len(chat)))
    for (call_number, _), result_number in pairs.results.items():
        start = index[call_number]
        reach[start] = max(reach[start], index[result_number])
    units: list[list[MessageAppended]] = []
    end = -1
    for i, m in enumerate(chat):
        if i > end:
            units.append([])
        units[-1].append(m)
        end = max(end, reach[i])
    return units
