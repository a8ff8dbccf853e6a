"""Profile EPISODES: a record for each episode, which ends where the topic shifts.

The window shows the newest episode by its long summary and older ones by their short summaries. When these take more
than their share of the budget, the oldest become one record. A message is covered by one episode, and an episode is
never made anew unless its record is revoked or stood in for a model's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import attrgetter
from typing import Final, NamedTuple

from service.domain.conversation import Conversation, ShownRecord, live_coverage
from service.domain.errors import NothingToSummarize
from service.domain.events import (
    MessageAppended,
    PassPlan,
    SkipReason,
    SummarizationRequested,
    SummarizationSkipped,
    Trigger,
)
from service.domain.message import Role
from service.domain.policy import RECORD_TOKENS_MIN, Policy, ProfileName, summary_cap
from service.domain.portion import closed_units, portion_tokens_max, prompt_tokens
from service.domain.profiles.profile import DecisionContext, HeldBy
from service.domain.ranges import covers, merged, ranges_of
from service.domain.record import FormName, MessageRange
from service.domain.tokens import TokenSource, calibrated_tokens
from service.domain.topics import topic_shifts
from service.domain.window import TAIL_MESSAGES_MIN, counted_tokens, split, tool_pairs, tool_units

__all__ = ["ahead", "defaults", "due", "follow_up", "forced", "held_by", "trigger_ratio"]

EPISODE_TOKENS_MAX: Final = 384
"""Eight long sentences and two short ones."""

MERGE_WORTH_TOKENS: Final = 2 * RECORD_TOKENS_MIN
"""Short summaries that take less could not pay for the record that is made of them."""

SEEN_BEYOND: Final = 8
"""Messages after the longest episode that the search for topic shifts looks at."""

OVERRUN: Final = 2
"""Models write more than they are asked for."""

Unit = Sequence[MessageAppended]


class _Episode(NamedTuple):
    """Messages that make an episode, and whether more could be compressed after them."""

    messages: tuple[MessageAppended, ...]
    more: bool


def defaults() -> Policy:
    """See Profile. The tail is the shortest possible: the newest episode's long summary stands before it."""
    return Policy(profile=ProfileName.EPISODES, preserve_recent=TAIL_MESSAGES_MIN, min_range_tokens=128)


def trigger_ratio(state: Conversation, policy: Policy) -> float:
    """See Profile. Messages are counted, not tokens: any ratio is past the trigger when a pass is due by count."""
    return 0.0 if _is_due(state, policy) else policy.emergency_token_ratio


def due(
    state: Conversation, context: DecisionContext, *, extractive: bool
) -> SummarizationRequested | SummarizationSkipped | None:
    """See Profile."""
    policy = context.policy
    is_emergency = state.ratio >= policy.emergency_token_ratio
    if not is_emergency and not _is_due(state, policy):
        return None
    trigger = Trigger.EMERGENCY if is_emergency else Trigger.PERIODIC
    wanted = _wanted(state, context, trigger, extractive=extractive)
    if wanted is None and is_emergency and _may_say(state, policy):
        return SummarizationSkipped(SkipReason.IRREDUCIBLE)
    return wanted


def forced(state: Conversation, context: DecisionContext) -> SummarizationRequested:
    """See Profile. An episode of any length, if it has min_range_tokens."""
    units = _units(state, context.policy, tail_messages=context.policy.preserve_recent)
    factor = state.settings.calibration_factor
    if counted_tokens(chain.from_iterable(units), factor) < context.policy.min_range_tokens:
        raise NothingToSummarize
    return _requested(state, context, Trigger.FORCED, _first(state, context.policy, units), extractive=False)


def follow_up(
    state: Conversation, ended: PassPlan, context: DecisionContext, *, extractive: bool
) -> SummarizationRequested | None:
    """See Profile. The next episode, as often as there was one left; then the merge of short summaries."""
    if ended.cut and (_is_due(state, context.policy) or state.ratio >= context.policy.emergency_token_ratio):
        return _wanted(state, context, Trigger.FOLLOW_UP, extractive=extractive)
    return _merge(state, context, Trigger.FOLLOW_UP, extractive=extractive, anything=False)


