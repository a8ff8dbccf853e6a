"""Which pass a pass goes back to, so that its trace is found from the append that everything began with."""

from __future__ import annotations

from service.domain.conversation import Conversation
from service.domain.events import PassPlan, Trigger

__all__ = ["origin"]


def origin(state: Conversation, plan: PassPlan) -> str:
    """The id of the pass whose trigger `plan` follows from: its own, or for a remake that of the record it replaces.

    What woke a remake is a model that is back, which another conversation may have found out.
    """
    made_by = {ended.record_id: ended.plan for ended in state.passes if ended.record_id}
    while plan.trigger is Trigger.REMAKE and plan.replaces_id in made_by:
        plan = made_by[plan.replaces_id]
    return plan.pass_id
