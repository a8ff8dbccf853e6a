"""Profile EPISODES: a record for each episode, which ends where the topic shifts.

The window shows the newest episode by its long summary and older ones by their short summaries. The oldest short
summaries become one record when they take more than their share of the budget. A message is covered by one episode, and
an episode is never made anew unless its record is revoked or stood in for a model's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple

from abridged.service.domain.conversation import Conversation, ShownRecord
from abridged.service.domain.errors import NothingToSummarize
from abridged.service.domain.events import (
    MessageAppended,
    PassPlan,
    SkipReason,
    SummarizationRequested,
    SummarizationSkipped,
    Trigger,
)
from abridged.service.domain.policy import RECORD_TOKENS_MIN, Policy, ProfileName, summary_cap
from abridged.service.domain.portion import portion_tokens_max, prompt_tokens
from abridged.service.domain.profiles.profile import DecisionContext, HeldBy, may_report_irreducible, planned
from abridged.service.domain.ranges import merged, ranges_of
from abridged.service.domain.record import FormName, MessageRange
from abridged.service.domain.sizes import LEDGER_WITHOUT_ROOM, OVERRUN
from abridged.service.domain.stretch import SEEN_BEYOND, Stretch, least_tokens, rest, stretch, tokens_of
from abridged.service.domain.tokens import TokenSource, calibrated_tokens
from abridged.service.domain.topics import topic_shifts
from abridged.service.domain.window import TAIL_MESSAGES_MIN, counted_tokens

EPISODE_TOKENS_MAX: Final = 384
"""Eight long sentences and two short ones."""

MERGE_WORTH_TOKENS: Final = 2 * RECORD_TOKENS_MIN
"""Short summaries that take less could not pay for the record that is made of them."""

SILENCE_US: Final = 3_600_000_000
"""An hour without an event ends a conversation for now: what is left becomes an episode, so that it can be found."""


class _Episode(NamedTuple):
    """Messages that make an episode, and whether more could be compressed after them."""

    messages: tuple[MessageAppended, ...]
    more: bool


def defaults() -> Policy:
    """The tail is the shortest possible: the newest episode's long summary stands before it."""
    return Policy(
        profile=ProfileName.EPISODES,
        preserve_recent=TAIL_MESSAGES_MIN,
        min_range_tokens=128,
        max_ledger_tokens=LEDGER_WITHOUT_ROOM,
    )


def trigger_ratio(state: Conversation, policy: Policy) -> float:
    """Messages are counted, not tokens: any ratio is past the trigger when a pass is due by count."""
    return 0.0 if _is_due(state, policy) else policy.emergency_token_ratio


def due(
    state: Conversation, context: DecisionContext, *, extractive: bool
) -> SummarizationRequested | SummarizationSkipped | None:
    policy = context.policy
    is_emergency = state.ratio >= policy.emergency_token_ratio
    if not is_emergency and not _is_due(state, policy):
        if not 0 < idle_from_us(state, policy) <= context.now_us:
            return None
        found = stretch(state, policy, tail_messages=policy.preserve_recent)
        return _rest(state, context, Trigger.PERIODIC, found, extractive=extractive)
    trigger = Trigger.EMERGENCY if is_emergency else Trigger.PERIODIC
    wanted = _wanted(state, context, trigger, extractive=extractive)
    if wanted is None and is_emergency and may_report_irreducible(state, messages=policy.cooldown_messages):
        return SummarizationSkipped(SkipReason.IRREDUCIBLE)
    return wanted


def forced(state: Conversation, context: DecisionContext) -> SummarizationRequested:
    """An episode of any length, if it has min_range_tokens."""
    found = stretch(state, context.policy, tail_messages=context.policy.preserve_recent)
    if tokens_of(state, found.units) < context.policy.min_range_tokens:
        raise NothingToSummarize
    return _requested(state, context, Trigger.FORCED, _first(state, context.policy, found), extractive=False)


def closing(state: Conversation, context: DecisionContext, *, extractive: bool) -> SummarizationRequested | None:
    """Plan all messages that no episode covers, the tail too, in as many episodes as it takes."""
    return _rest(state, context, Trigger.PERIODIC, rest(state, context.policy), extractive=extractive)


def idle_from_us(state: Conversation, _policy: Policy) -> int:
    """No pass is due of a tail alone, or of a window of which an episode was tried."""
    last = state.passes[-1] if state.passes else None
    tried = last is not None and not last.record_id and last.plan.message_version == state.message_version
    waiting = state.chat_messages - len(state.pins) > TAIL_MESSAGES_MIN
    is_due = waiting and not tried and not state.closed and not state.pending
    return state.updated_us + SILENCE_US if is_due else 0


def follow_up(
    state: Conversation, ended: PassPlan, context: DecisionContext, *, extractive: bool
) -> SummarizationRequested | None:
    """The next episode, as often as there was one left; then the merge of short summaries."""
    if state.closed:
        return _rest(state, context, Trigger.FOLLOW_UP, rest(state, context.policy), extractive=extractive)
    if ended.cut and (_is_due(state, context.policy) or state.ratio >= context.policy.emergency_token_ratio):
        return _wanted(state, context, Trigger.FOLLOW_UP, extractive=extractive)
    return _merge(state, context, Trigger.FOLLOW_UP, extractive=extractive, anything=False)


def ahead(_state: Conversation, _context: DecisionContext) -> None:
    """Foresees nothing: messages trigger its passes, whatever the ratio."""
    return


def held_by(state: Conversation, policy: Policy) -> HeldBy | None:
    if _is_due(state, policy) or _emergency_episode(state, policy) or _old_ones(state, policy, anything=True):
        return None
    return HeldBy.IRREDUCIBLE