def ahead(_state: Conversation, _context: DecisionContext) -> PassPlan | None:
    """See Profile. Prepares nothing: messages trigger its passes, whatever the ratio."""
    return None


def held_by(state: Conversation, policy: Policy) -> HeldBy | None:
    """See Profile."""
    if _is_due(state, policy) or _emergency_episode(state, policy) or _old_ones(state, policy, anything=True):
        return None
    return HeldBy.IRREDUCIBLE


def _is_due(state: Conversation, policy: Policy) -> bool:
    """Whether enough messages wait to be an episode, or short summaries to be merged; whatever the topics are."""
    return bool(_old_ones(state, policy, anything=False) or _due_units(state, policy))


def _due_units(state: Conversation, policy: Policy) -> list[Unit]:
    """What may be compressed, if that is due by count or because a record was revoked; else nothing."""
    waiting = state.chat_messages - len(state.pins)
    if waiting < policy.episode_trigger_messages and not state.redo_due:
        return []
    units = _units(state, policy, tail_messages=policy.preserve_recent)
    return units if _is_worth(state, policy, units) else []


def _is_worth(state: Conversation, policy: Policy, units: Sequence[Unit]) -> bool:
    """Whether the units are an episode in length and in tokens, or as long as one may be."""
    messages = [m for unit in units for m in unit]
    tokens = counted_tokens(messages, state.settings.calibration_factor)
    if len(messages) >= policy.max_episode_size:
        return tokens >= _least_tokens(policy)
    return len(messages) >= policy.min_episode_size and tokens >= policy.min_range_tokens


def _least_tokens(policy: Policy) -> int:
    """What the smallest record needs to replace to be worth it; an episode is longer than it may be below that."""
    return int(RECORD_TOKENS_MIN / (1 - policy.min_gain)) + 1


def _wanted(
    state: Conversation, context: DecisionContext, trigger: Trigger, *, extractive: bool
) -> SummarizationRequested | None:
    """The next episode, else a merge; in an emergency of whatever there is."""
    policy = context.policy
    is_emergency = state.ratio >= policy.emergency_token_ratio
    if units := _due_units(state, policy):
        return _requested(state, context, trigger, _first(state, policy, units), extractive=extractive)
    if is_emergency and (episode := _emergency_episode(state, policy)):
        return _requested(state, context, trigger, episode, extractive=extractive)
    return _merge(state, context, trigger, extractive=extractive, anything=is_emergency)


def _emergency_episode(state: Conversation, policy: Policy) -> _Episode | None:
    """The oldest messages, however few, if a record of them makes the window smaller."""
    window = state.window_tokens + state.settings.overhead_tokens
    for tail_messages in (policy.preserve_recent, TAIL_MESSAGES_MIN):
        units = _units(state, policy, tail_messages=tail_messages)
        if not units:
            continue
        episode = _first(state, policy, units)
        replaced = _replaced_tokens(state, episode)
        fits = window - replaced + RECORD_TOKENS_MIN <= state.budget
        if replaced > (RECORD_TOKENS_MIN if fits else 2 * RECORD_TOKENS_MIN):
            return episode
    return None


def _units(state: Conversation, policy: Policy, *, tail_messages: int) -> list[Unit]:
    """What may be compressed, oldest first, in units that a boundary may not divide.

    Of a long window this looks at the beginning alone: the work is for one episode, however many messages follow.
    """
    reach = policy.max_episode_size + SEEN_BEYOND + len(state.pins)
    if state.chat_messages > 2 * reach + tail_messages:
        head = list(islice((m for m in state.window if m.message.role is not Role.SYSTEM), reach))
        if units := closed_units(state, head):
            return units
    dropped = split(state, policy, tail_messages=tail_messages).dropped
    return list(tool_units(dropped, tool_pairs(dropped)))


