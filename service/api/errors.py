"""Every error as a gRPC status with its reason: one table, read by one interceptor.

EdgeError
├── InvalidRequest       fields that break a rule
├── Unauthenticated      no credential, or one that is not known
├── PermissionDenied     a credential without the scope
├── TooManyRequests      over a limit of the server; come back later
├── CursorOutOfRange     a cursor past the end: of another log, or of this one before it was restored
├── ServerStopping       the server takes no more calls
├── ServiceNotFound      a health check of a service that is not here
├── RequestTooLarge      more bytes than any request needs
├── CompressedRequest    bytes that would have to be inflated first
├── UnknownMethod        this version does not have the method
├── DeadlinePassed       a call without a deadline took longer than its method may
└── WaitTooShort         the deadline came before what was waited for
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ResourceInfo
from google.rpc.status_pb2 import Status

from abridged.v1 import conversation_pb2, error_reason_pb2
from eventlog import errors as log
from service.api.fitting import fitting
from service.api.rich_status import bad_request, packed, retry_info
from service.domain import errors as domain
from service.recall import errors as recall

LOG_RETRY_S = 0.5
FULL_RETRY_S = 5.0
MEMORY_RETRY_S = 1.0
EMBEDDER_RETRY_S = 5.0
MODEL_RETRY_S = 5.0
RESTART_RETRY_S = 5.0
"""Until a supervisor has started the next process and it serves."""
LISTED_BYTES_MAX = 1_000
"""Bytes of violations or ids that a status lists, at least one of them. They are in its message and in its details, and
a client takes 8 KiB of trailers in all: what is larger arrives as another error."""


class EdgeError(Exception):
    """The edge refuses a call."""


class InvalidRequest(EdgeError):
    """Fields break rules. `violations` has the first of them, each with what is wrong; never a value."""

    def __init__(self, violations: Iterable[tuple[str, str]]) -> None:
        self.violations = fitting(violations, lambda v: len("".join(v).encode()), bytes_max=LISTED_BYTES_MAX)
        super().__init__("; ".join(f"{field}: {what}" if field else what for field, what in self.violations))


class Unauthenticated(EdgeError):
    """A credential is needed."""


class PermissionDenied(EdgeError):
    """The credential lacks a scope."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"the credential lacks the scope {scope}")
        self.scope = scope


class TooManyRequests(EdgeError):
    """Over a limit of the server."""

    def __init__(self, what: str, *, retry_after_s: float) -> None:
        super().__init__(f"too many {what}")
        self.retry_after_s = retry_after_s


class CursorOutOfRange(EdgeError):
    """A cursor past the end. `head` is where that is, as far as the caller may see."""

    def __init__(self, *, cursor: int, head: int, log_id: str) -> None:
        super().__init__(f"the cursor {cursor} is past {head}, the end: it is of another log, or older than a restore")
        self.cursor = cursor
        self.head = head
        self.log_id = log_id


class ServerStopping(EdgeError):
    """The server takes no more calls."""


class ServiceNotFound(EdgeError):
    """A health check of a service that is not here."""


class RequestTooLarge(EdgeError):
    """More bytes than any request needs, most of them in `field`; empty if no field could be found in time."""

    def __init__(self, *, size: int, limit: int, field: str) -> None:
        super().__init__(f"the request has {size} bytes, the limit is {limit}; send it in parts")
        self.size = size
        self.limit = limit
        self.field = field


class CompressedRequest(EdgeError):
    """The request is compressed, so its size is unknown."""


class UnknownMethod(EdgeError):
    """This version does not have the method."""


class DeadlinePassed(EdgeError):
    """The call has no deadline from its client, and took longer than its method may."""


class WaitTooShort(EdgeError):
    """The call's deadline came before the message version that it waits for."""

    def __init__(self, *, wanted: int, actual: int) -> None:
        super().__init__(f"version {wanted} was waited for, the conversation is at {actual}")
        self.wanted = wanted
        self.actual = actual


@dataclass(frozen=True, slots=True)
class _Row:
    code: grpc.StatusCode
    reason: int
    metadata: Callable[[Any], Mapping[str, object]] = lambda _: {}
    details: Callable[[Any], tuple[Any, ...]] = lambda _: ()
    text: str | Callable[[Any], str] = ""


