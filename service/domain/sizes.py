"""The intended and the greatest sizes of a window after a pass, of its record, its standing rules and its ledger."""

from __future__ import annotations

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.ledger import Ledger
from abridged.service.domain.policy import (
    RECORD_TOKENS_MIN,
    SUMMARY_TOKENS_MIN,
    Policy,
    ProfileName,
    room_ratio,
    small_growth,
    summary_cap,
)
from abridged.service.domain.rules import Rules
from abridged.service.domain.tokens import TokenSource, calibrated_tokens

RUNWAY = 0.15
"""Share of the budget below the reset ratio: a window that ends just under it would be due again a message or two
later."""

OVERRUN = 2
"""Models write more than they are asked for; a record of more than twice its size would leave the next pass no room."""

LEDGER_SHARE_MIN = 1 / 3
"""Part of its share that a ledger has even in a window that a pass could not bring below its trigger."""

LEDGER_MEMORY = 2
"""The memory of a ledger, in shares: the entries that it shows, and about as many that come back when those go."""

LEDGER_WITHOUT_ROOM = 2_000
"""Most tokens of a ledger in a window that is filled by the rest of it; those of a budget of 13,333 at the default
ledger_token_ratio."""

LEDGER_GROWTH = 1.25
"""The growth of a ledger that a pass leaves room for, before it keeps a longer tail."""


def aimed_tokens(state: Conversation, policy: Policy) -> int:
    """Return the most tokens that the window should have after a pass, overhead included: below the reset ratio, with a
    runway to the next pass."""
    return int(max(policy.reset_token_ratio - RUNWAY, policy.reset_token_ratio / 2) * state.budget)


def room_tokens(state: Conversation, policy: Policy) -> int:
    """Return the tokens that the window may have after a pass, overhead included: record and ledger, and more of the
    tail. 0 if their own sizes alone bound them."""
    return min(int(room_ratio(policy, budget=state.budget) * state.budget), aimed_tokens(state, policy))


def ledger_tokens_expected(state: Conversation, policy: Policy) -> int:
    """Return the tokens of the ledger for which a pass leaves room beside a longer tail; that of a first record is a
    guess."""
    grown = int(LEDGER_GROWTH * ledger_tokens(state)) if state.records else LEDGER_WITHOUT_ROOM
    return min(grown, ledger_tokens_max(state, policy))


def ledger_tokens(state: Conversation) -> int:
    """Tokens of the ledger in the window, an estimate corrected."""
    return _counted(state, state.ledger)


def rules_tokens(state: Conversation) -> int:
    """Tokens of the standing rules in the window, an estimate corrected."""
    return _counted(state, state.rules)


def _counted(state: Conversation, part: Ledger | Rules) -> int:
    if part.source is not TokenSource.ESTIMATE:
        return part.tokens
    return calibrated_tokens(part.tokens, state.settings.calibration_factor)


def ledger_tokens_max(state: Conversation, policy: Policy) -> int:
    """The ledger's share of the window, in tokens."""
    return min(policy.max_ledger_tokens, int(policy.ledger_token_ratio * _whole(state, policy)))


def rules_tokens_max(state: Conversation, policy: Policy) -> int:
    """The share of the window that standing rules have, in tokens; a larger one in a small window, `small_growth`."""
    whole = _whole(state, policy)
    return min(whole, int(small_growth(whole) * policy.rules_token_ratio * whole))


def _whole(state: Conversation, policy: Policy) -> int:
    """The budget, or where that is much more, what triggers a pass."""
    if policy.profile is not ProfileName.ROLLING:
        return state.budget
    return min(state.budget, int(policy.threshold_tokens / policy.trigger_token_ratio))


def rules_limit(state: Conversation, policy: Policy, *, window_tokens: int, record_tokens: int) -> int:
    """The most uncorrected tokens of standing rules in the window after a pass of this state.

    `window_tokens` is what the window costs once the pass has its record, of `record_tokens`, without rules and ledger.
    They may have their share, and no more new tokens than the gain of the pass can spare. A budget that the rest
    exceeds does not take it from them: a caller clips the rest, and would send a chat without its rules.
    """
    freed = state.window_tokens - rules_tokens(state) - ledger_tokens(state) - window_tokens
    spared = max(0, freed - int(policy.min_gain * (freed + record_tokens)))
    limit = min(rules_tokens_max(state, policy), rules_tokens(state) + spared)
    return int(limit / max(1.0, state.settings.calibration_factor))


def ledger_limits(state: Conversation, policy: Policy, *, window_tokens: int, record_tokens: int) -> tuple[int, int]:
    """The most uncorrected tokens that the ledger may show, and remember, after a pass of this state.

    `window_tokens` is what the window costs once the pass has its record, of `record_tokens`, and no ledger. The ledger
    may show its share, as far as the window stays below its trigger, or a part of the share, as rules do; of a share
    above LEDGER_WITHOUT_ROOM, what the rest leaves free of the window's room; and no more new tokens than half of what
    the pass frees, or than its gain can spare.
    """
    share = ledger_tokens_max(state, policy)
    used = window_tokens + state.settings.overhead
    below_trigger = int(policy.trigger_token_ratio * state.budget) - used - 1
    room = room_tokens(state, policy)
    shown = min(share, max(LEDGER_WITHOUT_ROOM, room - used)) if room else share
    freed = state.window_tokens - ledger_tokens(state) - window_tokens
    spared = freed - int(policy.min_gain * (freed + record_tokens))
    most = ledger_tokens(state) + max(0, min(freed // 2, spared))
    limit = max(0, min(shown, most, max(below_trigger, int(share * LEDGER_SHARE_MIN))))
    factor = max(1.0, state.settings.calibration_factor)
    return int(limit / factor), int(LEDGER_MEMORY * share / factor)


def record_sizes(
    state: Conversation, policy: Policy, *, kept_tokens: int, replaced_tokens: int, revised_tokens: int = 0
) -> tuple[int, int]:
    """The size that a record should have, and the size at which it would miss what the pass is for.

    `kept_tokens` is what the window costs without the record, what it replaces, rules and ledger, overhead included.
    The window is to end below its trigger. The budget sets the size where what stays leaves no room for that; a record
    is never asked to be smaller than one that says something. `revised_tokens` are those of the record that it updates.
    """
    kept_tokens += rules_tokens(state) + ledger_tokens(state)
    # Whoever counts the record may estimate, and its estimate is corrected like any other.
    factor = max(1.0, state.settings.calibration_factor)
    below_trigger = int((policy.trigger_token_ratio * state.budget - kept_tokens) / factor) - 1
    left = int((state.budget - kept_tokens) / factor)
    room = max(RECORD_TOKENS_MIN, below_trigger, min(SUMMARY_TOKENS_MIN, left))
    largest = summary_cap(policy, budget=state.budget, replaced_tokens=replaced_tokens, revised_tokens=revised_tokens)
    gaining = int((1 - policy.min_gain) * replaced_tokens / factor)
    most = gaining if revised_tokens else int(replaced_tokens / factor) - 1
    cap = min(room, largest, max(RECORD_TOKENS_MIN, most))
    return cap, max(cap, min(room, gaining, OVERRUN * cap))
