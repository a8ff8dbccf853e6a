"""What has happened to a conversation: past-tense, frozen, and carrying every input of the fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from service.domain.message import Message
from service.domain.policy import Policy, ProfileName
from service.domain.record import FormName, MessageRange, SummaryRecord
from service.domain.tokens import TokenSource

__all__ = [
    "CAUSE_CHARS_MAX",
    "ContextLengthSource",
    "ConversationOpened",
    "ConversationRewound",
    "ErrorClass",
    "Event",
    "MessageAppended",
    "MessagesPinned",
    "MessagesUnpinned",
    "PassPlan",
    "Rating",
    "ResultMark",
    "Settings",
    "SettingsChanged",
    "SkipReason",
    "SummarizationCleared",
    "SummarizationCompleted",
    "SummarizationFailed",
    "SummarizationReleased",
    "SummarizationRequested",
    "SummarizationSkipped",
    "SummarizationStarted",
    "SummaryRated",
    "SummaryRevoked",
    "Trigger",
    "UsageReported",
]

_NONE: Mapping[str, Any] = MappingProxyType({})

CAUSE_CHARS_MAX = 200
"""How long the words may be that say why a pass failed."""


class Trigger(StrEnum):
    """Why a pass began."""

    RATIO = "ratio"
    EMERGENCY = "emergency"
    PERIODIC = "periodic"
    FOLLOW_UP = "follow_up"
    FORCED = "forced"
    REMAKE = "remake"


class SkipReason(StrEnum):
    """Why there was no pass, or no record, although nothing failed."""

    IRREDUCIBLE = "irreducible"
    DEPTH_LIMIT = "depth_limit"
    NO_GAIN = "no_gain"


class ErrorClass(StrEnum):
    """Why a pass failed."""

    TRANSPORT = "TRANSPORT"
    MODEL_MISSING = "MODEL_MISSING"
    MODEL_REFUSED = "MODEL_REFUSED"
    TRUNCATED = "TRUNCATED"
    INVALID = "INVALID"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"


class Rating(StrEnum):
    """What a user says of a record."""

    GOOD = "good"
    BAD = "bad"


class ContextLengthSource(StrEnum):
    """Where a context length comes from, in order of trust."""

    CONVERSATION = "conversation"
    MODEL = "model"
    TABLE = "table"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Settings:
    """A conversation's settings with everything that the fold needs.

    `requested_context_length` is what the client set, 0 for nothing; `context_length` is what holds, in tokens.
    `policy` has only the fields that the client overrides. `profile` is the one that the policy named when the
    conversation opened.
    """

    model: str = ""
    requested_context_length: int = 0
    context_length: int = 8_192
    context_length_source: ContextLengthSource = ContextLengthSource.DEFAULT
    reserved_output_tokens: int = 0
    overhead_tokens: int = 0
    calibration_factor: float = 1.0
    policy: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    title: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)
    profile: ProfileName = ProfileName.CHAIN

    @property
    def budget(self) -> int:
        """Context length without what is kept for the answer; at least 1."""
        return max(1, self.context_length - self.reserved_output_tokens)

    def includes(self, asked: Settings) -> bool:
        """Whether everything that a client sets in `asked` is set here too, and to the same."""
        return (
            all(not getattr(asked, name) or getattr(asked, name) == getattr(self, name) for name in _SET_BY_CLIENTS)
            and asked.policy.items() <= self.policy.items()
            and asked.labels.items() <= self.labels.items()
        )


_SET_BY_CLIENTS = ("model", "requested_context_length", "reserved_output_tokens", "overhead_tokens", "title")


class ResultMark(NamedTuple):
    """The line that takes the place of a tool result's text; `tokens` estimates it, uncorrected."""

    number: int
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class PassPlan:
    """What a pass does, fixed when it is requested.

    `covered` leaves the window; `source` is read (on a partial rebase only what came since the base). `base_id` is the
    record that the new one continues, empty for a first record and a full rebase. `replaces_id` is the record whose
    place a remake takes. `summary_tokens_max` is the size that the record should have, `room_tokens` the size at which
    it would miss what the pass is for. An `extractive` pass asks no model. `covered_tokens` and `rewrites` are the
    record's; a `rebase` makes one that stands alone. A `cut` pass leaves to follow-ups what its bounds did not allow.
    Beside the new record the window goes on showing those that `beside_ids` names, and no others.
    A model is asked for a draft of this `form`.
    """

    pass_id: str
    trigger: Trigger
    covered: tuple[MessageRange, ...]
    source: tuple[MessageRange, ...]
    base_id: str
    parent_id: str
    depth: int
    token_ratio: float
    message_version: int
    replaced_tokens: int
    summary_tokens_max: int
    policy: Policy
    rebase: bool = False
    replaces_id: str = ""
    room_tokens: int = 0
    covered_tokens: int = 0
    rewrites: int = 0
    extractive: bool = False
    cut: bool = False
    beside_ids: tuple[str, ...] = ()
    form: FormName = FormName.FACETS