def _no_such(kind: str, reason: Any, name: Callable[[Any], str]) -> _Row:
    """NOT_FOUND, with the name of what is not there."""
    return _Row(_C.NOT_FOUND, reason, details=lambda e: (ResourceInfo(resource_type=kind, resource_name=name(e)),))


_R = error_reason_pb2
_C = grpc.StatusCode

_STOPPING = _Row(
    _C.UNAVAILABLE,
    _R.ERROR_REASON_SERVER_STOPPING,
    details=lambda _: (retry_info(RESTART_RETRY_S),),
    text="the server stops; the same ids make a retry safe",
)
"""To a caller, a server that stops and a log that is closed or failed are the same: it retries when the next process
serves. The server's log says which of them it was. A log whose file is gone differs: this process stays."""

STATUSES: Mapping[type[Exception], _Row] = {
    InvalidRequest: _Row(
        _C.INVALID_ARGUMENT, _R.ERROR_REASON_INVALID_FIELD, details=lambda e: (bad_request(e.violations),)
    ),
    Unauthenticated: _Row(_C.UNAUTHENTICATED, _R.ERROR_REASON_UNAUTHENTICATED),
    PermissionDenied: _Row(_C.PERMISSION_DENIED, _R.ERROR_REASON_PERMISSION_DENIED, lambda e: {"scope": e.scope}),
    TooManyRequests: _Row(
        _C.RESOURCE_EXHAUSTED, _R.ERROR_REASON_TOO_MANY_REQUESTS, details=lambda e: (retry_info(e.retry_after_s),)
    ),
    CursorOutOfRange: _Row(
        _C.OUT_OF_RANGE,
        _R.ERROR_REASON_CURSOR_OUT_OF_RANGE,
        lambda e: {"log_id": e.log_id, "cursor": e.cursor, "head": e.head},
    ),
    ServiceNotFound: _Row(_C.NOT_FOUND, _R.ERROR_REASON_SERVICE_NOT_FOUND),
    RequestTooLarge: _Row(
        _C.INVALID_ARGUMENT,
        _R.ERROR_REASON_TOO_LARGE,
        lambda e: {"size": e.size, "limit": e.limit},
        lambda e: (bad_request(((e.field, str(e)),)),),
    ),
    CompressedRequest: _Row(_C.UNIMPLEMENTED, _R.ERROR_REASON_NOT_IMPLEMENTED),
    UnknownMethod: _Row(_C.UNIMPLEMENTED, _R.ERROR_REASON_NOT_IMPLEMENTED),
    DeadlinePassed: _Row(_C.DEADLINE_EXCEEDED, _R.ERROR_REASON_DEADLINE_EXCEEDED),
    WaitTooShort: _Row(
        _C.DEADLINE_EXCEEDED,
        _R.ERROR_REASON_DEADLINE_EXCEEDED,
        lambda e: {"wanted": e.wanted, "actual": e.actual},
    ),
    domain.InvalidPolicy: _Row(
        _C.INVALID_ARGUMENT,
        _R.ERROR_REASON_INVALID_POLICY,
        details=lambda e: (bad_request(((_setting(e.field), e.reason),)),),
    ),
    domain.TooLarge: _Row(
        _C.INVALID_ARGUMENT,
        _R.ERROR_REASON_TOO_LARGE,
        lambda e: {"size": e.size, "limit": e.limit},
        lambda e: (bad_request(((e.what, f"{e.size} bytes, the limit is {e.limit}"),)),),
    ),
    domain.InvalidPageToken: _Row(
        _C.INVALID_ARGUMENT,
        _R.ERROR_REASON_INVALID_PAGE_TOKEN,
        details=lambda _: (bad_request((("page_token", "is not of this list"),)),),
        text="the page token is not of this list",
    ),
    domain.ConversationNotFound: _no_such(
        "conversation", _R.ERROR_REASON_CONVERSATION_NOT_FOUND, lambda e: e.conversation_id
    ),
    domain.ConversationIsClosed: _Row(_C.FAILED_PRECONDITION, _R.ERROR_REASON_CONVERSATION_CLOSED),
    domain.EpisodeNotFound: _no_such("episode", _R.ERROR_REASON_EPISODE_NOT_FOUND, lambda e: e.episode_id),
    domain.SummaryNotFound: _no_such("summary", _R.ERROR_REASON_SUMMARY_NOT_FOUND, lambda e: e.summary_id),
    domain.PassNotFound: _no_such("summarization", _R.ERROR_REASON_SUMMARIZATION_NOT_FOUND, lambda e: e.pass_id),
    domain.WrongMessageVersion: _Row(
        _C.ABORTED,
        _R.ERROR_REASON_WRONG_EXPECTED_VERSION,
        lambda e: {"expected": e.expected, "actual": e.actual},
    ),
    domain.MessageIdReused: _Row(
        _C.ALREADY_EXISTS,
        _R.ERROR_REASON_MESSAGE_ID_REUSED,
        lambda e: {"message_ids": ",".join(fitting(e.message_ids, len, bytes_max=LISTED_BYTES_MAX))},
    ),
    domain.RequestIdReused: _Row(
        _C.ALREADY_EXISTS, _R.ERROR_REASON_REQUEST_ID_REUSED, text="the request id was used with other content"
    ),
    domain.NothingToSummarize: _Row(
        _C.FAILED_PRECONDITION, _R.ERROR_REASON_NOTHING_TO_SUMMARIZE, text="nothing in the window can be compressed"
    ),
    domain.DepthLimitReached: _Row(
        _C.FAILED_PRECONDITION, _R.ERROR_REASON_DEPTH_LIMIT, text="the chain of summaries is as deep as it may be"
    ),
    domain.SummaryNotInUse: _Row(
        _C.FAILED_PRECONDITION,
        _R.ERROR_REASON_SUMMARY_REVOKED,
        details=lambda e: (ResourceInfo(resource_type="summary", resource_name=e.summary_id),),
    ),
    domain.MessageNotFound: _Row(
        _C.NOT_FOUND,
        _R.ERROR_REASON_MESSAGE_NOT_FOUND,
        lambda e: {"number": e.number},
        lambda e: (ResourceInfo(resource_type="message", resource_name=str(e.number)),),
    ),
    domain.MessageRemoved: _Row(
        _C.FAILED_PRECONDITION, _R.ERROR_REASON_MESSAGE_REMOVED, lambda e: {"number": e.number}
    ),
    domain.PinsTooLarge: _Row(
        _C.FAILED_PRECONDITION,
        _R.ERROR_REASON_PINS_TOO_LARGE,
        lambda e: {"tokens": e.tokens, "limit": e.limit},
    ),
    domain.PassesDisabled: _Row(
        _C.FAILED_PRECONDITION, _R.ERROR_REASON_SUMMARIZATION_DISABLED, text="summarization is switched off"
    ),
    domain.PassSuperseded: _Row(
        _C.ABORTED, _R.ERROR_REASON_WRONG_EXPECTED_VERSION, text="the summarization is no longer pending"
    ),
    domain.WindowTooLarge: _Row(
        _C.FAILED_PRECONDITION,
        _R.ERROR_REASON_WINDOW_TOO_LARGE,
        lambda e: {"tokens": e.tokens, "limit": e.limit},
    ),
    domain.WaitedPassFailed: _Row(
        _C.FAILED_PRECONDITION,
        _R.ERROR_REASON_SUMMARIZATION_FAILED,
        lambda e: {"summarization_id": e.pass_id, "error_class": e.error_class, "cause": e.cause},
    ),
    domain.TextNotSummarized: _Row(
        _C.FAILED_PRECONDITION,
        _R.ERROR_REASON_SUMMARIZATION_FAILED,
        lambda e: {"error_class": e.error_class, "cause": e.cause},
    ),
    domain.ModelAway: _Row(
        _C.UNAVAILABLE,
        _R.ERROR_REASON_MODEL_AWAY,
        lambda e: {"error_class": e.error_class, "cause": e.cause},
        lambda _: (retry_info(MODEL_RETRY_S),),
    ),
    domain.VersionNotReached: _Row(
        _C.FAILED_PRECONDITION,
        _R.ERROR_REASON_VERSION_NOT_REACHED,
        lambda e: {"wanted": e.wanted, "actual": e.actual},
    ),
    domain.TooManyPasses: _Row(
        _C.RESOURCE_EXHAUSTED, _R.ERROR_REASON_TOO_MANY_REQUESTS, details=lambda e: (retry_info(e.retry_after_s),)
    ),
    recall.RecallOff: _Row(
        _C.FAILED_PRECONDITION, _R.ERROR_REASON_RECALL_OFF, lambda e: {"setting": e.setting, "value": e.value}
    ),
    recall.RecallStopped: _Row(
        _C.FAILED_PRECONDITION,
        _R.ERROR_REASON_RECALL_STOPPED,
        lambda e: {"cause": str(e)},
        text="the search index follows the log no longer; /readyz and the server's log say why",
    ),
    recall.EmbedderAway: _Row(
        _C.UNAVAILABLE,
        _R.ERROR_REASON_EMBEDDER_AWAY,
        details=lambda _: (retry_info(EMBEDDER_RETRY_S),),
        text="the model that makes vectors does not answer; a search by words needs none",
    ),
    log.WrongExpectedVersion: _Row(
        _C.UNAVAILABLE, _R.ERROR_REASON_LOG_UNAVAILABLE, details=lambda _: (retry_info(LOG_RETRY_S),), text="try again"
    ),
    log.EventTooLarge: _Row(
        _C.INVALID_ARGUMENT, _R.ERROR_REASON_TOO_LARGE, lambda e: {"size": e.size, "limit": e.limit}
    ),
    log.LogUnavailable: _Row(
        _C.UNAVAILABLE,
        _R.ERROR_REASON_LOG_UNAVAILABLE,
        details=lambda _: (retry_info(LOG_RETRY_S),),
        text="the log is busy; the same ids make a retry safe",
    ),
    ServerStopping: _STOPPING,
    log.LogClosed: _STOPPING,
    log.LogFailed: _STOPPING,
    log.LogGone: _Row(
        _C.UNAVAILABLE,
        _R.ERROR_REASON_LOG_GONE,
        details=lambda _: (retry_info(RESTART_RETRY_S),),
        text="the log's file is not in its place; the same ids make a retry safe",
    ),
    log.LogFull: _Row(
        _C.RESOURCE_EXHAUSTED,
        _R.ERROR_REASON_LOG_FULL,
        details=lambda _: (retry_info(FULL_RETRY_S),),
    ),
    MemoryError: _Row(
        _C.RESOURCE_EXHAUSTED,
        _R.ERROR_REASON_TOO_MANY_REQUESTS,
        details=lambda _: (retry_info(MEMORY_RETRY_S),),
        text="the server is out of memory; the same ids make a retry safe",
    ),
    log.LogCorrupt: _Row(
        _C.DATA_LOSS,
        _R.ERROR_REASON_LOG_CORRUPT,
        text="something that is stored is damaged or missing, and nothing was changed; stop the sidecar and run "
        "`abridged log verify`, which says what",
    ),
    log.StreamCorrupt: _Row(
        _C.DATA_LOSS,
        _R.ERROR_REASON_LOG_CORRUPT,
        lambda e: {"conversation_id": e.stream.name, "version": e.version},
        text=lambda e: _damaged(e.stream.name, e.version),
    ),
}
"""A type stands for its subclasses too; an error whose type is not here is a bug and answered as INTERNAL."""


