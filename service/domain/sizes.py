"""How large the record of a pass should be, and how large it may be."""

from __future__ import annotations

from service.domain.conversation import Conversation
from service.domain.policy import RECORD_TOKENS_MIN, SUMMARY_TOKENS_MIN, Policy, summary_cap

__all__ = ["record_sizes"]

OVERRUN = 2
"""Models write more than they are asked for; a record of more than twice its size would leave the next pass no room."""


def record_sizes(state: Conversation, policy: Policy, *, kept_tokens: int, replaced_tokens: int) -> tuple[int, int]:
    """The size that a record should have, and the size at which it would miss what the pass is for.

    `kept_tokens` is what the window costs without the record and what it replaces, overhead included. The window is to
    end below its trigger. Where what stays leaves no room for that, the budget does; a record is never asked to be
    smaller than one that says something.
    """
    # Whoever counts the record may estimate, and its estimate is corrected like any other.
    factor = max(1.0, state.settings.calibration_factor)
    below_trigger = int((policy.trigger_token_ratio * state.budget - kept_tokens) / factor) - 1
    left = int((state.budget - kept_tokens) / factor)
    room = max(RECORD_TOKENS_MIN, below_trigger, min(SUMMARY_TOKENS_MIN, left))
    cap = min(room, summary_cap(policy, budget=state.budget, replaced_tokens=replaced_tokens))
    cap = min(cap, max(RECORD_TOKENS_MIN, int(replaced_tokens / factor) - 1))
    gaining = int((1 - policy.min_gain) * replaced_tokens / factor)
    return cap, max(cap, min(room, gaining, OVERRUN * cap))
