"""The rules of profile CHAIN: whether a pass is due, and what it will do; pure.

A plan is fixed when it is made: what arrives during the pass stays in the tail, whatever it is.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from service.domain.chunks import calls_needed
from service.domain.conversation import Conversation, lineage, live_coverage, merged
from service.domain.events import Event, PassPlan, SkipReason, SummarizationRequested, SummarizationSkipped, Trigger
from service.domain.policy import DepthLimit, Policy, summary_cap
from service.domain.record import SummaryRecord
from service.domain.window import TAIL_MESSAGES_MIN, WindowSplit, compressible, counted_tokens

__all__ = ["HeldBy", "followed_up", "held_by", "remade", "requested", "ruled"]


class HeldBy(StrEnum):
    """Why a window past its trigger is left as it is. The values are the words of the contract."""

    PASS_PENDING = "PASS_PENDING"  # noqa: S105 - a state, not a password
    DISABLED = "DISABLED"
    WAITING_AFTER_FAILURE = "WAITING_AFTER_FAILURE"
    IRREDUCIBLE = "IRREDUCIBLE"
    DEPTH_LIMIT = "DEPTH_LIMIT"
    MIN_MESSAGES = "MIN_MESSAGES"
    COOLDOWN = "COOLDOWN"
    HYSTERESIS = "HYSTERESIS"


def ruled(state: Conversation, policy: Policy, pass_id: str, now_us: int) -> list[Event]:
    """The rules of profile CHAIN, in their order: at most one event."""
    if not policy.enabled or state.pending or state.waiting(now_us):
        return []
    past_trigger = state.ratio >= policy.trigger_token_ratio
    refresh_due = _refresh_due(state, policy)
    if not past_trigger and not refresh_due:
        return []
    division = compressible(state, policy, tail_messages=policy.preserve_recent)
    if division is None:
        return [SummarizationSkipped(SkipReason.IRREDUCIBLE)] if past_trigger and _may_say(state, policy) else []
    trigger = _trigger(state, policy, past_trigger=past_trigger, refresh_due=refresh_due)
    if trigger is None:
        return []
    event = requested(state, policy, trigger, division, pass_id)
    if isinstance(event, SummarizationSkipped) and state.depth_limit_said:
        return []
    return [event]


def held_by(state: Conversation, policy: Policy, now_us: int) -> HeldBy | None:
    """Why a window past its trigger is left as it is now; None below the trigger, and when nothing holds it."""
    if state.ratio < policy.trigger_token_ratio:
        return None
    if state.pending:
        return HeldBy.PASS_PENDING
    if not policy.enabled:
        return HeldBy.DISABLED
    if state.waiting(now_us):
        return HeldBy.WAITING_AFTER_FAILURE
    if compressible(state, policy, tail_messages=policy.preserve_recent) is None:
        return HeldBy.IRREDUCIBLE
    if _halted(state, policy):
        return HeldBy.DEPTH_LIMIT
    if _trigger(state, policy, past_trigger=True, refresh_due=_refresh_due(state, policy)):
        return None
    return _not_due(state, policy) or HeldBy.HYSTERESIS


def followed_up(state: Conversation, policy: Policy, pass_id: str) -> list[Event]:
    """One more pass right after a record, when that was not enough and a tail of two messages would free some."""
    if not policy.enabled or state.ratio < policy.trigger_token_ratio:
        return []
    division = compressible(state, policy, tail_messages=TAIL_MESSAGES_MIN)
    return [] if division is None else [requested(state, policy, Trigger.FOLLOW_UP, division, pass_id)]


def requested(
    state: Conversation, policy: Policy, trigger: Trigger, division: WindowSplit, pass_id: str
) -> SummarizationRequested | SummarizationSkipped:
    """The pass, planned; or the news that the chain is as deep as it may be."""
    if _halted(state, policy):
        return SummarizationSkipped(SkipReason.DEPTH_LIMIT)
    live = state.live
    ranges = division.ranges
    dropped_tokens = counted_tokens(division.dropped, state.settings.calibration_factor)
    replaced_tokens = dropped_tokens + state.window_tokens - _window_without_summary(state)
    plan = PassPlan(
        pass_id=pass_id,
        trigger=trigger,
        covered=ranges,
        source=ranges,
        base_id=live.id if live else "",
        parent_id=live.id if live else "",
        depth=_next_depth(state),
        token_ratio=state.ratio,
        message_version=state.message_version,
        replaced_tokens=replaced_tokens,
        summary_tokens_max=summary_cap(policy, budget=state.budget, dropped_tokens=dropped_tokens),
        policy=policy,
    )
    if plan.depth < policy.max_summary_chain_depth:
        return SummarizationRequested(plan)
    return SummarizationRequested(_rebased(state, plan))


def remade(state: Conversation, fallback: SummaryRecord, policy: Policy, pass_id: str) -> SummarizationRequested:
    """A pass over the range of `fallback`, the live record, which takes its place in the chain."""
    plan = PassPlan(
        pass_id=pass_id,
        trigger=Trigger.REMAKE,
        covered=fallback.covered,
        source=fallback.covered,
        base_id=fallback.parent_id if fallback.depth > 0 else "",
        parent_id=fallback.parent_id,
        depth=fallback.depth,
        token_ratio=state.ratio,
        message_version=state.message_version,
        replaced_tokens=fallback.tokens_after,
        summary_tokens_max=fallback.tokens_after,
        policy=policy,
        rebase=fallback.depth == 0 and fallback.parent_id != "",
        replaces_id=fallback.id,
    )
    return SummarizationRequested(plan)


def _trigger(state: Conversation, policy: Policy, *, past_trigger: bool, refresh_due: bool) -> Trigger | None:
    if state.ratio >= policy.emergency_token_ratio:
        return Trigger.EMERGENCY
    if _not_due(state, policy):
        return None
    if refresh_due:
        return Trigger.PERIODIC
    return Trigger.RATIO if past_trigger and _is_armed(state, policy) else None


def _not_due(state: Conversation, policy: Policy) -> HeldBy | None:
    if state.chat_messages < policy.min_messages:
        return HeldBy.MIN_MESSAGES
    if state.completed_passes and state.messages_since_pass < policy.cooldown_messages:
        return HeldBy.COOLDOWN
    return None


def _is_armed(state: Conversation, policy: Policy) -> bool:
    return (
        not state.completed_passes
        or state.lowest_ratio_since_pass < policy.reset_token_ratio
        or state.messages_since_pass >= policy.rearm_messages
    )


def _next_depth(state: Conversation) -> int:
    return state.live.depth + 1 if state.live else 0


def _halted(state: Conversation, policy: Policy) -> bool:
    """Whether the chain is as deep as it may be, and no new one is to be begun."""
    return policy.on_depth_limit is DepthLimit.HALT and _next_depth(state) >= policy.max_summary_chain_depth


def _refresh_due(state: Conversation, policy: Policy) -> bool:
    return 0 < policy.force_refresh_after_messages <= state.messages_since_pass


def _may_say(state: Conversation, policy: Policy) -> bool:
    """Irreducible is said once, and again only after cooldown_messages more: never a loop."""
    said_at = state.irreducible_said_at
    return said_at is None or state.message_version - said_at >= max(1, policy.cooldown_messages)


def _rebased(state: Conversation, plan: PassPlan) -> PassPlan:
    """The plan at depth 0, from all originals if few calls suffice, else from the newest depth-0 record and since.

    The record stands for everything that has left the window, so nothing of the old chain is needed beside it.
    """
    ranges, policy = plan.covered, plan.policy
    everything = merged([*live_coverage(state), *ranges])
    plan = replace(plan, depth=0, rebase=True, covered=everything)
    if calls_needed(state.original_tokens, chunk_tokens=policy.max_input_tokens) <= policy.rebase_calls_max:
        return replace(plan, base_id="", source=everything)
    root = lineage(state)[-1]
    since = [r for record in lineage(state)[:-1] for r in record.covered]
    return replace(plan, base_id=root.id, source=merged([*since, *ranges]))


def _window_without_summary(state: Conversation) -> int:
    return counted_tokens(state.window, state.settings.calibration_factor)
