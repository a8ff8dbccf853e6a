"""When and how to summarize: the policy of profile CHAIN, its overrides, and what is impossible whatever the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from service.domain.errors import InvalidPolicy

__all__ = [
    "CLIENT_FIELDS",
    "RECORD_TOKENS_MIN",
    "SUMMARY_TOKENS_MAX",
    "SUMMARY_TOKENS_MIN",
    "WAIT_MESSAGES_MAX",
    "WAIT_S_MAX",
    "DepthLimit",
    "Fallback",
    "Policy",
    "ProfileName",
    "SummaryRole",
    "ToolOutput",
    "largest_summary",
    "overridden",
    "summary_cap",
    "validated",
    "wait_after_failures",
    "wait_s",
    "without_floors",
]

SUMMARY_TOKENS_MAX = 1_024
SUMMARY_TOKENS_MIN = 128
RECORD_TOKENS_MIN = 96
"""The smallest record that says something: its frame in the window alone takes about 30 tokens."""

WAIT_MESSAGES_MAX = 64
WAIT_BASE_S = 30
WAIT_S_MAX = 15 * 60


class ProfileName(StrEnum):
    """The rules that a policy's fields are read by."""

    CHAIN = "chain"


class DepthLimit(StrEnum):
    """What happens when the chain is as deep as it may be."""

    HALT = "halt"
    REBASE = "rebase"


class Fallback(StrEnum):
    """When the extractive summarizer makes the record that a model failed to make."""

    NEVER = "never"
    EMERGENCY = "emergency"
    ALWAYS = "always"


class ToolOutput(StrEnum):
    """How tool results enter a prompt."""

    FULL = "full"
    CAPPED = "capped"
    OMITTED = "omitted"


class SummaryRole(StrEnum):
    """The role of the summary message in the window."""

    SYSTEM = "system"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Policy:
    """Every field has the default of profile CHAIN; ratios are of the budget, counts are messages."""

    enabled: bool = True
    trigger_token_ratio: float = 0.80
    reset_token_ratio: float = 0.70
    emergency_token_ratio: float = 1.0
    min_messages: int = 12
    preserve_recent: int = 6
    tail_token_ratio: float = 0.35
    cooldown_messages: int = 4
    rearm_messages: int = 12
    min_range_tokens: int = 256
    min_gain: float = 0.20
    max_summary_chain_depth: int = 3
    on_depth_limit: DepthLimit = DepthLimit.REBASE
    rebase_calls_max: int = 8
    rewrites_max: int = 16
    pass_calls_max: int = 64
    force_refresh_after_messages: int = 0
    max_summary_tokens: int = 0
    max_input_tokens: int = 8_000
    repair_attempts: int = 1
    min_shared_words: int = 4
    min_grounded_share: float = 0.4
    min_coverage: float = 0.25
    min_identifier_survival: float = 0.0
    min_carried_share: float = 0.3
    min_remake_share: float = 1.0
    max_repetition: float = 0.5
    fallback: Fallback = Fallback.EMERGENCY
    tool_output: ToolOutput = ToolOutput.CAPPED
    tool_output_tokens_max: int = 256
    summary_role: SummaryRole = SummaryRole.SYSTEM


CLIENT_FIELDS = frozenset(
    {
        "enabled",
        "trigger_token_ratio",
        "reset_token_ratio",
        "emergency_token_ratio",
        "min_messages",
        "preserve_recent",
        "tail_token_ratio",
        "cooldown_messages",
        "rearm_messages",
        "min_range_tokens",
        "min_gain",
        "max_summary_chain_depth",
        "on_depth_limit",
        "force_refresh_after_messages",
        "max_summary_tokens",
        "fallback",
        "tool_output",
        "summary_role",
        "repair_attempts",
    }
)
"""The fields that a client may set unless the operator says otherwise: none of them names a model or an endpoint."""

_NAMES = frozenset(f.name for f in fields(Policy))
_SUMMARY_SHARE = 1 / 8
_FLOORS = (
    "min_grounded_share",
    "min_coverage",
    "min_identifier_survival",
    "min_carried_share",
    "min_remake_share",
    "max_repetition",
)


def overridden(policy: Policy, overrides: Mapping[str, Any], *, allowed: frozenset[str] = _NAMES) -> Policy:
    """The policy with `overrides` in place and validated; raises InvalidPolicy for a field outside `allowed`."""
    for name in overrides:
        if name not in _NAMES:
            raise InvalidPolicy(name, "there is no such field")
        if name not in allowed:
            raise InvalidPolicy(name, "the operator does not let clients set this field")
    return validated(replace(policy, **overrides)) if overrides else policy


