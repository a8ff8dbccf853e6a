"""What a profile is: rules that say when a pass is due and what it does. Each is a module beside this one.

A profile decides, and its decision is in the events: a plan says what it covers and which records the window goes on
showing beside the new one. The fold and the rendering follow the plan, so that no event means another thing under
another profile, and a log replays without any. Whether passes are enabled, pending or waited for is the same for every
profile, and asked before one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from service.domain.conversation import Conversation
from service.domain.events import (
    MessageAppended,
    PassPlan,
    SummarizationCleared,
    SummarizationRequested,
    SummarizationSkipped,
)
from service.domain.policy import Policy

__all__ = ["DecisionContext", "HeldBy", "Profile"]


class HeldBy(StrEnum):
    """Why a window past its trigger is left as it is. The values are the words of the contract."""

    PASS_PENDING = "PASS_PENDING"  # noqa: S105 - a state, not a password
    DISABLED = "DISABLED"
    WAITING_AFTER_FAILURE = "WAITING_AFTER_FAILURE"
    IRREDUCIBLE = "IRREDUCIBLE"
    DEPTH_LIMIT = "DEPTH_LIMIT"
    MIN_MESSAGES = "MIN_MESSAGES"
    COOLDOWN = "COOLDOWN"
    HYSTERESIS = "HYSTERESIS"


class Profile(Protocol):
    """Pure functions of the state. A pass is `extractive` when it may ask no model, since failures hold calls back."""

    def defaults(self) -> Policy:
        """The policy of an operator who sets no field but `profile`; valid, and naming this profile."""
        ...

    def trigger_ratio(self, state: Conversation, policy: Policy, /) -> float:
        """The ratio from which the window is past its trigger."""
        ...

    def due(
        self, state: Conversation, context: DecisionContext, *, extractive: bool
    ) -> SummarizationRequested | SummarizationCleared | SummarizationSkipped | None:
        """The pass that the rules want now, done already if it needed no record; or the news that there can be none."""
        ...

    def forced(self, state: Conversation, context: DecisionContext) -> SummarizationRequested:
        """The pass that somebody asks for; raises NothingToSummarize or DepthLimitReached."""
        ...

    def follow_up(
        self, state: Conversation, ended: PassPlan, context: DecisionContext, *, extractive: bool
    ) -> SummarizationRequested | None:
        """One more pass right after the record of `ended`, when that was not enough and another would free some."""
        ...

    def held_by(self, state: Conversation, policy: Policy, /) -> HeldBy | None:
        """Which rule holds a window past its trigger; None when a pass is due."""
        ...


class DecisionContext(NamedTuple):
    """What a decision rests on beside the state and the command.

    Profile and policy are those of the settings that the command leaves behind, `now_us` is in microseconds since the
    epoch, `next_pass_id` is the id of the pass that the decision requests, if it does: it never requests two.
    `originals` are the messages outside the window that `needed` of the command names, as the log has them.
    """

    profile: Profile
    policy: Policy
    now_us: int
    next_pass_id: str
    originals: Sequence[MessageAppended] = ()
