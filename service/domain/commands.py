"""Commands: what a caller wants of a conversation, and nothing else. Policy, time and ids are in the
DecisionContext."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from abridged.service.domain.events import ConversationArchived, ErrorClass, Rating, Settings, SystemPrompt
from abridged.service.domain.ledger import NOTHING_FOUND, LedgerFinds
from abridged.service.domain.message import Message
from abridged.service.domain.receipt import NOTHING_LEAVES, Leaving
from abridged.service.domain.record import SummaryRecord
from abridged.service.domain.redaction import NO_REDACTION, Redaction
from abridged.service.domain.rules import NO_RULES_FOUND, RuleFinds
from abridged.service.domain.tokens import UNTAUGHT, Taught, TokenCount, TokenSource


class CountedMessage(NamedTuple):
    """A message, its token count, and the name of the counter."""

    message: Message
    cost: TokenCount
    counter: str


@dataclass(frozen=True, slots=True)
class AppendMessages:
    """Append messages that the conversation does not have yet, opening it with `open_with` if it is new.

    A `system_prompt` takes the place of that of an existing conversation; one without a text ends it.
    The messages after number `replace_after` are removed first.
    """

    conversation_id: str
    messages: tuple[CountedMessage, ...]
    open_with: Settings
    expected_version: int | None = None
    system_prompt: SystemPrompt | None = None
    replace_after: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """Replace the settings."""

    settings: Settings
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class ReportUsage:
    """Report the chat model's own count of a context that was sent, and the record that it contained.

    A report whose caller does not name the `epoch` (0) has the message version alone to tell whether it predates a
    rewind or the like. `taught` is what the reports of the model's other conversations have taught.
    """

    message_version: int
    summary_id: str
    prompt_tokens: int
    epoch: int = 0
    taught: Taught = UNTAUGHT


@dataclass(frozen=True, slots=True)
class RequestPass:
    """Force a pass, regardless of ratio, cooldown, hysteresis, min_messages and waits."""


@dataclass(frozen=True, slots=True)
class RemakeFallback:
    """Have a model remake the oldest fallback record of the live chain."""


@dataclass(frozen=True, slots=True)
class StartPass:
    """Claim the pending pass for the process `owner`, in the place of the claim whose token is `after`."""

    pass_id: str
    owner: str
    after: int


@dataclass(frozen=True, slots=True)
class ReleasePass:
    """Give the claim back at shutdown: the pass stays pending for the next start."""

    pass_id: str
    token: int


@dataclass(frozen=True, slots=True)
class CompletePass:
    """Commit the record of a pass, if it saves enough.

    Attributes:
        pass_id: The pass.
        token: The token of the claim under which the record was made; 0 without one.
        record: The pass's record.
        source: The source of the record's token count.
        fallback: True if it stands in for a model's record.
        model_failed: True if a model was asked first and failed.
        interrupted: True if the window could not wait for a model that had not failed.
        tried: The models that the pass turned to, in order, as `provider:model`.
        finds: The finds in the messages that leave; the decision sets their limits.
        leaving: Names and sentences of everything that leaves.
        rules: The standing rules of these, and those that were taken back; the decision sets their limit.
    """

    pass_id: str
    token: int
    record: SummaryRecord
    source: TokenSource
    fallback: bool
    model_failed: bool = False
    interrupted: bool = False
    tried: tuple[str, ...] = ()
    finds: LedgerFinds = NOTHING_FOUND
    leaving: Leaving = NOTHING_LEAVES
    rules: RuleFinds = NO_RULES_FOUND


@dataclass(frozen=True, slots=True)
class FailPass:
    """End a pass without a record. `token` is that of the claim, 0 without one; the other fields are those of
    SummarizationFailed."""

    pass_id: str
    token: int
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
    """End the wait after failures that lasts until `until_us`, even if the clock was set back since."""

    until_us: int


@dataclass(frozen=True, slots=True)
class ApplyRules:
    """Check whether a pass is due: policy or time may have changed since the last event."""


@dataclass(frozen=True, slots=True)
class ChangeTitle:
    """Name the conversation as a model did after record `record_id`, unless its client has, or messages were redacted
    since: `redaction` is that of the state from which the title was made."""

    title: str
    record_id: str
    redaction: Redaction = NO_REDACTION


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
class DropRules:
    """Drop the standing rules of message `number`: the one that reads `text`, or all of them."""

    number: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class RewindConversation:
    """Remove the messages after number `to`."""

    to: int
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class RedactMessages:
    """Take away the texts of these messages, and everything that was made of them."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ForkConversation:
    """Begin another conversation as this one stands, with these settings, without the `revoked` records, and without
    the texts of the `redacted` messages."""

    fork_id: str
    settings: Settings
    revoked: tuple[str, ...] = ()
    redacted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CloseConversation:
    """Take no more messages and begin no more passes; end the pending one."""


@dataclass(frozen=True, slots=True)
class ReopenConversation:
    """Take messages again, and apply the rules at once."""


@dataclass(frozen=True, slots=True)
class EraseConversation:
    """Erase everything that was said, as one of the number of `conversations` that one call erases; with
    `unchanged_since_us` only if no caller has changed it since."""

    erasure_id: str
    conversations: int = 1
    unchanged_since_us: int | None = None


@dataclass(frozen=True, slots=True)
class ArchiveConversation:
    """Let the contents of the events before `archived` leave the log, unless others have come since its file was
    written."""

    archived: ConversationArchived


@dataclass(frozen=True, slots=True)
class UnarchiveConversation:
    """Go on from the state before the archiving, whose contents are in the log again."""


@dataclass(frozen=True, slots=True)
class ConfirmPurge:
    """Say that the files have nothing left of what the event with this version, and those before, took out."""

    event_version: int


Amendment = RevokeSummary | RateSummary | PinMessages | UnpinMessages | DropRules | RewindConversation | RedactMessages

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
    | ChangeTitle
    | EraseConversation
    | ArchiveConversation
    | UnarchiveConversation
    | ConfirmPurge
    | CloseConversation
    | ReopenConversation
    | ForkConversation
    | Amendment
)
