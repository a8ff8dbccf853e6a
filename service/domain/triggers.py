"""Decides whether a pass begins: the rules that all profiles share, around those of the conversation's own.

Disabled, pending and waiting are checked first. A wait after failures only holds back model calls: past the emergency
ratio extraction still serves at once.
"""

from __future__ import annotations

from dataclasses import replace

from abridged.service.domain.conversation import Conversation, current_id
from abridged.service.domain.events import (
    ErrorClass,
    Event,
    PassPlan,
    SummarizationCleared,
    SummarizationFailed,
    SummarizationRequested,
    Trigger,
)
from abridged.service.domain.policy import RECORD_TOKENS_MIN, Fallback, Policy
from abridged.service.domain.profiles.profile import DecisionContext, HeldBy
from abridged.service.domain.profiles.registry import profile_of
from abridged.service.domain.record import SummaryRecord
from abridged.service.domain.window import summary_tokens


def ruled(state: Conversation, context: DecisionContext) -> list[Event]:
    """Return the decision of the rules: at most one pass, and the end of a remake that would delay it; empty while
    closed."""
    if state.closed or not context.policy.enabled:
        return []
    if state.pending is None:
        return _due(state, context)
    if state.due_pass:
        return []
    return superseded(state.pending, _due(state._replace(pending=None), context))


def closed_with(state: Conversation, context: DecisionContext) -> list[Event]:
    """The pass with which a conversation closes, if its profile wants one; by extraction while models may not be asked
    and it may always stand in."""
    waits = state.waiting(context.now_us)
    if not context.policy.enabled or (waits and context.policy.fallback is not Fallback.ALWAYS):
        return []
    event = context.profile.closing(state, context, extractive=waits)
    return [event] if event else []


def followed_up(state: Conversation, ended: PassPlan, context: DecisionContext) -> list[Event]:
    """The follow-up of the pass that `ended` planned, if there should be one. A remake has none."""
    if not context.policy.enabled or ended.trigger is Trigger.REMAKE or _is_barred(state, context):
        return []
    event = context.profile.follow_up(state, ended, context, extractive=state.waiting(context.now_us))
    return [event] if event else []


def superseded(remake: PassPlan, events: list[Event]) -> list[Event]:
    """`events`, preceded by the end of a pending remake if they request a pass."""
    if not any(isinstance(event, SummarizationRequested) for event in events):
        return []
    return [cancelled(remake.pass_id, attempts=0), *events]


def cancelled(pass_id: str, *, attempts: int) -> SummarizationFailed:
    """The end of a pass that is no longer wanted. The end is not a failure: nothing waits because of it."""
    return SummarizationFailed(
        pass_id, ErrorClass.CANCELLED, attempts=attempts, retryable=True, wait_messages=0, wait_until_us=0
    )


def held_by(state: Conversation, policy: Policy, now_us: int) -> HeldBy | None:
    """The reason why a window past its trigger stays as it is; None below the trigger, if nothing holds it, or while
    closed."""
    profile = profile_of(policy.profile)
    if state.closed or state.ratio < profile.trigger_ratio(state, policy):
        return None
    if state.due_pass:
        return HeldBy.PASS_PENDING
    if not policy.enabled:
        return HeldBy.DISABLED
    if state.waiting(now_us) and not may_stand_in(state, policy):
        return HeldBy.WAITING_AFTER_FAILURE
    held = profile.held_by(state, policy)
    has_cooled = held is HeldBy.CACHE_WARM and now_us >= idle_from_us(state, policy)
    return None if has_cooled else held


def idle_from_us(state: Conversation, policy: Policy) -> int:
    """Return the time at which the rules have to be asked again if nothing happens, in microseconds since the epoch; 0
    for never."""
    return profile_of(policy.profile).idle_from_us(state, policy)


def may_stand_in(state: Conversation, policy: Policy) -> bool:
    """Return whether extraction serves at once while no model may be asked; only once for the same window."""
    if state.closed or policy.fallback is Fallback.NEVER or state.ratio < policy.emergency_token_ratio:
        return False
    last = state.passes[-1] if state.passes else None
    if last is None or not last.plan.extractive or last.record_id:
        return True
    return last.plan.message_version < state.message_version


def remade(state: Conversation, fallback: SummaryRecord, context: DecisionContext) -> SummarizationRequested | None:
    """A pass that has a model remake `fallback`, at the size of the original plan.

    Returns None if the window has no room for a record of that size: it would be past its trigger.
    """
    plan = next(ended.plan for ended in reversed(state.passes) if ended.record_id == fallback.id)
    room = max(plan.room_tokens, plan.summary_tokens_max)
    shown_ids = [shown.record.id for shown in state.shown]
    beside = [shown for shown in state.shown if shown.record.id != fallback.id] if fallback.id in shown_ids else []
    if fallback.id in shown_ids:
        kept_tokens = state.ratio * state.budget - summary_tokens(state, fallback.id)
        room = min(room, int(context.profile.trigger_ratio(state, context.policy) * state.budget - kept_tokens) - 1)
    if room < RECORD_TOKENS_MIN:
        return None
    return SummarizationRequested(
        replace(
            plan,
            pass_id=context.next_pass_id,
            trigger=Trigger.REMAKE,
            base_id=current_id(state, plan.base_id),
            merged_ids=tuple(current_id(state, name) for name in plan.merged_ids),
            token_ratio=state.ratio,
            message_version=state.message_version,
            summary_tokens_max=min(plan.summary_tokens_max, room),
            room_tokens=room,
            policy=context.policy,
            replaces_id=fallback.id,
            beside_ids=tuple(shown.record.id for shown in beside),
            short_ids=tuple(shown.record.id for shown in beside if shown.short),
            extractive=False,
        )
    )


def _due(state: Conversation, context: DecisionContext) -> list[Event]:
    event = context.profile.due(state, context, extractive=state.waiting(context.now_us))
    if event is None or (_is_barred(state, context) and not isinstance(event, SummarizationCleared)):
        return []
    return [event]


def _is_barred(state: Conversation, context: DecisionContext) -> bool:
    """Return whether failures hold back any pass, since extraction may not serve either."""
    return state.waiting(context.now_us) and not may_stand_in(state, context.policy)