def validated(policy: Policy) -> Policy:
    """The same policy, or InvalidPolicy naming the first field that cannot work whatever the data."""
    p = policy
    _require(0 < p.trigger_token_ratio <= 1, "trigger_token_ratio", "must lie in (0, 1]")
    _require(p.reset_token_ratio > 0, "reset_token_ratio", "must be positive")
    _require(p.reset_token_ratio < p.trigger_token_ratio, "reset_token_ratio", "must be below trigger_token_ratio")
    _require(
        p.emergency_token_ratio >= p.trigger_token_ratio,
        "emergency_token_ratio",
        "must not be below trigger_token_ratio",
    )
    _require(p.preserve_recent >= 2, "preserve_recent", "must be at least 2")
    _require(0 < p.tail_token_ratio < 1, "tail_token_ratio", "must lie in (0, 1)")
    _require(
        p.tail_token_ratio + _SUMMARY_SHARE <= p.reset_token_ratio,
        "tail_token_ratio",
        "tail and summary (an eighth) together must not be above reset_token_ratio: a pass could never reach it",
    )
    _require(p.max_summary_tokens >= 0, "max_summary_tokens", "must not be negative")
    _require(
        p.max_summary_tokens == 0 or p.max_summary_tokens >= SUMMARY_TOKENS_MIN,
        "max_summary_tokens",
        f"must be 0 (an eighth of the budget) or at least {SUMMARY_TOKENS_MIN}",
    )
    _require(0 <= p.min_gain < 1, "min_gain", "must lie in [0, 1)")
    _require(p.min_range_tokens >= 1, "min_range_tokens", "must be at least 1")
    _require(p.max_summary_chain_depth >= 1, "max_summary_chain_depth", "must be at least 1")
    _require(p.rebase_calls_max >= 1, "rebase_calls_max", "must be at least 1")
    _require(p.rewrites_max >= 1, "rewrites_max", "must be at least 1")
    _require(
        p.pass_calls_max >= p.rebase_calls_max, "pass_calls_max", "must not be below rebase_calls_max: none could run"
    )
    _require(p.max_input_tokens >= 1_000, "max_input_tokens", "must be at least 1000")
    _require(p.tool_output_tokens_max >= 16, "tool_output_tokens_max", "must be at least 16")
    for name in _FLOORS:
        _require(0 <= getattr(p, name) <= 1, name, "must lie in [0, 1]")
    _require(p.min_shared_words >= 0, "min_shared_words", "must not be negative")
    for name in ("min_messages", "cooldown_messages", "rearm_messages", "force_refresh_after_messages"):
        _require(getattr(p, name) >= 0, name, "must not be negative")
    _require(p.repair_attempts >= 0, "repair_attempts", "must not be negative")
    return policy


def largest_summary(policy: Policy, *, budget: int) -> int:
    """The most tokens that any record of a conversation with this budget may take."""
    return policy.max_summary_tokens or max(1, min(SUMMARY_TOKENS_MAX, int(budget * _SUMMARY_SHARE)))


def summary_cap(policy: Policy, *, budget: int, replaced_tokens: int) -> int:
    """How many tokens a record may take: half of what it replaces, at least 128, at most the policy's maximum.

    Tying the cap to what leaves the window is what makes every pass shrink it.
    """
    return min(largest_summary(policy, budget=budget), max(SUMMARY_TOKENS_MIN, replaced_tokens // 2))


def without_floors(policy: Policy) -> Policy:
    """The policy that takes any draft as it is: for what cannot be asked again and has nothing to fall back on."""
    none: Mapping[str, Any] = dict.fromkeys(_FLOORS, 0.0)
    return replace(policy, min_shared_words=0, **none)


def wait_after_failures(policy: Policy, *, failures: int) -> tuple[int, int]:
    """Messages and seconds of which the first to pass ends the wait after `failures` failed passes in a row."""
    messages = min(max(policy.cooldown_messages, 1) << _doublings(failures), WAIT_MESSAGES_MAX)
    return messages, wait_s(failures)


def wait_s(failures: int) -> int:
    """Seconds that end the wait after so many failed passes in a row."""
    return min(WAIT_BASE_S << _doublings(failures), WAIT_S_MAX)


def _doublings(failures: int) -> int:
    return min(failures - 1, 16)


def _require(holds: bool, field: str, reason: str) -> None:
    if not holds:
        raise InvalidPolicy(field, reason)
