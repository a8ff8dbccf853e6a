"""The notice of a pass: what would leave the window if the pass came now, so that a caller can pin it first.

The notice is derived from a state and has no event: it holds from `notice_token_ratio` up to the trigger.
"""

from __future__ import annotations

from typing import NamedTuple

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import SummarizationCleared
from abridged.service.domain.policy import Policy
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.ranges import partitioned, ranges_of, without
from abridged.service.domain.record import MessageRange


class PassAhead(NamedTuple):
    """A pass that is near.

    Attributes:
        leaving: The messages that would leave the window.
        clears: True if they are tool results that would leave marks, and no record would be made.
        token_ratio: The ratio now.
        trigger_token_ratio: The ratio that triggers the pass.
        message_version: The conversation's messages now.
    """

    leaving: tuple[MessageRange, ...]
    clears: bool
    token_ratio: float
    trigger_token_ratio: float
    message_version: int


def may_be_near(state: Conversation, policy: Policy, now_us: int) -> bool:
    """Return whether the ratio allows a notice; looks at no message."""
    if not policy.enabled or not policy.notice_token_ratio or state.closed or state.due_pass or state.waiting(now_us):
        return False
    return policy.notice_token_ratio <= state.ratio < policy.trigger_token_ratio


def pass_ahead(state: Conversation, context: DecisionContext) -> PassAhead | None:
    """The pass that is near; None below the policy's notice_token_ratio, at the trigger, and if none would come.

    Takes time linear in the window.
    """
    policy = context.policy
    event = context.profile.ahead(state, context) if may_be_near(state, policy, context.now_us) else None
    if event is None:
        return None
    inside, _ = partitioned(state.window, without(event.plan.covered, ranges_of(state.pins)))
    return PassAhead(
        leaving=ranges_of(m.number for m in inside),
        clears=isinstance(event, SummarizationCleared),
        token_ratio=state.ratio,
        trigger_token_ratio=policy.trigger_token_ratio,
        message_version=state.message_version,
    )
