"""Commands: what is wanted of a conversation, and nothing else. Policy, time and ids come with the DecisionContext."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from service.domain.events import ErrorClass, Rating, Settings
from service.domain.message import Message
from service.domain.record import SummaryRecord
from service.domain.tokens import TokenCount, TokenSource

__all__ = [
    "AppendMessages",
    "ApplyRules",
    "ChangeSettings",
    "Command",
    "CompletePass",
    "CountedMessage",
    "EndWait",
    "FailPass",
    "PinMessages",
    "RateSummary",
    "ReleasePass",
    "RemakeFallback",
    "ReportUsage",
    "RequestPass",
    "RevokeSummary",
    "RewindConversation",
    "StartPass",
    "UnpinMessages",
    "WayBack",
]


class CountedMessage(NamedTuple):
    """A message and what it costs; `counter` names who counted."""

    message: Message
    cost: TokenCount
    counter: str


@dataclass(frozen=True, slots=True)
class AppendMessages:
    """Append, opening the conversation with `open_with` if it is new. The messages must not be known yet."""

    conversation_id: str
    messages: tuple[CountedMessage, ...]
    open_with: Settings
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """Replace the settings."""

    settings: Settings
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class ReportUsage:
    """The chat model's own count of a context that was sent; `summary_id` is the record that it had.

    An `epoch` of 0 is one that the caller does not say: then a report from before a rewind or the like is recognized by
    its message version alone.
    """

    message_version: int
    summary_id: str
    prompt_tokens: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class RequestPass:
    """Force a pass, whatever ratio, cooldown, hysteresis, min_messages and waits say."""


@dataclass(frozen=True, slots=True)
class RemakeFallback:
    """Make the oldest record of the live chain anew that stands in for a model's."""


@dataclass(frozen=True, slots=True)
class StartPass:
    """Claim the pending pass."""

    pass_id: str


@dataclass(frozen=True, slots=True)
class ReleasePass:
    """Give the claim back, because the process stops: the pass stays pending for the next start."""

    pass_id: str


@dataclass(frozen=True, slots=True)
class CompletePass:
    """Commit the record of a pass, if it saves enough.

    `model_failed` says that a model was asked for it first, in vain; `interrupted`, that the window could not wait for
    the model any longer.
    """

    pass_id: str
    record: SummaryRecord
    source: TokenSource
    fallback: bool
    model_failed: bool = False
    interrupted: bool = False
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailPass:
    """End a pass without a record."""

    pass_id: str
    error_class: ErrorClass
    attempts: int
    retryable: bool
    output_bytes: int = 0
    output_hash: bytes = b""
    cause: str = ""
    asked: bool = False
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndWait:
    """The wait after failures that lasts until `until_us` is over, also by a clock that was set back since."""

    until_us: int


@dataclass(frozen=True, slots=True)
class ApplyRules:
    """See whether a pass is due: the policy or the time may be another than at the last event."""


@dataclass(frozen=True, slots=True)
class RevokeSummary:
    """Take a record out of use, and every record made from it."""

    record_id: str


@dataclass(frozen=True, slots=True)
class RateSummary:
    """Keep a user's opinion of a record."""

    record_id: str
    rating: Rating
    comment: str = ""


@dataclass(frozen=True, slots=True)
class PinMessages:
    """Keep these messages in the window for good, with their tool calls and results."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnpinMessages:
    """Let passes cover these messages again, with their tool calls and results."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RewindConversation:
    """Remove the messages after number `to`."""

    to: int
    expected_version: int | None = None


WayBack = RevokeSummary | RateSummary | PinMessages | UnpinMessages | RewindConversation

Command = (
    AppendMessages
    | ChangeSettings
    | ReportUsage
    | RequestPass
    | RemakeFallback
    | StartPass
    | ReleasePass
    | CompletePass
    | FailPass
    | EndWait
    | ApplyRules
    | WayBack
)
