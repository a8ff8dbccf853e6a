"""Selects what a pass takes from the window: all that may be compressed, or the oldest part within its limits.

The rest is left to follow-ups and not looked at, so the work depends on what the pass reads, not on how many messages
wait.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import attrgetter

from abridged.service.domain.chunks import calls_needed
from abridged.service.domain.conversation import Conversation, EndedPass
from abridged.service.domain.events import ErrorClass, MessageAppended, Trigger
from abridged.service.domain.message import Role
from abridged.service.domain.policy import RECORD_TOKENS_MIN, Policy, ToolOutput, largest_summary
from abridged.service.domain.sizes import aimed_tokens, ledger_tokens, rules_tokens
from abridged.service.domain.tokens import TRANSCRIPT_FRAME_TOKENS
from abridged.service.domain.window import (
    TailRoom,
    WindowSplit,
    counted_tokens,
    split,
    summary_tokens,
    tool_pairs,
    tool_units,
)

PLANNED_SHARE = 0.5
"""Share of a pass's calls that a range may plan with; the rest is for repairs and for parts that messages do not
fill."""

FAILURES_SEEN = 8
"""Recent failures of model calls that halve the range, each once: it was too long for the pass's time."""

_TOO_LONG = frozenset({ErrorClass.TRANSPORT, ErrorClass.TRUNCATED})


def compressible(
    state: Conversation,
    policy: Policy,
    *,
    tail_messages: int,
    whole: bool = False,
    room: TailRoom | None = None,
) -> WindowSplit | None:
    """Splits the window as a pass would; None if it would not be worth one.

    A pass is worth it if it drops at least one message and at least min_range_tokens. A pass in an emergency is worth
    it if what it drops, with the summary, clearly exceeds the smallest record, or exceeds it at all if the window needs
    no more. The split is cut to what one pass may read, unless extraction takes the `whole`.
    """
    limit = sys.maxsize if whole else portion_tokens_max(state, policy)
    far_end = _head(state, policy, limit=limit, tail_messages=tail_messages)
    if far_end is not None:
        return far_end
    division = split(state, policy, tail_messages=tail_messages, room=room)
    if not division.dropped:
        return None
    if state.ratio >= policy.emergency_token_ratio:
        fits = division.kept_tokens + RECORD_TOKENS_MIN <= state.budget
        worth = RECORD_TOKENS_MIN if fits else 2 * RECORD_TOKENS_MIN
        if division.dropped_tokens + summary_tokens(state) <= worth:
            return None
    elif division.dropped_tokens < policy.min_range_tokens:
        return None
    return _cut(division, state, policy, limit=limit)


def portion_tokens_max(state: Conversation, policy: Policy) -> int:
    """Return the most tokens of a range in prompts, so that the pass has the calls and the time to read it."""
    calls = max(1, int(policy.pass_calls_max * PLANNED_SHARE))
    chunk, size = policy.max_input_tokens, largest_summary(policy, budget=state.budget)
    parts = bisect_right(
        range(1, calls + 1), calls, key=lambda n: calls_needed(n * chunk, chunk_tokens=chunk, summary_tokens=size)
    )
    newest = islice(reversed(state.passes), FAILURES_SEEN)
    return max(_least_tokens(policy), max(1, parts) * chunk >> sum(_was_too_long(ended) for ended in newest))


def prompt_tokens(messages: Iterable[MessageAppended], policy: Policy) -> int:
    """Tokens of messages in the prompts of a long source, with tool results capped if the policy says so."""
    return sum(cost for _, cost in _costed(messages, policy))


def _costed(messages: Iterable[MessageAppended], policy: Policy) -> Iterator[tuple[MessageAppended, int]]:
    most = {
        ToolOutput.FULL: sys.maxsize,
        ToolOutput.CAPPED: policy.tool_output_tokens_max,
        ToolOutput.OMITTED: 0,
    }[policy.tool_output]
    for m in messages:
        # A pass reads the original of a cleared result.
        original = m.cleared_tokens or m.tokens
        tokens = min(original, most) if m.message.role is Role.TOOL else original
        yield m, tokens + TRANSCRIPT_FRAME_TOKENS


def _least_tokens(policy: Policy) -> int:
    """A shorter range would not pay for its record."""
    return max(policy.min_range_tokens, 2 * RECORD_TOKENS_MIN)


def _was_too_long(ended: EndedPass) -> bool:
    """Return whether a pass may have failed because of its range's length: not if its host was never reached."""
    if ended.plan.trigger is Trigger.REMAKE:
        return False
    return ended.error_class is ErrorClass.INVALID or (ended.asked and ended.error_class in _TOO_LONG)


def _head(state: Conversation, policy: Policy, *, limit: int, tail_messages: int) -> WindowSplit | None:
    """The oldest messages up to the limit, if at least as many and a tail follow them; None if all must be looked at.

    A follow-up continues after such a range, so its record gets the size for a window that is where it should be.
    """
    head: list[MessageAppended] = []
    tokens = 0
    for m, cost in _costed((m for m in state.window if m.message.role is not Role.SYSTEM), policy):
        head.append(m)
        tokens += cost
        if tokens > limit:
            break
    if tokens <= limit or state.chat_messages - len(head) < len(head) + tail_messages:
        return None
    dropped = _oldest(closed_units(state, head), policy, limit=limit)
    if prompt_tokens(dropped, policy) < _least_tokens(policy):
        return None
    around = largest_summary(policy, budget=state.budget) + rules_tokens(state) + ledger_tokens(state)
    kept_tokens = max(0, aimed_tokens(state, policy) - around)
    return WindowSplit(dropped, counted_tokens(dropped, state.settings.calibration_factor), kept_tokens, cut=True)


def closed_units(state: Conversation, head: Sequence[MessageAppended]) -> list[Sequence[MessageAppended]]:
    """The units of a window's first messages that may be compressed whatever follows them, oldest first.

    A call without a result within `head` may have it later: messages after the call are left out.
    """
    pairs = tool_pairs(head)
    open_from = min((number for number, _ in pairs.pending), default=sys.maxsize)
    newest_user = next((m.number for m in reversed(state.window) if m.message.role is Role.USER), 0)
    return [
        unit
        for unit in tool_units(head, pairs)
        if unit[-1].number < open_from
        and not unit[0].number <= newest_user <= unit[-1].number
        and not any(m.number in state.pins for m in unit)
    ]


def _cut(division: WindowSplit, state: Conversation, policy: Policy, *, limit: int) -> WindowSplit:
    """The split, dropping no more than the limit allows."""
    if prompt_tokens(division.dropped, policy) <= limit:
        return division
    dropped = _oldest(tool_units(division.dropped, tool_pairs(division.dropped)), policy, limit=limit)
    if len(dropped) == len(division.dropped):
        return division
    dropped_tokens = counted_tokens(dropped, state.settings.calibration_factor)
    return replace(division, dropped=dropped, dropped_tokens=dropped_tokens, cut=True)


def _oldest(
    candidates: Iterable[Sequence[MessageAppended]], policy: Policy, *, limit: int
) -> tuple[MessageAppended, ...]:
    """Whole units, oldest first, up to the limit; more if they would not be worth a pass."""
    least, tokens = _least_tokens(policy), 0
    taken: list[MessageAppended] = []
    for unit in candidates:
        cost = prompt_tokens(unit, policy)
        if tokens >= least and tokens + cost > limit:
            break
        taken.extend(unit)
        tokens += cost
    return tuple(sorted(taken, key=attrgetter("number")))
