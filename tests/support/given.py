"""`given(*events).when(command, policy).then(*events)`: the rules of the domain as sentences, without any I/O."""

from __future__ import annotations

from dataclasses import dataclass

from abridged.service.domain.commands import Command, CompletePass, FailPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.decide import decide
from abridged.service.domain.errors import DomainError
from abridged.service.domain.events import Event, SkipReason, SummarizationSkipped
from abridged.service.domain.fold import fold
from abridged.service.domain.policy import Policy
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.profiles.registry import profile_of

UNCLAIMED = 0
"""The token of a pass that no process has claimed."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command: events, or a refusal."""

    before: Conversation
    events: list[Event]
    refusal: DomainError | None = None

    @property
    def after(self) -> Conversation:
        """The state behind the events."""
        return fold([(event, 0) for event in self.events], self.before)

    @property
    def skipped(self) -> list[SkipReason]:
        """Why passes were skipped."""
        return [event.reason for event in self.events if isinstance(event, SummarizationSkipped)]

    def then(self, *expected: Event) -> Conversation:
        """Exactly these events happened; answers the state behind them."""
        assert self.refusal is None, f"refused: {self.refusal}"
        assert self.events == list(expected)
        return self.after

    def then_refused(self, error: type[DomainError], **fields: object) -> None:
        """The command was refused with this error and these of its fields."""
        assert type(self.refusal) is error, f"{self.events or self.refusal}"
        assert {name: getattr(self.refusal, name) for name in fields} == fields


@dataclass(frozen=True)
class Given:
    """A history."""

    state: Conversation

    def when(self, command: Command, policy: Policy, *, now_us: int = 0, next_pass_id: str = "") -> Outcome:
        """Decide `command` on it. A pass that this leads to is `p`, and one behind the end of pass x is `x+`."""
        if not next_pass_id:
            next_pass_id = f"{command.pass_id}+" if isinstance(command, CompletePass | FailPass) else "p"
        context = DecisionContext(profile_of(policy.profile), policy, now_us, next_pass_id)
        try:
            return Outcome(self.state, decide(self.state, command, context))
        except DomainError as refusal:
            return Outcome(self.state, [], refusal)


def given(*events: Event) -> Given:
    """The history of `events`, all of the hour zero."""
    return Given(fold([(event, 0) for event in events]))
