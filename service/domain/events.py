"""The events of a conversation: past-tense, frozen, and carrying every input of the fold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from abridged.service.domain.ledger import NOTHING_FOUND, LedgerFinds
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy, ProfileName
from abridged.service.domain.receipt import Receipt
from abridged.service.domain.record import FormName, MessageRange, SummaryRecord
from abridged.service.domain.rules import NO_RULES_FOUND, RuleFinds, RuleName
from abridged.service.domain.tokens import TokenSource, calibrated_tokens

_NONE: Mapping[str, Any] = MappingProxyType({})

SYSTEM_PROMPT_ID = ".system-prompt"
"""The id of a system prompt among the messages of a rendering. No message may have it: theirs begin with a letter or
a digit."""

CAUSE_CHARS_MAX = 200
"""Longest text that says why a pass failed."""


class Trigger(StrEnum):
    """The reason why a pass began."""

    RATIO = "ratio"
    EMERGENCY = "emergency"
    PERIODIC = "periodic"
    FOLLOW_UP = "follow_up"
    FORCED = "forced"
    REMAKE = "remake"


class SkipReason(StrEnum):
    """The reason why there was no pass or no record, although nothing failed."""

    IRREDUCIBLE = "irreducible"
    DEPTH_LIMIT = "depth_limit"
    NO_GAIN = "no_gain"


class ErrorClass(StrEnum):
    """The reason why a pass failed."""

    TRANSPORT = "TRANSPORT"
    MODEL_MISSING = "MODEL_MISSING"
    MODEL_REFUSED = "MODEL_REFUSED"
    TRUNCATED = "TRUNCATED"
    INVALID = "INVALID"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"


class Rating(StrEnum):
    """A user's opinion of a record."""

    GOOD = "good"
    BAD = "bad"


class ContextLengthSource(StrEnum):
    """The origin of a context length, in order of trust."""

    CONVERSATION = "conversation"
    MODEL = "model"
    TABLE = "table"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """A text that is sent before all messages; `extra_json` as a message has it. `tokens` are uncorrected."""

    content: str
    extra_json: str = ""
    tokens: int = 0
    source: TokenSource = TokenSource.ESTIMATE

    @property
    def message(self) -> Message:
        """The prompt as a message of the window that is sent."""
        return Message(SYSTEM_PROMPT_ID, Role.SYSTEM, self.content, extra_json=self.extra_json)

    def same_as(self, other: SystemPrompt | None) -> bool:
        """Return whether both say the same, whoever counted them."""
        return other is not None and (self.content, self.extra_json) == (other.content, other.extra_json)


@dataclass(frozen=True, slots=True)
class Settings:
    """A conversation's settings, with everything that the fold needs.

    Attributes:
        model: The chat model, as `provider:model` or the provider's own name.
        requested_context_length: The context length that the client set, in tokens; 0 for none.
        context_length: The context length in force.
        context_length_source: The source of the context length.
        reserved_output_tokens: Tokens kept free for the chat model's answer.
        overhead_tokens: Tokens that the caller sends in addition to the window.
        calibration_factor: Corrects estimated token counts.
        policy: The policy fields that the client overrides.
        title: The title.
        labels: The client's labels.
        profile: The profile that the policy named when the conversation opened.
        system_prompt: The system prompt; None without one.
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
    system_prompt: SystemPrompt | None = None

    @property
    def overhead(self) -> int:
        """Tokens that are sent in addition to the window: the caller's, and those of the system prompt."""
        prompt = self.system_prompt
        if prompt is None:
            return self.overhead_tokens
        is_estimate = prompt.source is TokenSource.ESTIMATE
        return self.overhead_tokens + calibrated_tokens(prompt.tokens, self.calibration_factor if is_estimate else 1.0)

    @property
    def budget(self) -> int:
        """Context length minus reserved output; at least 1."""
        return max(1, self.context_length - self.reserved_output_tokens)

    def includes(self, asked: Settings) -> bool:
        """Return whether these settings have everything that a client sets in `asked`, with the same values."""
        return (
            all(not getattr(asked, name) or getattr(asked, name) == getattr(self, name) for name in _SET_BY_CLIENTS)
            and asked.policy.items() <= self.policy.items()
            and asked.labels.items() <= self.labels.items()
            and (asked.system_prompt is None or asked.system_prompt.same_as(self.system_prompt))
        )


_SET_BY_CLIENTS = ("model", "requested_context_length", "reserved_output_tokens", "overhead_tokens", "title")


