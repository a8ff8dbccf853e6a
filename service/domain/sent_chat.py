"""The messages that a chat's model got last, up to the last that a pass reads: its server may have them cached."""

from __future__ import annotations

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import PassPlan, Trigger
from abridged.service.domain.message import Message
from abridged.service.domain.ranges import partitioned
from abridged.service.domain.record import FormName
from abridged.service.domain.render import rendered_window

_OF_A_CHAT = frozenset({FormName.FACETS, FormName.TEXT})


def sent_up_to(state: Conversation, plan: PassPlan) -> tuple[Message, ...]:
    """The window as it is sent, up to the last message that the plan reads; empty if the plan reads anything else.

    A plan does so in a remake or a rebase, whose messages have left the window, with cleared tool results, for records
    of episodes, and beside records that it does not continue.
    """
    last = max((r.last for r in plan.source), default=0)
    inside, _ = partitioned(state.window, plan.source)
    whole = len(inside) == sum(map(len, plan.source)) and not any(m.cleared_tokens for m in inside)
    continued = [shown.record.id for shown in state.shown] == [plan.base_id] * bool(plan.base_id)
    if not whole or not continued or plan.rebase or plan.trigger is Trigger.REMAKE or plan.form not in _OF_A_CHAT:
        return ()
    window = rendered_window(state, plan.policy.summary_role)
    end = 1 + max((place for place, m in enumerate(window) if 0 < m.number <= last), default=-1)
    prompt = state.settings.system_prompt
    return (*((prompt.message,) if prompt else ()), *(m.message for m in window[:end]))
