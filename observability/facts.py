"""Facts about calls, passes, models and the log, as plain values: each is reported once; metrics and spans read it.

No fact has a field for conversation text, so no text can reach a metric or a span through one. Enum values are label
values. The package imports nothing above it: words of the domain, such as triggers and error classes, arrive as text,
and `MetricLabels` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class PassOutcome(StrEnum):
    """The outcome of a pass. The success ratio is success / (success + fallback + error)."""

    SUCCESS = "success"
    FALLBACK = "fallback"
    CLEARED = "cleared"
    ERROR = "error"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class PreparationOutcome(StrEnum):
    """The outcome of a record that was prepared before its trigger."""

    USED = "used"
    EXTENDED = "extended"
    WASTED = "wasted"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TitleOutcome(StrEnum):
    """The outcome of a request for a title."""

    CHANGED = "changed"
    REFUSED = "refused"
    FAILED = "failed"


class RewriteCause(StrEnum):
    """The reason why a window changed elsewhere than at its end: a prompt cache loses what follows the change."""

    SUMMARIZED = "summarized"
    CLEARED = "cleared"
    REVOKED = "revoked"
    PINNED = "pinned"
    UNPINNED = "unpinned"
    REWOUND = "rewound"
    REDACTED = "redacted"


class SearchMode(StrEnum):
    """The index that a search compared."""

    WORDS = "words"
    MEANING = "meaning"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class ConversationsCounted:
    """Conversations whose window costs more than their budget, and those past their trigger by the reason that holds
    them; a missing reason counts 0."""

    over_budget: int
    held: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RecallMeasured:
    """The positions of the log up to which words and vectors are indexed, how many positions are not yet, and whether
    the index has stopped following the log."""

    words_position: int
    vectors_position: int
    words_behind: int
    vectors_behind: int
    stopped: bool


@dataclass(frozen=True, slots=True)
class LogMeasured:
    """The size of the log's files, write-ahead log included, and the bytes that their volume still takes."""

    size_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class RpcStarted:
    """A call arrived.

    Attributes:
        method: `package.Service/Method`, or `_OTHER` for a method that is not served.
        traceparent: The caller's header; empty without one.
    """

    method: str
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class RpcEnded:
    """A call ended.

    Attributes:
        code: The name of its gRPC status, such as `OK`.
        reason: The reason in its ErrorInfo; empty without one.
        conversation_id: The conversation that the request names; empty until it has passed the field rules.
    """

    code: str
    reason: str = ""
    conversation_id: str = ""


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """One transaction of the log, with the number of its events and the traceparents of its appends. The transaction
    began and was on disk at these times, in nanoseconds since the epoch."""

    started_ns: int
    ended_ns: int
    events: int
    traceparents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassStarted:
    """A pass was claimed.

    Attributes:
        summarization_id: The pass.
        depth: The depth of the resulting record.
        ratio: The token ratio at the trigger.
        tokens_before: Tokens that the record replaces in the window.
        messages: Messages that the record covers.
        model: The first model to ask, as `provider:model`.
        trigger_traceparent: The traceparent of the event that triggered the pass, possibly days ago; empty without one.
    """

    conversation_id: str
    summarization_id: str
    trigger: str
    depth: int
    ratio: float
    tokens_before: int
    messages: int
    model: str
    trigger_traceparent: str = ""


@dataclass(frozen=True, slots=True)
class PreparationStarted:
    """A record is about to be prepared, before any trigger; attributes as in PassStarted."""

    conversation_id: str
    depth: int
    ratio: float
    tokens_before: int
    messages: int
    model: str


@dataclass(frozen=True, slots=True)
class RecordCommitted:
    """The record that a pass committed.

    Attributes:
        depth: The record's place in its chain, from 0.
        tokens_before: Tokens that it replaces in the window.
        tokens_after: Tokens of the rendered record.
        ratio_after: The token ratio with the record in the window.
        identifier_survival: Share of the source's required identifiers that it keeps, 0 to 1.
        unsupported_claims: Invented identifiers that were removed from its draft.
        unsupported_statements: Statements of its draft that no message is near.
    """

    depth: int
    tokens_before: int
    tokens_after: int
    ratio_after: float
    identifier_survival: float = 1.0
    unsupported_claims: int = 0
    unsupported_statements: int = 0


@dataclass(frozen=True, slots=True)
class PassEnded:
    """A pass ended, or was skipped before it began.

    Attributes:
        trigger: Why it began; None if it was skipped before.
        model: The model that made the record, otherwise the last one asked; empty if none was.
        duration_s: Seconds from claim to commit; None if it never began.
        attempts: Model calls made, including refused connections.
        tokens_in: Prompt tokens that models read.
        tokens_out: Tokens that models wrote.
        error_class: Why no model made the record; also set with outcome fallback.
        skip_reason: Set with outcome skipped.
        record: Set with outcomes success and fallback.
        trace_id: The trace's id for exemplars; empty if the trace is not sampled.
    """

    outcome: PassOutcome
    trigger: str | None
    model: str = ""
    duration_s: float | None = None
    attempts: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    error_class: str | None = None
    skip_reason: str | None = None
    record: RecordCommitted | None = None
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class ChatStarted:
    """A model is about to be asked.

    Attributes:
        provider: `ollama`, for example.
        model: The model's name at the provider.
        prompt_name: The name of the prompt's template.
        temperature: Sampling temperature; None if the provider decides.
        seed: Sampling seed; None if the provider decides.
        output_tokens_max: Limit on the answer; None without one.
        attempt: The attempt within the pass, from 1.
        compacted: True if the prompt contains a summary in place of older messages.
    """

    provider: str
    model: str
    conversation_id: str = ""
    prompt_name: str = ""
    prompt_version: str = ""
    temperature: float | None = None
    seed: int | None = None
    output_tokens_max: int | None = None
    attempt: int = 1
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class ChatAsked:
    """A call goes to a host, by name or IP address, and TCP port. The last fact counts if the call moves on to
    another."""

    server_address: str
    server_port: int


@dataclass(frozen=True, slots=True)
class ChatAnswered:
    """The model answered.

    Attributes:
        model: The name that the server returned.
        finish_reason: The provider's value, `stop` or `length`.
    """

    model: str
    finish_reason: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ChatFailed:
    """The model returned no usable answer."""

    error_class: str


SpanFact = RpcStarted | PassStarted | PreparationStarted | ChatStarted
"""Facts that open a span."""

Fact = RpcEnded | PassEnded | ChatAsked | ChatAnswered | ChatFailed
"""Facts that a span records before it ends."""