def status_of(error: Exception) -> Status | None:
    """The status of an error that callers may see; None for one that they may not."""
    row = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None)
    if row is None:
        return None
    metadata = {name: str(value) for name, value in row.metadata(error).items()}
    text = row.text(error) if callable(row.text) else row.text or str(error)
    return packed(row.code, row.reason, text, metadata, row.details(error))


def internal_status(error_id: str) -> Status:
    """A bug: an id that the server's log carries, and nothing else."""
    return packed(_C.INTERNAL, _R.ERROR_REASON_INTERNAL, f"internal error {error_id}", {"error_id": error_id}, ())


def _damaged(conversation_id: str, version: int) -> str:
    """By its version, because positions count the events of all namespaces."""
    where = f"event {version} of conversation {conversation_id}" if version else f"conversation {conversation_id}"
    return (
        f"{where} is damaged, so the conversation is refused; its events were not changed, and no snapshot of it "
        "was removed; stop the sidecar, run `abridged log verify`, which says what is damaged, and restore a backup"
    )


def _setting(field: str) -> str:
    """Where a request has it: some rules are about the conversation's own settings, most about its policy."""
    own = field in conversation_pb2.ConversationSettings.DESCRIPTOR.fields_by_name
    return f"settings.{field}" if own else f"settings.policy.{field}"
