"""Profile CHAIN: one record, made from the previous one and newer messages, when the ratio is past its trigger.

A plan does not change once it is made: messages that arrive during the pass stay in the tail.
"""

from __future__ import annotations

from dataclasses import replace

from abridged.service.domain.amendments_fold import with_marks
from abridged.service.domain.chunks import calls_needed
from abridged.service.domain.clearing import clearable, freed_tokens, marks_that_suffice
from abridged.service.domain.conversation import Conversation, lineage, live_coverage
from abridged.service.domain.errors import DepthLimitReached, NothingToSummarize
from abridged.service.domain.events import (
    PassPlan,
    SkipReason,
    SummarizationCleared,
    SummarizationRequested,
    SummarizationSkipped,
    Trigger,
)
from abridged.service.domain.policy import SUMMARY_TOKENS_MAX, DepthLimit, Policy, ProfileName
from abridged.service.domain.portion import compressible, prompt_tokens
from abridged.service.domain.profiles.profile import DecisionContext, HeldBy, may_report_irreducible, planned
from abridged.service.domain.ranges import merged, ranges_of, without
from abridged.service.domain.record import MessageRange, SummaryRecord
from abridged.service.domain.sizes import ledger_tokens_expected, record_sizes, room_tokens, rules_tokens
from abridged.service.domain.tokens import calibrated_tokens
from abridged.service.domain.whereabouts import receipt_of_clearing
from abridged.service.domain.window import TAIL_MESSAGES_MIN, TailRoom, WindowSplit, summary_tokens

TAIL_ROOM = 0.95
"""Share of the room that a pass plans with: record and ledger may come out larger than expected."""

_CLEARING = frozenset({Trigger.RATIO, Trigger.EMERGENCY})
"""Triggers of a window that is too full. A summary that was asked for is always made."""


def defaults() -> Policy:
    return Policy(profile=ProfileName.CHAIN)


def trigger_ratio(_state: Conversation, policy: Policy) -> float:
    return policy.trigger_token_ratio


def due(
    state: Conversation, context: DecisionContext, *, extractive: bool
) -> SummarizationRequested | SummarizationCleared | SummarizationSkipped | None:
    """Reports IRREDUCIBLE and DEPTH_LIMIT once per window, never in a loop."""
    policy = context.policy
    past_trigger = state.ratio >= policy.trigger_token_ratio
    refresh_due = _refresh_due(state, policy)
    if not past_trigger and not refresh_due:
        return None
    trigger = _trigger(state, policy, past_trigger=past_trigger, refresh_due=refresh_due)
    if trigger is Trigger.RATIO and context.now_us < _warm_until_us(state, policy):
        return None
    cleared = _cleared(state, context, trigger)
    if cleared is not None:
        return cleared
    division = _division(state, policy, whole=extractive, roomy=past_trigger)
    if division is None:
        says = past_trigger and may_report_irreducible(state, messages=policy.cooldown_messages)
        return SummarizationSkipped(SkipReason.IRREDUCIBLE) if says else None
    if trigger is None:
        return None
    if _halted(state, policy):
        return None if state.depth_limit_said else SummarizationSkipped(SkipReason.DEPTH_LIMIT)
    if trigger is Trigger.RATIO and _frees_little(state, policy, division):
        return None
    return _requested(state, context, trigger, division, extractive=extractive)


def forced(state: Conversation, context: DecisionContext) -> SummarizationRequested:
    division = compressible(state, context.policy, tail_messages=context.policy.preserve_recent)
    if division is None:
        raise NothingToSummarize
    if _halted(state, context.policy):
        raise DepthLimitReached
    return _requested(state, context, Trigger.FORCED, division)


def follow_up(
    state: Conversation, ended: PassPlan, context: DecisionContext, *, extractive: bool
) -> SummarizationRequested | None:
    """Plan a pass with a tail of two; after a cut range, plan the rest of it, as often as necessary.

    The pass may exceed the maximum depth by one, because it finishes the pass before it.
    """
    policy = context.policy
    if state.ratio < policy.trigger_token_ratio:
        return None
    if ended.trigger is Trigger.FOLLOW_UP and (not ended.cut or _halted(state, policy)):
        return None
    division = _division(state, policy, whole=extractive) if ended.cut else None
    division = division or compressible(state, policy, tail_messages=TAIL_MESSAGES_MIN, whole=extractive)
    if division is None:
        return None
    return _requested(state, context, Trigger.FOLLOW_UP, division, extractive=extractive)


def closing(_state: Conversation, _context: DecisionContext, *, extractive: bool) -> None:  # noqa: ARG001 - see Profile
    """Return no plan: a closed window stays as it is."""
    return


