"""Defines a profile: rules that decide when a pass is due and what it does. Each is a module of this package.

The decision is in the events: a plan names what it covers and which other records the window continues to show. The
fold and the rendering follow the plan, so events mean the same under every profile, and replay needs none. The check
whether passes are enabled, pending or waiting is the same for all profiles and comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import (
    MessageAppended,
    PassPlan,
    SummarizationCleared,
    SummarizationRequested,
    SummarizationSkipped,
    Trigger,
)
from abridged.service.domain.policy import Policy
from abridged.service.domain.record import MessageRange


class HeldBy(StrEnum):
    """The reason why a window past its trigger stays as it is. The values are the contract's."""

    PASS_PENDING = "PASS_PENDING"  # noqa: S105 - a state, not a password
    DISABLED = "DISABLED"
    WAITING_AFTER_FAILURE = "WAITING_AFTER_FAILURE"
    IRREDUCIBLE = "IRREDUCIBLE"
    DEPTH_LIMIT = "DEPTH_LIMIT"
    MIN_MESSAGES = "MIN_MESSAGES"
    COOLDOWN = "COOLDOWN"
    HYSTERESIS = "HYSTERESIS"
    FREES_LITTLE = "FREES_LITTLE"
    CACHE_WARM = "CACHE_WARM"


class Profile(Protocol):
    """Pure functions of the state. An `extractive` pass asks no model, because failures hold calls back."""

    def defaults(self) -> Policy:
        """The policy if the operator sets only `profile`; valid, and naming this profile."""
        ...

    def trigger_ratio(self, state: Conversation, policy: Policy, /) -> float:
        """The ratio at which a pass is triggered."""
        ...

    def due(
        self, state: Conversation, context: DecisionContext, *, extractive: bool
    ) -> SummarizationRequested | SummarizationCleared | SummarizationSkipped | None:
        """The pass that is due now, already complete if it needs no record, or the event that there can be none."""
        ...

    def forced(self, state: Conversation, context: DecisionContext) -> SummarizationRequested:
        """The pass that a caller forces. Raises NothingToSummarize or DepthLimitReached."""
        ...

    def follow_up(
        self, state: Conversation, ended: PassPlan, context: DecisionContext, *, extractive: bool
    ) -> SummarizationRequested | None:
        """One more pass right after the record of `ended`, if that did not suffice and another would free more."""
        ...

    def closing(
        self, state: Conversation, context: DecisionContext, /, *, extractive: bool
    ) -> SummarizationRequested | None:
        """The pass of a conversation that closes now, of what an open one would have kept; None for none."""
        ...

    def idle_from_us(self, state: Conversation, policy: Policy, /) -> int:
        """The time at which the rules have to be asked again if nothing happens, in microseconds since the epoch; 0 for
        never."""
        ...

    def ahead(
        self, state: Conversation, context: DecisionContext, /
    ) -> SummarizationRequested | SummarizationCleared | None:
        """The pass that would be due if the window were at its trigger; None for none, and where messages trigger
        passes, whatever the ratio. Callers use it for a draft or a notice, and never write it."""
        ...

    def held_by(self, state: Conversation, policy: Policy, /) -> HeldBy | None:
        """The rule that holds a window past its trigger, CACHE_WARM until `idle_from_us`; None if a pass is due."""
        ...


class DecisionContext(NamedTuple):
    """The inputs of a decision besides the state and the command.

    Attributes:
        profile: The rules of the policy's profile.
        policy: The policy of the settings after the command.
        now_us: The time, in microseconds since the epoch.
        next_pass_id: The id for a pass that the decision requests; it requests at most one.
        originals: The messages outside the window that `needed` names for the command, as the log has them.
    """

    profile: Profile
    policy: Policy
    now_us: int
    next_pass_id: str
    originals: Sequence[MessageAppended] = ()


def planned(
    state: Conversation,
    context: DecisionContext,
    trigger: Trigger,
    covered: tuple[MessageRange, ...],
    *,
    replaced_tokens: int,
    extractive: bool = False,
) -> PassPlan:
    """Return the plan of a first record, without its sizes; it reads every message that it covers."""
    return PassPlan(
        pass_id=context.next_pass_id,
        trigger=trigger,
        covered=covered,
        source=covered,
        base_id="",
        parent_id="",
        depth=0,
        token_ratio=state.ratio,
        message_version=state.message_version,
        replaced_tokens=replaced_tokens,
        summary_tokens_max=0,
        policy=context.policy,
        extractive=extractive,
    )


def may_report_irreducible(state: Conversation, *, messages: int) -> bool:
    """Return whether to report IRREDUCIBLE: once for a window, and again only after `messages` more, so never in a
    loop."""
    reported_at = state.irreducible_said_at
    return reported_at is None or state.message_version - reported_at >= max(1, messages)
