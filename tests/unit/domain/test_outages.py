"""Random chats in outages: with something that may stand in, a window that is handed out holds.

`make test-outages` runs ten thousand of them.
"""

from __future__ import annotations

import os

import pytest

from abridged.service.domain.policy import RECORD_TOKENS_MIN
from abridged.service.domain.profiles.profile import HeldBy
from abridged.service.domain.window import TAIL_MESSAGES_MIN, split, summary_tokens
from tests.support.outage import ChatInOutages, Window

CHATS = int(os.environ.get("OUTAGE_CHATS", "600"))
CHUNKS = 20


def is_over_without_reason(window: Window) -> bool:
    """Return whether the budget is broken although last exchange, fixed messages and smallest record would fit."""
    state, policy = window.state, window.policy
    if state.ratio <= 1:
        return False
    least = split(state, policy, tail_messages=TAIL_MESSAGES_MIN)
    replaced = least.dropped_tokens + summary_tokens(state)
    fits = least.kept_tokens + RECORD_TOKENS_MIN <= state.budget and replaced > RECORD_TOKENS_MIN
    return window.held_by is not HeldBy.IRREDUCIBLE or (bool(least.dropped) and fits)


def is_left_past_its_trigger(window: Window) -> bool:
    """Past the trigger, and a message or more away from a pass."""
    return window.state.ratio >= window.policy.trigger_token_ratio and window.held_by in (
        HeldBy.COOLDOWN,
        HeldBy.HYSTERESIS,
    )


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_window_is_handed_out_over_its_budget_and_none_is_held_past_its_trigger(chunk):
    """Incompressible windows are excepted; cooldown and rearm bound every hold, and a healthy model causes no wait."""
    for seed in range(chunk, CHATS, CHUNKS):
        chat, held = ChatInOutages(seed), 0
        for place, window in enumerate(chat.windows()):
            where = f"seed {seed}, message {place + 1}, ratio {window.state.ratio:.2f}, {window.held_by}"
            assert not is_over_without_reason(window), where
            held = held + 1 if is_left_past_its_trigger(window) else 0
            assert held <= window.policy.cooldown_messages + window.policy.rearm_messages, f"{where}, held for {held}"
            assert not chat.is_healthy or window.held_by is not HeldBy.WAITING_AFTER_FAILURE, where