def idle_from_us(state: Conversation, policy: Policy) -> int:
    """The time at which the cache has cooled that a pass waits for, if nothing else holds it."""
    if not policy.defer_while_warm_s or not policy.enabled or state.closed or state.pending:
        return 0
    waits = state.ratio >= policy.trigger_token_ratio and held_by(state, policy) is HeldBy.CACHE_WARM
    return _warm_until_us(state, policy) if waits else 0


def ahead(state: Conversation, context: DecisionContext) -> SummarizationRequested | SummarizationCleared | None:
    policy = context.policy
    trigger = _trigger(state, policy, past_trigger=True, refresh_due=False)
    if trigger is not Trigger.RATIO:
        return None
    cleared = _cleared(state, context, trigger)
    if cleared is not None or _halted(state, policy):
        return cleared
    division = _division(state, policy)
    if division is None or _frees_little(state, policy, division):
        return None
    return _requested(state, context, trigger, division)


def held_by(state: Conversation, policy: Policy) -> HeldBy | None:
    trigger = _trigger(state, policy, past_trigger=True, refresh_due=_refresh_due(state, policy))
    held = HeldBy.CACHE_WARM if trigger is Trigger.RATIO and _warm_until_us(state, policy) else None
    if trigger in _CLEARING and marks_that_suffice(state, policy):
        return held
    division = _division(state, policy)
    if division is None:
        return HeldBy.IRREDUCIBLE
    if _halted(state, policy):
        return HeldBy.DEPTH_LIMIT
    if trigger is Trigger.RATIO and _frees_little(state, policy, division):
        return HeldBy.FREES_LITTLE
    if trigger:
        return held
    return _not_due(state, policy) or HeldBy.HYSTERESIS


def _cleared(state: Conversation, context: DecisionContext, trigger: Trigger | None) -> SummarizationCleared | None:
    """The pass without a model, if marks in the place of old tool results are all that the window needs."""
    marks = marks_that_suffice(state, context.policy) if trigger in _CLEARING else ()
    if not marks or trigger is None:
        return None
    cleared = ranges_of(mark.number for mark in marks)
    plan = planned(state, context, trigger, cleared, replaced_tokens=freed_tokens(state, marks))
    plan = replace(plan, source=(), depth=state.live.depth if state.live else 0)
    return SummarizationCleared(plan, marks, receipt_of_clearing(state, with_marks(state, marks)))


def _requested(
    state: Conversation,
    context: DecisionContext,
    trigger: Trigger,
    division: WindowSplit,
    *,
    extractive: bool = False,
) -> SummarizationRequested:
    policy = context.policy
    live = state.live
    replaced_tokens, cap, room = _sizes(state, policy, division)
    plan = replace(
        planned(state, context, trigger, division.ranges, replaced_tokens=replaced_tokens, extractive=extractive),
        base_id=live.id if live else "",
        parent_id=live.id if live else "",
        depth=_next_depth(state),
        summary_tokens_max=cap,
        room_tokens=room,
        covered_tokens=prompt_tokens(division.dropped, policy),
        rewrites=live.rewrites + 1 if live else 0,
        cut=division.cut,
        form=policy.record_form,
        left_out=_left_out(state, division) if room_tokens(state, policy) else 0,
    )
    if plan.depth < policy.max_summary_chain_depth or policy.on_depth_limit is DepthLimit.HALT:
        return SummarizationRequested(plan)
    return SummarizationRequested(_rebased(state, plan))


def _sizes(state: Conversation, policy: Policy, division: WindowSplit) -> tuple[int, int, int]:
    """The tokens that a record replaces, the size that it should have, and the one at which it would miss its aim."""
    replaced_tokens = division.dropped_tokens + summary_tokens(state)
    sizes = record_sizes(state, policy, kept_tokens=division.kept_tokens, replaced_tokens=replaced_tokens)
    return replaced_tokens, *sizes


def _frees_little(state: Conversation, policy: Policy, division: WindowSplit) -> bool:
    """Return whether a pass whose record has its size would free so little that the window had better fill up first."""
    replaced_tokens, cap, _ = _sizes(state, policy, division)
    record_tokens = calibrated_tokens(cap, max(1.0, state.settings.calibration_factor))
    return replaced_tokens - record_tokens < policy.min_freed_token_ratio * (state.budget - state.settings.overhead)


def _left_out(state: Conversation, division: WindowSplit) -> int:
    return sum(map(len, live_coverage(state))) + len(division.dropped)


def _trigger(state: Conversation, policy: Policy, *, past_trigger: bool, refresh_due: bool) -> Trigger | None:
    if state.ratio >= policy.emergency_token_ratio:
        return Trigger.EMERGENCY
    if _not_due(state, policy):
        return None
    if refresh_due:
        return Trigger.PERIODIC
    return Trigger.RATIO if past_trigger and _is_armed(state, policy) else None