def _first(state: Conversation, policy: Policy, units: Sequence[Unit]) -> _Episode:
    """The first episode of the units: to a topic shift or to its greatest length, at unit boundaries."""
    seen = units[: policy.max_episode_size + SEEN_BEYOND]
    messages = [m for unit in seen for m in unit]
    shifts = {messages[place].number for place in topic_shifts([m.message for m in messages])}
    coverage = live_coverage(state)
    factor, limit = state.settings.calibration_factor, portion_tokens_max(state, policy)
    taken: list[MessageAppended] = []
    tokens = read = 0
    for unit in units:
        cost = prompt_tokens(unit, policy)
        if taken:
            shifted = unit[0].number in shifts or _lies_between(coverage, taken[-1].number, unit[0].number)
            whole = len(taken) >= policy.min_episode_size and tokens >= policy.min_range_tokens
            full = len(taken) + len(unit) > policy.max_episode_size or read + cost > limit
            if (shifted and whole) or (full and tokens >= _least_tokens(policy)):
                break
        taken.extend(unit)
        tokens += counted_tokens(unit, factor)
        read += cost
    episode = tuple(sorted(taken, key=attrgetter("number")))
    return _Episode(episode, more=len(taken) < sum(map(len, units)))


def _lies_between(coverage: tuple[MessageRange, ...], before: int, after: int) -> bool:
    """Whether another episode lies between two messages."""
    return after > before + 1 and any(covers(coverage, number) for number in (before + 1, after - 1))


def _replaced_tokens(state: Conversation, episode: _Episode) -> int:
    """What leaves the window for the record: messages, and the long summary that is shown in short beside it."""
    short = _short_ids(state, episode.messages[-1].number)
    collapsed = [s for s in state.shown if s.record.id in short and not s.short]
    dropped = counted_tokens(episode.messages, state.settings.calibration_factor)
    return dropped + _tokens(state, collapsed) - _tokens(state, [s._replace(short=True) for s in collapsed])


def _requested(
    state: Conversation, context: DecisionContext, trigger: Trigger, episode: _Episode, *, extractive: bool
) -> SummarizationRequested:
    """The pass that makes an episode's record."""
    policy = context.policy
    covered = ranges_of(m.number for m in episode.messages)
    replaced = _replaced_tokens(state, episode)
    cap, room = _sizes(state, policy, replaced)
    left = state.chat_messages - len(state.pins) - len(episode.messages)
    more = episode.more and (left >= policy.episode_trigger_messages or state.ratio >= policy.emergency_token_ratio)
    plan = replace(
        _plan(state, context, trigger, covered, replaced=replaced, extractive=extractive),
        summary_tokens_max=cap,
        room_tokens=room,
        covered_tokens=prompt_tokens(episode.messages, policy),
        cut=more,
        beside_ids=tuple(shown.record.id for shown in state.shown),
        form=FormName.EPISODE,
        short_ids=_short_ids(state, covered[-1].last),
        overlap=_overlap(state, policy, covered[0].first),
    )
    return SummarizationRequested(plan)


def _plan(
    state: Conversation,
    context: DecisionContext,
    trigger: Trigger,
    covered: tuple[MessageRange, ...],
    *,
    replaced: int,
    extractive: bool,
) -> PassPlan:
    """A plan without sizes. No record of this profile continues another, so each reads all that it covers."""
    return PassPlan(
        pass_id=context.next_pass_id,
        trigger=trigger,
        covered=covered,
        source=covered,
        base_id="",
        parent_id="",
        depth=0,
        token_ratio=state.ratio,
        message_version=state.message_version,
        replaced_tokens=replaced,
        summary_tokens_max=0,
        policy=context.policy,
        extractive=extractive,
    )


