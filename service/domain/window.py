"""Says which messages a window holds, which belong together, and which may be compressed.

A tool call and its results are one unit, which no boundary divides. Everything else here follows from that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.message import Role
from abridged.service.domain.policy import RECORD_TOKENS_MIN, Policy, largest_summary
from abridged.service.domain.record import MessageRange
from abridged.service.domain.sizes import RUNWAY, aimed_tokens, ledger_tokens, rules_tokens
from abridged.service.domain.tokens import TokenSource, calibrated_tokens

TAIL_MESSAGES_MIN = 2
"""The fewest messages of a tail, so that the last exchange is verbatim, unless it alone exceeds the budget."""


class OpenCalls(NamedTuple):
    """The calls of a message list whose result may still come, by id: those that wait for it, and those to which it
    would come late."""

    waiting: Mapping[str, tuple[tuple[int, int], ...]] = MappingProxyType({})
    overdue: Mapping[str, tuple[tuple[int, int], ...]] = MappingProxyType({})


NO_OPEN_CALLS = OpenCalls()


@dataclass(frozen=True, slots=True)
class ToolPairs:
    """The calls and results of a message list that belong together, by message number.

    Attributes:
        results: The result's number by (message number, place of the call in it).
        pending: Calls that wait for their result.
        dead: Calls that no longer wait: the user has spoken since, or another call has taken over their id.
        late: Answered calls whose result came after the user had spoken.
        orphans: Results without a call.
        open_calls: The calls that the pairs of further messages depend on.
    """

    results: Mapping[tuple[int, int], int]
    pending: frozenset[tuple[int, int]]
    dead: frozenset[tuple[int, int]]
    late: frozenset[tuple[int, int]]
    orphans: frozenset[int]
    open_calls: OpenCalls


class TailRoom(NamedTuple):
    """Room for a tail of more than its number of messages.

    Attributes:
        tokens: Most tokens of the window without its record and ledger, overhead included.
        cleared: The tokens of the marks that the pass puts in the place of tool results, by message number.
    """

    tokens: int
    cleared: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class WindowSplit:
    """The messages that a pass would compress; the rest of the window stays verbatim.

    `kept_tokens` is the window without the dropped messages, a summary, rules and ledger, overhead included. A `cut`
    split leaves to follow-ups what could be dropped too, and its `kept_tokens` are those of the last of them.
    """

    dropped: tuple[MessageAppended, ...]
    dropped_tokens: int
    kept_tokens: int
    cut: bool = False

    @property
    def ranges(self) -> tuple[MessageRange, ...]:
        """The dropped messages by number."""
        runs: list[list[int]] = []
        for m in self.dropped:
            if runs and m.number == runs[-1][1] + 1:
                runs[-1][1] = m.number
            else:
                runs.append([m.number, m.number])
        return tuple(MessageRange(first, last) for first, last in runs)


def counted_tokens(messages: Iterable[MessageAppended], factor: float) -> int:
    """Tokens of `messages`, estimates corrected by `factor`."""
    exact = estimated = 0
    for m in messages:
        if m.source is TokenSource.ESTIMATE:
            estimated += m.tokens
        else:
            exact += m.tokens
    return exact + calibrated_tokens(estimated, factor)


def tool_pairs(messages: Iterable[MessageAppended], before: OpenCalls = NO_OPEN_CALLS) -> ToolPairs:
    """Pair every result with the nearest preceding unanswered call of its id; linear time.

    `before` are the open calls of the messages before these.
    """
    open_calls = {call_id: [*calls] for call_id, calls in before.waiting.items()}
    overdue = {call_id: [*calls] for call_id, calls in before.overdue.items()}
    results: dict[tuple[int, int], int] = {}
    dead: set[tuple[int, int]] = set()
    late: set[tuple[int, int]] = set()
    orphans: set[int] = set()
    for m in messages:
        if m.message.role is Role.USER:
            for call_id, calls in open_calls.items():
                overdue.setdefault(call_id, []).extend(calls)
            open_calls.clear()
        elif m.message.role is Role.ASSISTANT:
            for place, call in enumerate(m.message.tool_calls):
                # Ids may be reused: a result does not belong to an old call.
                dead.update(overdue.pop(call.id, ()))
                open_calls.setdefault(call.id, []).append((m.number, place))
        elif m.message.role is Role.TOOL:
            if unanswered := open_calls.get(m.message.tool_call_id):
                results[unanswered.pop()] = m.number
            elif unanswered := overdue.get(m.message.tool_call_id):
                late.add(unanswered[-1])
                results[unanswered.pop()] = m.number
            else:
                orphans.add(m.number)
    pending = frozenset(call for calls in open_calls.values() for call in calls)
    dead.update(call for calls in overdue.values() for call in calls)
    left = OpenCalls(
        *({call_id: tuple(calls) for call_id, calls in of.items() if calls} for of in (open_calls, overdue))
    )
    return ToolPairs(results, pending, frozenset(dead), frozenset(late), frozenset(orphans), left)


def summary_tokens(state: Conversation, *record_ids: str) -> int:
    """Tokens of the named records in the window, or of all, estimates corrected."""
    others = tuple(shown for shown in state.shown if record_ids and shown.record.id not in record_ids)
    return state.window_tokens - state._replace(shown=others).window_tokens


def relieved_ratio(policy: Policy) -> float:
    """The ratio up to which less than a whole pass suffices: below the reset ratio, with a runway to the trigger."""
    return min(policy.reset_token_ratio, policy.trigger_token_ratio - RUNWAY)


def split(state: Conversation, policy: Policy, *, tail_messages: int, room: TailRoom | None = None) -> WindowSplit:
    """Divide the window. System messages, pins, the tail, the newest user message and pending calls stay.

    The tail is what fits beside these and the largest record into a window of the size that the pass aims at; with a
    tail_token_ratio of 0 its number of messages alone bounds it. The tail is longer while there is `room`.
    """
    factor = state.settings.calibration_factor
    chat = [m for m in state.window if m.message.role is not Role.SYSTEM]
    pairs = tool_pairs(chat)
    units = tool_units(chat, pairs)
    bound = _bound(units, pairs, state.pins)
    system_tokens = counted_tokens((m for m in state.window if m.message.role is Role.SYSTEM), factor)
    fixed = state.settings.overhead + system_tokens
    tail = _Tail(units, bound, fixed, factor)
    kept = tail.kept(state, policy, tail_messages)
    if room is not None:
        tail.lengthen(kept, room, policy.tail_token_ratio * state.budget or room.tokens)
    left_out = {m.number for i, unit in enumerate(units) if i not in kept for m in unit}
    dropped = tuple(m for m in chat if m.number in left_out)
    dropped_tokens = counted_tokens(dropped, factor)
    return WindowSplit(dropped, dropped_tokens, fixed + counted_tokens(chat, factor) - dropped_tokens)


def pinned_units(units: Iterable[Sequence[MessageAppended]], pins: Collection[int]) -> list[Sequence[MessageAppended]]:
    """The units with a pinned message: a pinned call keeps its results, and a pinned result its call."""
    return [unit for unit in units if any(m.number in pins for m in unit)]


def _bound(units: list[list[MessageAppended]], pairs: ToolPairs, pins: frozenset[int]) -> frozenset[int]:
    """Places of the units that always stay: the newest user message, calls without a result, pins."""
    must_stay = {number for number, _ in pairs.pending} | pins
    users = [m.number for unit in units for m in unit if m.message.role is Role.USER]
    must_stay.update(users[-1:])
    return frozenset(i for i, unit in enumerate(units) if any(m.number in must_stay for m in unit))


class _Tail:
    """The newest whole units that stay verbatim. `bound` ones stay wherever they are."""

    def __init__(
        self, units: list[list[MessageAppended]], bound: frozenset[int], fixed_tokens: int, factor: float
    ) -> None:
        self._units = units
        self._bound = bound
        self._costs = [counted_tokens(unit, factor) for unit in units]
        self._fixed_tokens = fixed_tokens
        self._tokens = fixed_tokens + sum(self._costs[i] for i in bound)
        self._factor = factor

    def kept(self, state: Conversation, policy: Policy, tail_messages: int) -> set[int]:
        """Places of everything that stays."""
        share_left = policy.tail_token_ratio * state.budget
        around = largest_summary(policy, budget=state.budget) + rules_tokens(state) + ledger_tokens(state)
        aim = aimed_tokens(state, policy) - around
        kept = set(self._bound)
        messages = 0
        for i in reversed(range(len(self._units))):
            cost, newest = self._costs[i], self._newest(i)
            more = 0 if i in self._bound else cost
            if messages < TAIL_MESSAGES_MIN:
                stays = not messages or not self._breaks(more, state.budget)
            else:
                fits = not policy.tail_token_ratio or (cost <= share_left and self._tokens + more <= aim)
                stays = messages + newest <= tail_messages and fits
            if not stays:
                break
            kept.add(i)
            messages += newest
            share_left -= cost
            self._tokens += more
        return kept

    def lengthen(self, kept: set[int], room: TailRoom, tail_tokens_max: float) -> None:
        """Add to the `kept` places those before them, while there is room for what they cost after the pass."""
        left = room.tokens - self._fixed_tokens - sum(self._cost_after(i, room.cleared) for i in kept)
        share_left = tail_tokens_max
        for i in reversed(range(len(self._units))):
            cost = self._cost_after(i, room.cleared)
            if i not in kept:
                if cost > min(left, share_left):
                    break
                kept.add(i)
                left -= cost
            share_left -= cost

    def _cost_after(self, i: int, cleared: Mapping[int, int]) -> int:
        """Tokens of a unit with marks in the place of its `cleared` results."""
        if not any(m.number in cleared for m in self._units[i]):
            return self._costs[i]
        left = (
            m._replace(tokens=cleared[m.number], source=TokenSource.ESTIMATE) if m.number in cleared else m
            for m in self._units[i]
        )
        return counted_tokens(left, self._factor)

    def _newest(self, i: int) -> int:
        """Count a unit's messages that are newer than the unit before it: an old call does not count towards the
        tail."""
        before = self._units[i - 1][-1].number if i else 0
        return sum(m.number > before for m in self._units[i])

    def _breaks(self, more: int, budget: int) -> bool:
        """Return whether these tokens alone take the window over its budget, however small the record."""
        room = budget - self._tokens - RECORD_TOKENS_MIN
        return 0 <= room < more


def tool_units(chat: Sequence[MessageAppended], pairs: ToolPairs) -> list[list[MessageAppended]]:
    """The messages in groups that no boundary may divide, by their newest message: each call with everything up to its
    results.

    A late result is grouped with its call, but not with what was said in between, possibly for days.
    """
    if not pairs.results:
        return [[m] for m in chat]
    index = {m.number: i for i, m in enumerate(chat)}
    reach = list(range(len(chat)))
    for call, result_number in pairs.results.items():
        if call not in pairs.late:
            start = index[call[0]]
            reach[start] = max(reach[start], index[result_number])
    units: list[list[MessageAppended]] = []
    unit_of: dict[int, int] = {}
    end = -1
    for i, m in enumerate(chat):
        if i > end:
            units.append([])
        units[-1].append(m)
        unit_of[m.number] = len(units) - 1
        end = max(end, reach[i])
    return _joined(units, [(unit_of[call[0]], unit_of[pairs.results[call]]) for call in pairs.late])


def _joined(units: list[list[MessageAppended]], pairs: Iterable[tuple[int, int]]) -> list[list[MessageAppended]]:
    """The units, each joined with the later ones it is paired with; about linear, by union-find."""
    parent = list(range(len(units)))

    def found(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for one, other in pairs:
        earlier, later = sorted((found(one), found(other)))
        parent[earlier] = later
    joined: dict[int, list[MessageAppended]] = {place: [] for place in range(len(units)) if parent[place] == place}
    for place, unit in enumerate(units):
        joined[found(place)].extend(unit)
    return list(joined.values())
