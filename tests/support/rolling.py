"""A profile whose window shows several records: what ROLLING needs of the seam, with its numbers as constants.

It updates the newest record until that is large enough, then begins another one, and makes one of the oldest two when
the records take too much of the budget.
"""

from __future__ import annotations

from service.domain.conversation import Conversation
from service.domain.errors import NothingToSummarize
from service.domain.events import PassPlan, SummarizationRequested, Trigger
from service.domain.policy import Policy
from service.domain.portion import compressible, prompt_tokens
from service.domain.profiles.profile import DecisionContext, HeldBy
from service.domain.ranges import merged
from service.domain.record import MessageRange
from service.domain.window import WindowSplit, summary_tokens

__all__ = [
    "MAX_SUMMARY_TOKENS",
    "RECORDS_SHARE",
    "THRESHOLD_TOKENS",
    "defaults",
    "due",
    "follow_up",
    "forced",
    "held_by",
    "trigger_ratio",
]

THRESHOLD_TOKENS = 600
MIN_NEW_MESSAGES = 5
MAX_SUMMARY_TOKENS = 100
"""A newest record of this size or more is left as it is, and the next pass begins another."""

RECORDS_SHARE = 0.3


def defaults() -> Policy:
    """See Profile."""
    return Policy(preserve_recent=4)


def trigger_ratio(state: Conversation, _policy: Policy) -> float:
    """See Profile."""
    return THRESHOLD_TOKENS / state.budget


def due(state: Conversation, context: DecisionContext, *, extractive: bool) -> SummarizationRequested | None:
    """See Profile."""
    division = _division(state, context.policy)
    if state.ratio < trigger_ratio(state, context.policy) or state.messages_since_pass < MIN_NEW_MESSAGES:
        return None
    return _requested(state, context, Trigger.RATIO, division, extractive=extractive) if division else None


def forced(state: Conversation, context: DecisionContext) -> SummarizationRequested:
    """See Profile."""
    division = _division(state, context.policy)
    if division is None:
        raise NothingToSummarize
    return _requested(state, context, Trigger.FORCED, division, extractive=False)


def follow_up(
    state: Conversation, ended: PassPlan, context: DecisionContext, *, extractive: bool
) -> SummarizationRequested | None:
    """See Profile. The oldest two records are made one, from the originals, when the records take more than theirs."""
    if len(state.shown) < 2 or summary_tokens(state) <= RECORDS_SHARE * state.budget:
        return None
    oldest, next_oldest, *others = [shown.record for shown in state.shown]
    covered = merged((*oldest.covered, *next_oldest.covered))
    plan = _plan(
        state,
        context,
        Trigger.FOLLOW_UP,
        covered=covered,
        source=covered,
        base_id="",
        replaced_tokens=summary_tokens(state, oldest.id, next_oldest.id),
        beside_ids=tuple(record.id for record in others),
        extractive=extractive,
    )
    return SummarizationRequested(plan)


def held_by(state: Conversation, policy: Policy) -> HeldBy | None:
    """See Profile."""
    if _division(state, policy) is None:
        return HeldBy.IRREDUCIBLE
    return HeldBy.COOLDOWN if state.messages_since_pass < MIN_NEW_MESSAGES else None


def _division(state: Conversation, policy: Policy) -> WindowSplit | None:
    return compressible(state, policy, tail_messages=policy.preserve_recent)


def _requested(
    state: Conversation, context: DecisionContext, trigger: Trigger, division: WindowSplit, *, extractive: bool
) -> SummarizationRequested:
    """A revision of the newest record, in its place, or another one beside it."""
    newest = state.live
    shown_ids = tuple(shown.record.id for shown in state.shown)
    revised = newest if newest is not None and newest.tokens_after < MAX_SUMMARY_TOKENS else None
    plan = _plan(
        state,
        context,
        trigger,
        covered=merged((*(revised.covered if revised else ()), *division.ranges)),
        source=division.ranges,
        base_id=revised.id if revised else "",
        replaced_tokens=division.dropped_tokens + (summary_tokens(state, revised.id) if revised else 0),
        beside_ids=shown_ids[:-1] if revised else shown_ids,
        extractive=extractive,
        covered_tokens=prompt_tokens(division.dropped, context.policy),
    )
    return SummarizationRequested(plan)


def _plan(
    state: Conversation,
    context: DecisionContext,
    trigger: Trigger,
    *,
    covered: tuple[MessageRange, ...],
    source: tuple[MessageRange, ...],
    base_id: str,
    replaced_tokens: int,
    beside_ids: tuple[str, ...],
    extractive: bool,
    covered_tokens: int = 0,
) -> PassPlan:
    return PassPlan(
        pass_id=context.next_pass_id,
        trigger=trigger,
        covered=covered,
        source=source,
        base_id=base_id,
        parent_id=base_id,
        depth=0,
        token_ratio=state.ratio,
        message_version=state.message_version,
        replaced_tokens=replaced_tokens,
        summary_tokens_max=MAX_SUMMARY_TOKENS,
        policy=context.policy,
        room_tokens=2 * MAX_SUMMARY_TOKENS,
        covered_tokens=covered_tokens,
        extractive=extractive,
        beside_ids=beside_ids,
    )