class ResultMark(NamedTuple):
    """The line that takes the place of a tool result's text; `tokens` estimates it, uncorrected."""

    number: int
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class PassPlan:
    """The work of a pass, fixed when it is requested.

    Attributes:
        pass_id: The pass's id.
        trigger: Why it began.
        covered: Messages that its record covers; they leave the window.
        source: Messages to read: `covered`, or on a partial rebase those since the base.
        base_id: The record that the new one continues; empty for a first record and a full rebase.
        parent_id: The new record's parent in the chain.
        depth: The new record's depth.
        token_ratio: The ratio at the trigger.
        message_version: The message version at the trigger.
        replaced_tokens: Tokens that the record replaces in the window.
        summary_tokens_max: The size that the record should have, in tokens.
        policy: The policy in force.
        rebase: True if the record stands alone, for everything that has left the window.
        replaces_id: The fallback record that a remake replaces.
        room_tokens: The size above which the record would defeat the purpose of the pass, in tokens.
        covered_tokens: Tokens to read the covered messages again.
        rewrites: The number of records that the oldest part of the new text has passed through since its originals were
            read.
        extractive: True if extraction makes the record, without a model.
        cut: True if follow-ups have to cover what this pass's limits left out.
        beside_ids: The other records that the window continues to show.
        form: The form of draft that a model is asked for.
        merged_ids: The records whose place the new one takes together; empty unless it merges. A digest is made of
            their texts.
        label: The record's label.
        short_ids: The ones of `beside_ids` that the window shows, and counts, by their short text.
        overlap: Messages of the previous episode that the prompt quotes for context; the record does not cover them.
        left_out: The number of messages that have left the window after the pass, where the record is to say how to
            reach them.
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
    merged_ids: tuple[str, ...] = ()
    label: str = ""
    short_ids: tuple[str, ...] = ()
    overlap: tuple[MessageRange, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class ConversationOpened:
    """The first event of a conversation."""

    conversation_id: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class ConversationForked:
    """The first event of a conversation that begins as another one stands.

    Attributes:
        conversation_id: The conversation's id.
        parent_id: The other one's.
        parent_event_version: Events of the other one's stream that it begins with.
        message_version: Messages ever appended to the other one by then.
    """

    conversation_id: str
    parent_id: str
    parent_event_version: int
    message_version: int


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """New settings."""

    settings: Settings


class MessageAppended(NamedTuple):
    """A message joined the window.

    Attributes:
        number: The message's number, from 1.
        message: The message.
        tokens: The message's tokens, uncorrected.
        source: The source of their count.
        counter: The counter's name.
        cleared_tokens: The message's tokens before a mark took the place of its text, in a window that was cleared; 0
            otherwise, and always in the event itself.
    """

    number: int
    message: Message
    tokens: int
    source: TokenSource
    counter: str = ""
    cleared_tokens: int = 0


@dataclass(frozen=True, slots=True)
class UsageReported:
    """The chat model API's own token count.

    `calibration_factor` corrects estimates from now on; `reports` is how many reports of the model have taught it, in
    whatever conversations, 0 in events that only know their own conversation.
    """

    message_version: int
    summary_id: str
    prompt_tokens: int
    exact_tokens: int
    estimated_tokens: int
    calibration_factor: float
    reports: int = 0


@dataclass(frozen=True, slots=True)
class SummarizationRequested:
    """The trigger of a pass, in the commit of what caused it."""

    plan: PassPlan


@dataclass(frozen=True, slots=True)
class SummarizationStarted:
    """The pass was claimed, for the `claim`-th time, by the process `owner`; empty from before there were owners."""

    pass_id: str
    claim: int
    owner: str = ""


@dataclass(frozen=True, slots=True)
class SummarizationReleased:
    """An orderly shutdown gave the claim back; it does not count as one that ended badly."""

    pass_id: str


@dataclass(frozen=True, slots=True)
class SummarizationCompleted:
    """The record is in force, and the messages that it covers leave the window.

    Attributes:
        pass_id: The pass.
        record: The pass's record.
        source: The source of the record's token count.
        fallback: True if it stands in for a model's record.
        wait_messages: Messages until the next call, if a model failed first.
        wait_until_us: The time that ends this wait earlier; 0 for no wait.
        tried: The models that the pass turned to, in order, as `provider:model`.
        marks: Marks for old tool results that stay in the window, so that it is rewritten once and not twice.
        finds: The identifiers of the messages that leave the window; none for a remake, by which none does.
        receipt: The places of everything that left the window; None in events from before there were receipts.
        rules: The standing rules of these, and those that have been taken back.
    """

    pass_id: str
    record: SummaryRecord
    source: TokenSource
    fallback: bool = False
    wait_messages: int = 0
    wait_until_us: int = 0
    tried: tuple[str, ...] = ()
    marks: tuple[ResultMark, ...] = ()
    finds: LedgerFinds = NOTHING_FOUND
    receipt: Receipt | None = None
    rules: RuleFinds = NO_RULES_FOUND


@dataclass(frozen=True, slots=True)
class SummarizationCleared:
    """A pass that needed no record, in the commit of its trigger: marks have taken the place of old tool results.

    `plan.covered` are the cleared messages; it reads nothing and makes nothing. The receipt counts these messages; it
    is None in events from before there were receipts.
    """

    plan: PassPlan
    marks: tuple[ResultMark, ...]
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True)
class SummarizationFailed:
    """The pass made no record, and the messages are unchanged.

    The next model call waits for `wait_messages` or until `wait_until_us`, whichever comes first. A cancelled pass or a
    remake does not wait (0) and is no failure in a row. `cause` is in our own words, at most CAUSE_CHARS_MAX; `asked`
    says whether any call reached a model.
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
    """No pass or no record was made, which is not a failure. `pass_id` is empty if no pass began."""

    reason: SkipReason
    pass_id: str = ""
    attempts: int = 0
    wait_messages: int = 0
    wait_until_us: int = 0


