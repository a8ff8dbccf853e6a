"""What happened, as plain values: the shell reports a fact once, and metrics and spans both read it.

No fact has a field for text of a conversation, so none can reach a metric or a span by way of one. The values of the
enumerations are label values; alerts and dashboards match on them. Those that the domain has too are copies, since this
package imports nothing above it; a test holds each to its original.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "BREAKER_VALUES",
    "BatchCommitted",
    "BreakerState",
    "ChatAnswered",
    "ChatAsked",
    "ChatFailed",
    "ChatStarted",
    "ConversationsCounted",
    "ErrorClass",
    "Fact",
    "HeldBy",
    "LogMeasured",
    "PassEnded",
    "PassOutcome",
    "PassStarted",
    "PassTrigger",
    "RecordCommitted",
    "RpcEnded",
    "RpcStarted",
    "SkipReason",
    "SpanFact",
]


class PassOutcome(StrEnum):
    """How a pass ended. The success ratio is success / (success + fallback + error)."""

    SUCCESS = "success"
    FALLBACK = "fallback"
    ERROR = "error"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class PassTrigger(StrEnum):
    """Why a pass began."""

    RATIO = "ratio"
    EMERGENCY = "emergency"
    PERIODIC = "periodic"
    FOLLOW_UP = "follow_up"
    FORCED = "forced"
    REMAKE = "remake"


class ErrorClass(StrEnum):
    """Why a model did not make the record."""

    TRANSPORT = "TRANSPORT"
    MODEL_MISSING = "MODEL_MISSING"
    MODEL_REFUSED = "MODEL_REFUSED"
    TRUNCATED = "TRUNCATED"
    INVALID = "INVALID"
    CANCELLED = "CANCELLED"
    INTERNAL = "INTERNAL"


class SkipReason(StrEnum):
    """Why nothing was compressed although a pass was due."""

    IRREDUCIBLE = "IRREDUCIBLE"
    NO_GAIN = "NO_GAIN"
    DEPTH_LIMIT = "DEPTH_LIMIT"


class BreakerState(StrEnum):
    """Whether a model host is asked."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


class HeldBy(StrEnum):
    """Why a window past its trigger is left as it is."""

    PASS_PENDING = "PASS_PENDING"  # noqa: S105 - a state, not a password
    DISABLED = "DISABLED"
    WAITING_AFTER_FAILURE = "WAITING_AFTER_FAILURE"
    IRREDUCIBLE = "IRREDUCIBLE"
    DEPTH_LIMIT = "DEPTH_LIMIT"
    MIN_MESSAGES = "MIN_MESSAGES"
    COOLDOWN = "COOLDOWN"
    HYSTERESIS = "HYSTERESIS"


@dataclass(frozen=True, slots=True)
class ConversationsCounted:
    """How many conversations' windows cost more than their budget, and how many past their trigger are held by what."""

    over_budget: int
    held: Mapping[HeldBy, int]


@dataclass(frozen=True, slots=True)
class LogMeasured:
    """What the log's files take, write-ahead log included, and what may still be written on their volume."""

    size_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class RpcStarted:
    """A call came in. `method` is `package.Service/Method`, or `_OTHER` for what nobody serves.

    `traceparent` is the caller's header.
    """

    method: str
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class RpcEnded:
    """A call was answered. `code` is the name of its gRPC status, such as `OK`.

    `reason` is that of its ErrorInfo, empty without one. `conversation_id` is what the request named, once it has
    passed the field rules.
    """

    code: str
    reason: str = ""
    conversation_id: str = ""


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """One transaction of the log. Times are nanoseconds since the epoch; `traceparents` are those of its appends."""

    started_ns: int
    ended_ns: int
    events: int
    traceparents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PassStarted:
    """A pass was claimed. `trigger_traceparent` is what the event that triggered it carries, possibly days ago."""

    conversation_id: str
    summarization_id: str
    trigger: PassTrigger
    depth: int
    ratio: float
    tokens_before: int
    messages: int
    model: str
    trigger_traceparent: str = ""


@dataclass(frozen=True, slots=True)
class RecordCommitted:
    """The record that a pass committed. Tokens are those of the range before, of the rendered record after."""

    depth: int
    tokens_before: int
    tokens_after: int
    ratio_after: float
    identifier_survival: float = 1.0
    unsupported_claims: int = 0


@dataclass(frozen=True, slots=True)
class PassEnded:
    """A pass is over, or was skipped before it began: then `trigger` and `duration_s` are None and no model was asked.

    `model` is the one that made the record, or else the last that was asked. `error_class` is also given when a
    fallback made the record: it says why the model did not. `record` comes with outcomes success and fallback.
    """

    outcome: PassOutcome
    trigger: PassTrigger | None
    model: str = ""
    duration_s: float | None = None
    attempts: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    error_class: ErrorClass | None = None
    skip_reason: SkipReason | None = None
    record: RecordCommitted | None = None
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class ChatStarted:
    """A model is asked. `compacted` says that the prompt holds a summary in place of older messages."""

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
    """The host that the model is being asked at; the last one, when a call moves on to another."""

    server_address: str
    server_port: int


@dataclass(frozen=True, slots=True)
class ChatAnswered:
    """The model answered. `model` is its own name, `finish_reason` the provider's word, `stop` or `length`."""

    model: str
    finish_reason: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ChatFailed:
    """The model did not answer."""

    error_class: ErrorClass


SpanFact = RpcStarted | PassStarted | ChatStarted
"""Facts that open a span."""

Fact = RpcEnded | PassEnded | ChatAsked | ChatAnswered | ChatFailed
"""Facts that a span notes before it closes."""

BREAKER_VALUES: Mapping[BreakerState, int] = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}
"""How a gauge shows the state: the worse, the higher, so that a maximum over hosts is the worst."""
