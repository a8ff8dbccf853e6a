"""The policy that says when and how to summarize, its overrides, and the values that can never work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.record import FormName

SUMMARY_TOKENS_MAX = 1_024
"""The largest record in a budget of at most ROOMY_BUDGET; beyond it records grow with the root of the budget."""

ROOMY_BUDGET = 8_192
"""The budget whose eighth is SUMMARY_TOKENS_MAX: in a larger one a pass would leave most of the window empty."""

SMALL_BUDGET = 4_096
"""The budget below which a record and standing rules have a larger share: they would not hold what a chat decides."""

SMALL_GROWTH_MAX = math.sqrt(2)
"""Factor of their largest growth, reached at half of SMALL_BUDGET: with more, record, rules, ledger and tail in default
sizes would leave a window above its trigger."""

BUDGET_MIN = 256
"""The smallest budget that a conversation may have: a record of SUMMARY_TOKENS_MIN takes half of it."""

SUMMARY_TOKENS_MIN = 128
RECORD_TOKENS_MIN = 96
"""The smallest useful record: its frame in the window alone takes about 30 tokens."""

WAIT_MESSAGES_MAX = 64
WAIT_BASE_S = 30
WAIT_S_MAX = 15 * 60


class ProfileName(StrEnum):
    """The rules that read a policy's fields; each is a module of `service.domain.profiles`."""

    CHAIN = "chain"
    ROLLING = "rolling"
    EPISODES = "episodes"


class DepthLimit(StrEnum):
    """The behaviour when the chain has reached its maximum depth."""

    HALT = "halt"
    REBASE = "rebase"


class Fallback(StrEnum):
    """The cases in which the extractive summarizer makes a record that a model failed to make."""

    NEVER = "never"
    EMERGENCY = "emergency"
    ALWAYS = "always"


class ToolOutput(StrEnum):
    """The form in which tool results enter a prompt."""

    FULL = "full"
    CAPPED = "capped"
    OMITTED = "omitted"


class SummaryRole(StrEnum):
    """The role of the summary message in the window."""

    SYSTEM = "system"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Range:
    """The values of a field: from `low` to `high`; `above` and `below` exclude the bound itself."""

    low: float
    high: float
    above: bool = False
    below: bool = False

    def includes(self, value: float) -> bool:
        """Return whether the range contains the value; it never contains NaN."""
        over_low = value > self.low if self.above else value >= self.low
        return over_low and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        return f"{'(' if self.above else '['}{self.low}, {self.high}{')' if self.below else ']'}"


def _in(low: float, high: float, default: Any, *, above: bool = False, below: bool = False) -> Any:
    return field(default=default, metadata={_RANGE: Range(low, high, above, below)})


_RANGE = "range"
_MESSAGES_MAX = 10_000
_TOKENS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Policy:
    """Every field with its default in profile CHAIN and, for a number, its range; settings and contract follow this
    table.

    Ratios are of the budget, counts are messages; `service/config/policy_fields.py` has a help text for each field.
    `validated` checks how fields fit together. A profile reads the fields that it uses, and has its own defaults
    (`Profile.defaults`).
    """

    profile: ProfileName = ProfileName.CHAIN
    enabled: bool = True
    trigger_token_ratio: float = _in(0, 1, 0.80, above=True)
    reset_token_ratio: float = _in(0, 1, 0.70, above=True)
    emergency_token_ratio: float = _in(0, 2, 1.0, above=True)
    prepare_token_ratio: float = _in(0, 1, 0.0, below=True)
    notice_token_ratio: float = _in(0, 1, 0.70, below=True)
    min_messages: int = _in(0, _MESSAGES_MAX, 12)
    preserve_recent: int = _in(2, _MESSAGES_MAX, 6)
    tail_token_ratio: float = _in(0, 1, 0.35, below=True)
    after_pass_token_ratio: float = _in(0, 1, 0.30, below=True)
    pin_token_ratio: float = _in(0, 1, 0.25, below=True)
    cooldown_messages: int = _in(0, _MESSAGES_MAX, 4)
    rearm_messages: int = _in(0, _MESSAGES_MAX, 12)
    min_range_tokens: int = _in(1, 1_000_000, 256)
    min_gain: float = _in(0, 1, 0.20, below=True)
    min_freed_token_ratio: float = _in(0, 1, 0.17, below=True)
    defer_while_warm_s: int = _in(0, 86_400, 0)
    max_summary_chain_depth: int = _in(1, 100, 3)
    on_depth_limit: DepthLimit = DepthLimit.REBASE
    rebase_calls_max: int = _in(1, 256, 8)
    rewrites_max: int = _in(1, 1_000, 16)
    pass_calls_max: int = _in(1, 10_000, 64)
    force_refresh_after_messages: int = _in(0, 1_000_000, 0)
    max_summary_tokens: int = _in(0, _TOKENS_MAX, 0)
    max_input_tokens: int = _in(1_000, 10_000_000, 8_000)
    repair_attempts: int = _in(0, 5, 1)
    min_shared_words: int = _in(0, 1_000, 4)
    min_grounded_share: float = _in(0, 1, 0.4)
    min_coverage: float = _in(0, 1, 0.25)
    min_identifier_survival: float = _in(0, 1, 0.0)
    min_carried_share: float = _in(0, 1, 0.3)
    min_remake_share: float = _in(0, 1, 1.0)
    max_repetition: float = _in(0, 1, 0.5)
    fallback: Fallback = Fallback.EMERGENCY
    abort_on_failure: bool = False
    tool_output: ToolOutput = ToolOutput.CAPPED
    tool_output_tokens_max: int = _in(16, _TOKENS_MAX, 256)
    summary_role: SummaryRole = SummaryRole.SYSTEM
    clearing: bool = True
    clear_keep_tool_units: int = _in(0, _MESSAGES_MAX, 3)
    clear_min_tokens: int = _in(64, _TOKENS_MAX, 200)
    clear_exclude_tools: tuple[str, ...] = ()
    threshold_tokens: int = _in(1, 10_000_000, 4_000)
    threshold_messages: int = _in(1, _MESSAGES_MAX, 20)
    min_new_messages: int = _in(0, _MESSAGES_MAX, 5)
    min_new_exchanges: int = _in(0, _MESSAGES_MAX, 0)
    record_token_ratio: float = _in(0, 1, 0.25, above=True, below=True)
    record_form: FormName = FormName.FACETS
    episode_trigger_messages: int = _in(2, _MESSAGES_MAX, 10)
    min_episode_size: int = _in(1, _MESSAGES_MAX, 4)
    max_episode_size: int = _in(1, _MESSAGES_MAX, 20)
    episode_overlap: int = _in(0, _MESSAGES_MAX, 2)
    episode_token_ratio: float = _in(0, 1, 0.15, above=True, below=True)
    ledger_token_ratio: float = _in(0, 1, 0.15, below=True)
    max_ledger_tokens: int = _in(0, _TOKENS_MAX, 8_000)
    rules_token_ratio: float = _in(0, 1, 0.1, below=True)