def _warm_until_us(state: Conversation, policy: Policy) -> int:
    """The time up to which an advisable pass leaves a cached prompt as it is; 0 if none waits, and once the window is
    halfway from its trigger to its emergency: the pass takes its time, and messages come meanwhile."""
    has_room = state.ratio < (policy.trigger_token_ratio + policy.emergency_token_ratio) / 2
    defers = policy.defer_while_warm_s and has_room
    return state.updated_us + policy.defer_while_warm_s * 1_000_000 if defers else 0


def _not_due(state: Conversation, policy: Policy) -> HeldBy | None:
    if state.chat_messages_ever < policy.min_messages:
        return HeldBy.MIN_MESSAGES
    if state.completed_passes and not state.redo_due and state.messages_since_pass < policy.cooldown_messages:
        return HeldBy.COOLDOWN
    return None


def _is_armed(state: Conversation, policy: Policy) -> bool:
    return (
        not state.completed_passes
        or state.redo_due
        or state.lowest_ratio_since_pass < policy.reset_token_ratio
        or state.messages_since_pass >= policy.rearm_messages
    )


def _next_depth(state: Conversation) -> int:
    return state.live.depth + 1 if state.live else 0


def _halted(state: Conversation, policy: Policy) -> bool:
    """Return whether the chain has its maximum depth and the policy does not allow a new one."""
    return policy.on_depth_limit is DepthLimit.HALT and _next_depth(state) >= policy.max_summary_chain_depth


def _refresh_due(state: Conversation, policy: Policy) -> bool:
    return 0 < policy.force_refresh_after_messages <= state.messages_since_pass


def _division(state: Conversation, policy: Policy, *, whole: bool = False, roomy: bool = True) -> WindowSplit | None:
    """Divide the window for a pass; in an emergency, if necessary, take all but the last exchange.

    A `roomy` pass keeps a longer tail where there is room. One that is due below the trigger keeps the usual one, or it
    would have nothing to take.
    """
    room = _tail_room(state, policy) if roomy else None
    division = compressible(state, policy, tail_messages=policy.preserve_recent, whole=whole, room=room)
    if division is None and state.ratio >= policy.emergency_token_ratio:
        return compressible(state, policy, tail_messages=TAIL_MESSAGES_MIN, whole=whole)
    return division


def _tail_room(state: Conversation, policy: Policy) -> TailRoom | None:
    """Return the room for a longer tail beside a record as large as the last, the rules, and a ledger that grows.

    Results that the pass clears count as their marks, so the tail reaches back further where tools return much.
    """
    most = room_tokens(state, policy)
    if not most:
        return None
    record_tokens = summary_tokens(state) or SUMMARY_TOKENS_MAX
    cleared = {mark.number: mark.tokens for mark in clearable(state, policy)}
    beside = record_tokens + rules_tokens(state) + ledger_tokens_expected(state, policy)
    return TailRoom(int(TAIL_ROOM * most) - beside, cleared)


def _rebased(state: Conversation, plan: PassPlan) -> PassPlan:
    """The plan of a record that stands alone, so that errors of the old chain do not accumulate.

    The record is made of all originals if that takes one call. The plan otherwise continues the least rewritten record
    for which one call holds the originals since, of the chain or of those that stood alone before it, and counts one
    rewrite more. Past `rewrites_max` it may spend up to `rebase_calls_max` calls.
    """
    policy, chain = plan.policy, lineage(state)
    covered = [*live_coverage(state), *plan.covered]
    whole = plan.covered_tokens + sum(record.covered_tokens for record in chain)
    rebase = replace(plan, covered=merged(covered), covered_tokens=whole, rebase=True)

    def calls(tokens: int) -> int:
        return calls_needed(tokens, chunk_tokens=policy.max_input_tokens, summary_tokens=plan.summary_tokens_max)

    base, since = _cheap_base(chain, plan)
    most = policy.rebase_calls_max if base.rewrites >= policy.rewrites_max else 1
    if calls(whole) <= most:
        return replace(rebase, base_id="", source=rebase.covered, depth=0, rewrites=0)
    for record in state.records:
        good = record.stands_alone and record.id not in state.fallback_ids | state.successors.keys()
        if good and record.rewrites < base.rewrites and calls(whole - record.covered_tokens) <= most:
            base, since = record, without(rebase.covered, record.covered)
    return replace(rebase, base_id=base.id, source=since, depth=1, rewrites=base.rewrites + 1)


def _cheap_base(chain: tuple[SummaryRecord, ...], plan: PassPlan) -> tuple[SummaryRecord, tuple[MessageRange, ...]]:
    """The least rewritten record whose later originals fit one call, with those originals; else the newest record."""
    since, tokens = list(plan.covered), plan.covered_tokens
    best, read = chain[0], merged(since)
    for record in chain:
        if tokens > plan.policy.max_input_tokens:
            break
        if record.rewrites < best.rewrites:
            best, read = record, merged(since)
        since.extend(record.covered)
        tokens += record.covered_tokens
    return best, read