@dataclass(frozen=True, slots=True)
class SummaryRevoked:
    """A revocation took `record_id` and every record made from it out of use.

    The window now shows `shown_ids`, those of `short_ids` by their short text, and the messages that no record in use
    covers are back in it.
    """

    record_id: str
    revoked_ids: tuple[str, ...]
    shown_ids: tuple[str, ...]
    short_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SummaryRated:
    """A user's opinion of a record; the latest one counts."""

    record_id: str
    rating: Rating
    comment: str = ""


@dataclass(frozen=True, slots=True)
class MessagesPinned:
    """Passes no longer cover these messages, and those already covered are back in the window."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MessagesUnpinned:
    """Passes may cover these messages again; those that a record in use covers leave the window."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RulesDropped:
    """A caller dropped these standing rules: the window does not show them any longer."""

    rules: tuple[RuleName, ...]


@dataclass(frozen=True, slots=True)
class ConversationRewound:
    """The messages after number `to` left the conversation for good. The numbers of these messages are not used again.

    Records that covered one of them, and all made from those, are out of use, as in SummaryRevoked.
    """

    to: int
    revoked_ids: tuple[str, ...] = ()
    shown_ids: tuple[str, ...] = ()
    short_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MessagesRedacted:
    """The texts of these messages are gone, with everything that was made of them: from the contents of all events
    before this one, too.

    Records are out of use, and messages back, as in SummaryRevoked.

    Attributes:
        numbers: The messages.
        revoked_ids: The records that were made of them, or of such records; those that were out of use before, too.
        shown_ids: The records that the window now shows.
        short_ids: The ones of them that it shows by their short text.
        finds: The identifiers that are left in the ledger.
        rules: The standing rules that are left.
        dropped_rules: The ones of these that a caller has dropped.
    """

    numbers: tuple[int, ...]
    revoked_ids: tuple[str, ...] = ()
    shown_ids: tuple[str, ...] = ()
    short_ids: tuple[str, ...] = ()
    finds: LedgerFinds = NOTHING_FOUND
    rules: RuleFinds = NO_RULES_FOUND
    dropped_rules: tuple[RuleName, ...] = ()


@dataclass(frozen=True, slots=True)
class ConversationClosed:
    """The conversation takes no messages, and no pass begins, until it is reopened."""


@dataclass(frozen=True, slots=True)
class ConversationReopened:
    """The conversation takes messages again, and the rules apply."""


@dataclass(frozen=True, slots=True)
class TitleChanged:
    """A model named the conversation, from what the window showed when `record_id` was its newest record.

    A title that the client sets comes before it.
    """

    title: str
    record_id: str


@dataclass(frozen=True, slots=True)
class ConversationErased:
    """The conversation is gone for good, with the contents of all events before this one. No event but TextPurged
    follows.

    Attributes:
        conversation_id: The conversation's id, which is not used again.
        messages: Messages ever appended to it.
        erasure_id: The erasure, which all conversations of one call share.
        conversations: The number of conversations that the call erased.
    """

    conversation_id: str
    messages: int
    erasure_id: str
    conversations: int


@dataclass(frozen=True, slots=True)
class ConversationArchived:
    """The contents of all events before this one are in a file, and leave the log. No event but TextPurged follows
    until the conversation is unarchived or erased.

    Attributes:
        conversation_id: Its id.
        messages: Messages ever appended to it.
        events: Events in the file.
        file: The file's name.
        size_bytes: Its size.
        sha256: Its digest, in hexadecimal digits.
        labels: The conversation's labels.
        title: Its title, the client's or a model's.
        forked_from: The conversation that it was forked from; empty if it is no fork.
    """

    conversation_id: str
    messages: int
    events: int
    file: str
    size_bytes: int
    sha256: str
    labels: Mapping[str, str]
    title: str
    forked_from: str


@dataclass(frozen=True, slots=True)
class ConversationUnarchived:
    """The contents that an archive had are in the log again, and the conversation is as it was. The file goes."""


@dataclass(frozen=True, slots=True)
class TextPurged:
    """The files and the search index have nothing left of the content that the event with this version, and those
    before, took out."""

    event_version: int


@dataclass(frozen=True, slots=True)
class ErasedEvent:
    """An event whose content was erased or archived, which counts among the stream's events and says nothing."""


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
    | RulesDropped
    | ConversationRewound
    | MessagesRedacted
    | ConversationClosed
    | ConversationReopened
    | ConversationForked
    | TitleChanged
    | ConversationErased
    | ConversationArchived
    | ConversationUnarchived
    | TextPurged
    | ErasedEvent
)