RANGES: Mapping[str, Range] = MappingProxyType({f.name: f.metadata[_RANGE] for f in fields(Policy) if f.metadata})
"""The range of each field that is a number."""

CLIENT_FIELDS = frozenset(
    {
        "enabled",
        "trigger_token_ratio",
        "reset_token_ratio",
        "emergency_token_ratio",
        "prepare_token_ratio",
        "notice_token_ratio",
        "min_messages",
        "preserve_recent",
        "tail_token_ratio",
        "after_pass_token_ratio",
        "pin_token_ratio",
        "cooldown_messages",
        "rearm_messages",
        "min_range_tokens",
        "min_gain",
        "min_freed_token_ratio",
        "defer_while_warm_s",
        "max_summary_chain_depth",
        "on_depth_limit",
        "force_refresh_after_messages",
        "max_summary_tokens",
        "fallback",
        "abort_on_failure",
        "tool_output",
        "summary_role",
        "clearing",
        "clear_keep_tool_units",
        "clear_min_tokens",
        "clear_exclude_tools",
        "repair_attempts",
        "threshold_tokens",
        "threshold_messages",
        "min_new_messages",
        "min_new_exchanges",
        "record_token_ratio",
        "record_form",
        "episode_trigger_messages",
        "min_episode_size",
        "max_episode_size",
        "episode_overlap",
        "episode_token_ratio",
        "ledger_token_ratio",
        "max_ledger_tokens",
        "rules_token_ratio",
    }
)
"""The fields that clients may set by default: none of them names a model or an endpoint."""

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
    """The policy with `overrides`, validated. Raises InvalidPolicy for a field outside `allowed`."""
    for name in overrides:
        if name not in _NAMES:
            raise InvalidPolicy(name, "there is no such field")
        if name not in allowed:
            raise InvalidPolicy(name, "the operator does not let clients set this field")
    return validated(replace(policy, **overrides)) if overrides else policy


def validated(policy: Policy) -> Policy:
    """The same policy. Raises InvalidPolicy naming the first field that can never work."""
    p = policy
    for name, allowed in RANGES.items():
        _require(allowed.includes(getattr(p, name)), name, f"must lie in {allowed}")
    _require(p.reset_token_ratio < p.trigger_token_ratio, "reset_token_ratio", "must be below trigger_token_ratio")
    _require(
        p.emergency_token_ratio >= p.trigger_token_ratio,
        "emergency_token_ratio",
        "must not be below trigger_token_ratio",
    )
    _require(p.prepare_token_ratio < p.trigger_token_ratio, "prepare_token_ratio", "must be below trigger_token_ratio")
    _require(
        p.tail_token_ratio + _SUMMARY_SHARE <= p.reset_token_ratio,
        "tail_token_ratio",
        "tail and summary (an eighth) together must not be above reset_token_ratio: a pass could never reach it",
    )
    _require(
        p.pin_token_ratio + _SUMMARY_SHARE <= p.reset_token_ratio,
        "pin_token_ratio",
        "pins and summary (an eighth) together must not be above reset_token_ratio: a pass could never reach it",
    )
    _require(
        p.max_summary_tokens == 0 or p.max_summary_tokens >= SUMMARY_TOKENS_MIN,
        "max_summary_tokens",
        f"must be 0 (by the budget) or at least {SUMMARY_TOKENS_MIN}",
    )
    _require(
        p.record_form in (FormName.FACETS, FormName.TEXT),
        "record_form",
        "must be facets or text: the others are what profile EPISODES asks for by itself",
    )
    _require(
        p.pass_calls_max >= p.rebase_calls_max, "pass_calls_max", "must not be below rebase_calls_max: none could run"
    )
    if p.profile is ProfileName.ROLLING:
        _require_possible_rolling(p)
    _require_possible_episodes(p)
    return policy