@dataclass(frozen=True, slots=True)
class ConversationOpened:
    """The first event of a conversation."""

    conversation_id: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The settings from now on."""

    settings: Settings


class MessageAppended(NamedTuple):
    """A message joins the window. `number` counts from 1; `tokens` is uncorrected, in `source`'s count.

    In a window that was cleared since, `cleared_tokens` is what the message cost before a mark took the place of its
    text; 0 otherwise, and always in the event itself.
    """

    number: int
    message: Message
    tokens: int
    source: TokenSource
    counter: str = ""
    cleared_tokens: int = 0


@dataclass(frozen=True, slots=True)
class UsageReported:
    """What the chat model's API really counted; `calibration_factor` corrects estimates from now on."""

    message_version: int
    summary_id: str
    prompt_tokens: int
    exact_tokens: int
    estimated_tokens: int
    calibration_factor: float


@dataclass(frozen=True, slots=True)
class SummarizationRequested:
    """The trigger; written in the commit of what caused it."""

    plan: PassPlan


@dataclass(frozen=True, slots=True)
class SummarizationStarted:
    """A pass was claimed, for the `claim`-th time."""

    pass_id: str
    claim: int


@dataclass(frozen=True, slots=True)
class SummarizationReleased:
    """A claim was given back in good order, because the process stops: it does not count as one that ended badly."""

    pass_id: str


@dataclass(frozen=True, slots=True)
class SummarizationCompleted:
    """The record is in force; the messages that it covers leave the window.

    `fallback` says that the record stands in for a model's. `source` is who counted its tokens. When a model was asked
    and failed first, the next one waits for messages or time, whichever comes first; a `wait_until_us` of 0 is no wait.
    `tried` names the models that were turned to, in their order, as `provider:model`. `marks` take the place of old
    tool results that stay in the window, so that it is rewritten once and not twice.
    """

    pass_id: str
    record: SummaryRecord
    source: TokenSource
    fallback: bool = False
    wait_messages: int = 0
    wait_until_us: int = 0
    tried: tuple[str, ...] = ()
    marks: tuple[ResultMark, ...] = ()


@dataclass(frozen=True, slots=True)
class SummarizationCleared:
    """A pass that needed no record, in the commit of its trigger: marks have taken the place of old tool results.

    `plan.covered` are the cleared messages; it reads nothing and makes nothing.
    """

    plan: PassPlan
    marks: tuple[ResultMark, ...]


@dataclass(frozen=True, slots=True)
class SummarizationFailed:
    """The messages are as they were; the next model call waits for messages or time, whichever comes first.

    A `wait_until_us` of 0 is no wait: nobody wants the pass any longer, or it was a remake. Neither is a failure in a
    row. `cause` is why in our own words, at most CAUSE_CHARS_MAX, and `asked` whether a model was asked at all.
    """

    pass_id: str
    error_class: ErrorClass
    attempts: int
    retryable: bool
    wait_messages: int
    wait_until_us: int
    output_bytes: int = 0
    output_hash: bytes = b""
    cause: str = ""
    asked: bool = False
    tried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SummarizationSkipped:
    """No pass, or no record, and that is no failure. `pass_id` is empty when no pass began."""

    reason: SkipReason
    pass_id: str = ""
    attempts: int = 0
    wait_messages: int = 0
    wait_until_us: int = 0


@dataclass(frozen=True, slots=True)
class SummaryRevoked:
    """Records are out of use: `record_id`, which was revoked, and all that were made from it.

    The window shows `shown_ids` from now on, and the messages that no record in use covers are back in it.
    """

    record_id: str
    revoked_ids: tuple[str, ...]
    shown_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SummaryRated:
    """A user's opinion of a record; the latest one counts."""

    record_id: str
    rating: Rating
    comment: str = ""


@dataclass(frozen=True, slots=True)
class MessagesPinned:
    """These messages are in the window for good: no pass covers them, and those that one had covered are back."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MessagesUnpinned:
    """These messages are like any others again: those that a record in use covers leave the window."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConversationRewound:
    """The messages after number `to` have left the conversation for good. Their numbers are not used again.

    Records that covered one of them, and all made from those, are out of use, as in SummaryRevoked.
    """

    to: int
    revoked_ids: tuple[str, ...] = ()
    shown_ids: tuple[str, ...] = ()


Event = (
    ConversationOpened
    | SettingsChanged
    | MessageAppended
    | UsageReported
    | SummarizationRequested
    | SummarizationStarted
    | SummarizationReleased
    | SummarizationCompleted
    | SummarizationFailed
    | SummarizationSkipped
    | SummarizationCleared
    | SummaryRevoked
    | SummaryRated
    | MessagesPinned
    | MessagesUnpinned
    | ConversationRewound
)