def _is_due(state: Conversation, policy: Policy) -> bool:
    """Return whether enough messages wait to be an episode, or short summaries to be merged; whatever the topics
    are."""
    return bool(_old_ones(state, policy, anything=False) or _due_stretch(state, policy))


def _due_stretch(state: Conversation, policy: Policy) -> Stretch | None:
    """Return the stretch that may be compressed, if that is due by count or because a record was revoked."""
    waiting = state.chat_messages - len(state.pins)
    if waiting < policy.episode_trigger_messages and not state.redo_due:
        return None
    found = stretch(state, policy, tail_messages=policy.preserve_recent)
    return found if _is_worth(state, policy, found) else None


def _is_worth(state: Conversation, policy: Policy, found: Stretch) -> bool:
    """Return whether a stretch is an episode in length and in tokens, or as long as one may be."""
    tokens = tokens_of(state, found.units)
    if found.messages >= policy.max_episode_size:
        return tokens >= least_tokens(policy)
    return found.messages >= policy.min_episode_size and tokens >= policy.min_range_tokens


def _rest(
    state: Conversation, context: DecisionContext, trigger: Trigger, found: Stretch, *, extractive: bool
) -> SummarizationRequested | None:
    """Return an episode of the messages without one, however few, if its record is smaller."""
    if tokens_of(state, found.units) < least_tokens(context.policy):
        return None
    return _requested(state, context, trigger, _first(state, context.policy, found), extractive=extractive)


def _wanted(
    state: Conversation, context: DecisionContext, trigger: Trigger, *, extractive: bool
) -> SummarizationRequested | None:
    """The next episode, else a merge; in an emergency of whatever there is."""
    policy = context.policy
    is_emergency = state.ratio >= policy.emergency_token_ratio
    if found := _due_stretch(state, policy):
        return _requested(state, context, trigger, _first(state, policy, found), extractive=extractive)
    if is_emergency and (episode := _emergency_episode(state, policy)):
        return _requested(state, context, trigger, episode, extractive=extractive)
    return _merge(state, context, trigger, extractive=extractive, anything=is_emergency)


def _emergency_episode(state: Conversation, policy: Policy) -> _Episode | None:
    """The oldest messages, however few, if a record of them makes the window smaller."""
    window = state.window_tokens + state.settings.overhead
    for tail_messages, whole in ((policy.preserve_recent, True), (TAIL_MESSAGES_MIN, True), (TAIL_MESSAGES_MIN, False)):
        found = stretch(state, policy, tail_messages=tail_messages, whole=whole)
        if not found.units:
            continue
        episode = _first(state, policy, found)
        replaced = _replaced_tokens(state, episode)
        fits = window - replaced + RECORD_TOKENS_MIN <= state.budget
        if replaced > (RECORD_TOKENS_MIN if fits else 2 * RECORD_TOKENS_MIN):
            return episode
    return None


def _first(state: Conversation, policy: Policy, found: Stretch) -> _Episode:
    """The first episode of a stretch: to a topic shift or to its greatest length. A shift within an exchange begins
    with its question."""
    seen = found.units[: policy.max_episode_size + SEEN_BEYOND]
    messages = [m for unit in seen for m in unit]
    shifts = {messages[place].number for place in topic_shifts([m.message for m in messages])}
    factor, limit = state.settings.calibration_factor, portion_tokens_max(state, policy)
    taken: list[MessageAppended] = []
    tokens = read = 0
    for unit in found.units:
        cost = prompt_tokens(unit, policy)
        if taken:
            shifted = any(m.number in shifts for m in unit)
            whole = len(taken) >= policy.min_episode_size and tokens >= policy.min_range_tokens
            full = len(taken) + len(unit) > policy.max_episode_size or read + cost > limit
            if (shifted and whole) or (full and tokens >= least_tokens(policy)):
                break
        taken.extend(unit)
        tokens += counted_tokens(unit, factor)
        read += cost
    episode = tuple(sorted(taken, key=attrgetter("number")))
    return _Episode(episode, more=len(taken) < found.messages + found.others)


def _replaced_tokens(state: Conversation, episode: _Episode) -> int:
    """Count the tokens that leave the window for the record: messages, and the long summary that is shown in short
    beside it."""
    short = _short_ids(state, episode.messages[-1].number)
    collapsed = [s for s in state.shown if s.record.id in short and not s.short]
    dropped = counted_tokens(episode.messages, state.settings.calibration_factor)
    return dropped + _tokens(state, collapsed) - _tokens(state, [s._replace(short=True) for s in collapsed])


def _requested(
    state: Conversation, context: DecisionContext, trigger: Trigger, episode: _Episode, *, extractive: bool
) -> SummarizationRequested:
    policy = context.policy
    covered = ranges_of(m.number for m in episode.messages)
    replaced = _replaced_tokens(state, episode)
    cap, room = _sizes(state, policy, replaced)
    left = state.chat_messages - len(state.pins) - len(episode.messages)
    more = episode.more and (left >= policy.episode_trigger_messages or state.ratio >= policy.emergency_token_ratio)
    plan = replace(
        planned(state, context, trigger, covered, replaced_tokens=replaced, extractive=extractive),
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
        planned(state, context, trigger, covered, replaced_tokens=replaced, extractive=extractive),
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
    """Count the tokens of records as they are shown, estimates corrected."""
    factor = state.settings.calibration_factor
    return sum(calibrated_tokens(s.tokens, factor) if s.source is TokenSource.ESTIMATE else s.tokens for s in shown)