def _require_possible_episodes(p: Policy) -> None:
    _require(p.min_episode_size <= p.max_episode_size, "min_episode_size", "must not be above max_episode_size")
    _require(
        p.episode_overlap < p.min_episode_size,
        "episode_overlap",
        "must be below min_episode_size: a prompt would quote more of the previous episode than of its own",
    )
    _require(
        p.episode_trigger_messages >= p.min_episode_size,
        "episode_trigger_messages",
        "must not be below min_episode_size: no topic shift could end an episode",
    )
    if p.profile is ProfileName.EPISODES:
        _require(
            p.tail_token_ratio + _SUMMARY_SHARE + p.episode_token_ratio <= p.reset_token_ratio,
            "episode_token_ratio",
            "tail, newest summary (an eighth) and short summaries together must not be above reset_token_ratio: a pass "
            "could never reach it",
        )


def room_ratio(policy: Policy, *, budget: int) -> float:
    """The share of the budget that a window may fill after a pass; 0 where the sizes of its parts alone bound it."""
    roomy = policy.profile is ProfileName.CHAIN and budget > ROOMY_BUDGET
    return policy.after_pass_token_ratio if roomy else 0.0


def small_growth(budget: int) -> float:
    """The factor by which the shares of record and rules grow in a small budget, so that their sizes go with its root;
    1 from SMALL_BUDGET on."""
    return min(SMALL_GROWTH_MAX, max(1.0, math.sqrt(SMALL_BUDGET / max(1, budget))))


def largest_summary(policy: Policy, *, budget: int) -> int:
    """Most tokens of any record in a conversation with this budget: by default an eighth of it, from SMALL_BUDGET to
    ROOMY_BUDGET.

    A smaller budget gives a record a larger share, `small_growth`. Where a large one leaves room for more, a record
    grows with the root of the budget: a model has to write it and every prompt to read it, so an eighth of a large
    window would cost more than it says.
    """
    if policy.max_summary_tokens:
        return policy.max_summary_tokens
    if room_ratio(policy, budget=budget):
        return int(SUMMARY_TOKENS_MAX * math.sqrt(budget / ROOMY_BUDGET))
    return max(1, min(SUMMARY_TOKENS_MAX, int(small_growth(budget) * budget * _SUMMARY_SHARE)))


def summary_cap(policy: Policy, *, budget: int, replaced_tokens: int, revised_tokens: int = 0) -> int:
    """Most tokens of a record: half of what it replaces, at least 128, at most the policy's maximum.

    Every pass shrinks the window, because the cap depends on what leaves it. The `revised_tokens` among the replaced
    ones are those of a record that it updates: that may stay whole, so a record grows with what it stands for.
    """
    half = revised_tokens + (replaced_tokens - revised_tokens) // 2
    return min(largest_summary(policy, budget=budget), max(SUMMARY_TOKENS_MIN, half))


def without_floors(policy: Policy) -> Policy:
    """The policy without floors, for a summarizer that cannot be asked again and has no fallback."""
    none: Mapping[str, Any] = dict.fromkeys(_FLOORS, 0.0)
    return replace(policy, min_shared_words=0, **none)


def wait_after_failures(policy: Policy, *, failures: int) -> tuple[int, int]:
    """Messages and seconds that end the wait after `failures` failed passes in a row, whichever comes first."""
    messages = min(max(policy.cooldown_messages, 1) << _doublings(failures), WAIT_MESSAGES_MAX)
    return messages, wait_s(failures)


def wait_s(failures: int) -> int:
    """Seconds that end the wait after this many failed passes in a row."""
    return min(WAIT_BASE_S << _doublings(failures), WAIT_S_MAX)


def _doublings(failures: int) -> int:
    return min(failures - 1, 16)


def _require_possible_rolling(p: Policy) -> None:
    _require(
        p.threshold_messages > p.preserve_recent,
        "threshold_messages",
        "must be above preserve_recent: a pass could never get under it",
    )
    for name in ("tail_token_ratio", "pin_token_ratio"):
        _require(
            getattr(p, name) + p.record_token_ratio <= p.reset_token_ratio,
            "record_token_ratio",
            f"must not be above reset_token_ratio together with {name}: a pass could never reach it",
        )


def _require(holds: bool, name: str, reason: str) -> None:
    if not holds:
        raise InvalidPolicy(name, reason)