def _short_ids(state: Conversation, last: int) -> tuple[str, ...]:
    """The records that are shown in short beside one that ends at message `last`: all but the newest of them all."""
    return tuple(
        shown.record.id for shown in state.shown if shown.record.short_summary and shown.record.covered[-1].last < last
    ) + tuple(shown.record.id for shown in state.shown[:-1] if shown.short and shown.record.covered[-1].last > last)


def _overlap(state: Conversation, policy: Policy, first: int) -> tuple[MessageRange, ...]:
    """The last messages of the episode before message `first`."""
    before = [shown.record for shown in state.shown if shown.record.covered[-1].last < first]
    if not before:
        return ()
    left = policy.episode_overlap
    found: list[MessageRange] = []
    for r in reversed(max(before, key=lambda record: record.covered[-1].last).covered):
        if not left:
            break
        found.append(MessageRange(max(r.first, r.last - left + 1), r.last))
        left -= len(found[-1])
    return tuple(reversed(found))


def _sizes(state: Conversation, policy: Policy, replaced: int) -> tuple[int, int]:
    """The size that a record should have, and the one at which it would not pay."""
    factor = max(1.0, state.settings.calibration_factor)
    gaining = max(RECORD_TOKENS_MIN, int((1 - policy.min_gain) * replaced / factor))
    cap = min(EPISODE_TOKENS_MAX, gaining, summary_cap(policy, budget=state.budget, replaced_tokens=replaced))
    return cap, max(cap, min(gaining, OVERRUN * cap))


def _merge(
    state: Conversation, context: DecisionContext, trigger: Trigger, *, extractive: bool, anything: bool
) -> SummarizationRequested | None:
    """The pass that makes one record of the oldest ones, if they take more than their share."""
    policy = context.policy
    old = _old_ones(state, policy, anything=anything)
    if not old:
        return None
    records = [shown.record for shown in old]
    covered = merged(chain.from_iterable(record.covered for record in records))
    replaced = _tokens(state, old)
    cap = max(RECORD_TOKENS_MIN, min(replaced // 2, int(policy.episode_token_ratio * state.budget / 4)))
    beside = [shown for shown in state.shown if shown not in old]
    plan = replace(
        _plan(state, context, trigger, covered, replaced=replaced, extractive=extractive),
        summary_tokens_max=cap,
        room_tokens=max(cap, int((1 - policy.min_gain) * replaced / max(1.0, state.settings.calibration_factor))),
        covered_tokens=sum(record.covered_tokens for record in records),
        rewrites=max(record.rewrites for record in records) + 1,
        beside_ids=tuple(shown.record.id for shown in beside),
        form=FormName.DIGEST,
        short_ids=tuple(shown.record.id for shown in beside if shown.short),
        merged_ids=tuple(record.id for record in records),
    )
    return SummarizationRequested(plan)


def _old_ones(state: Conversation, policy: Policy, *, anything: bool) -> tuple[ShownRecord, ...]:
    """The oldest records to merge: as many as bring the others to half of their share, or all of them.

    The newest record is never among them.
    """
    older = state.shown[:-1]
    share = policy.episode_token_ratio * state.budget
    total = _tokens(state, older)
    if len(older) < 2 or total < MERGE_WORTH_TOKENS or (total <= share and not anything):
        return ()
    if anything:
        return older
    for count in range(2, len(older)):
        taken = _tokens(state, older[:count])
        if total - taken <= share / 2 and taken >= MERGE_WORTH_TOKENS:
            return older[:count]
    return older


def _tokens(state: Conversation, shown: Iterable[ShownRecord]) -> int:
    """What records take as they are shown, estimates corrected."""
    factor = state.settings.calibration_factor
    return sum(calibrated_tokens(s.tokens, factor) if s.source is TokenSource.ESTIMATE else s.tokens for s in shown)


def _may_say(state: Conversation, policy: Policy) -> bool:
    """Irreducible is said once, and again only after cooldown_messages more: never a loop."""
    said_at = state.irreducible_said_at
    return said_at is None or state.message_version - said_at >= max(1, policy.cooldown_messages)
