"""Prepares a record before its trigger: plans it, and judges whether the prepared record suffices.

No function here leads to an event before the trigger.
"""

from __future__ import annotations

from dataclasses import replace

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import PassPlan, SummarizationCompleted, SummarizationRequested, Trigger
from abridged.service.domain.fold import evolve
from abridged.service.domain.policy import Policy
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.sizes import ledger_tokens_max, rules_tokens_max
from abridged.service.domain.window import relieved_ratio

GROWN_SHARE = 0.5
"""Growth of a range before it is prepared again, as a share of its tokens in prompts."""


def may_prepare(state: Conversation, policy: Policy) -> bool:
    """Return whether the ratio allows a preparation; looks at no message."""
    if not policy.enabled or not policy.prepare_token_ratio or state.pending is not None or state.closed:
        return False
    return policy.prepare_token_ratio <= state.ratio < policy.trigger_token_ratio


def preparable(state: Conversation, context: DecisionContext) -> PassPlan | None:
    """The plan to prepare, under the id `next_pass_id`; None if the rules would not have a model make a record."""
    if not may_prepare(state, context.policy) or state.waiting(context.now_us):
        return None
    event = context.profile.ahead(state, context)
    return event.plan if isinstance(event, SummarizationRequested) else None


def has_grown(plan: PassPlan, *, since: PassPlan) -> bool:
    """Return whether `plan` reads enough more than `since` for another preparation."""
    return plan.base_id != since.base_id or plan.covered_tokens >= (1 + GROWN_SHARE) * since.covered_tokens


def suffices(state: Conversation, completed: SummarizationCompleted, now_us: int) -> bool:
    """Return whether a record of only a part of the pending range leaves the window as a cleared one: below its reset
    ratio, with a runway to the next trigger.

    A forced or periodic pass must summarize all of its range.
    """
    plan = state.pending
    if plan is None or plan.pass_id != completed.pass_id or plan.trigger not in (Trigger.RATIO, Trigger.EMERGENCY):
        return False
    share = ledger_tokens_max(state, plan.policy)
    rules_share = rules_tokens_max(state, plan.policy)
    completed = replace(
        completed,
        finds=completed.finds._replace(limit_tokens=share, memory_tokens=share),
        rules=completed.rules._replace(limit_tokens=rules_share),
    )
    return evolve(state, completed, now_us).ratio <= relieved_ratio(plan.policy)
