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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ResourceInfo
from google.rpc.status_pb2 import Status

from abridged.eventlog import errors as log
from abridged.service.api.pages import fitting
from abridged.service.api.rich_status import bad_request, packed, retry_info
from abridged.service.domain import errors as domain
from abridged.service.recall import errors as recall
from abridged.v1 import conversation_pb2, error_reason_pb2

LOG_RETRY_S = 0.5
FULL_RETRY_S = 5.0
MEMORY_RETRY_S = 1.0
EMBEDDER_RETRY_S = 5.0
MODEL_RETRY_S = 5.0
RESTART_RETRY_S = 5.0
"""Seconds until a supervisor has started the next process and it serves."""
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
    """A limit of the server is exceeded."""

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
    """The request has more bytes than any needs, most of them in `field`; empty if no field could be found in time."""

    def __init__(self, *, size: int, limit: int, field: str) -> None:
        super().__init__(f"the request has {size} bytes, the limit is {limit}; send it in parts")
        self.size = size
        self.limit = limit
        self.field = field


class CompressedRequest(EdgeError):
    """The request is compressed, so its size is unknown."""

    def __init__(self) -> None:
        super().__init__("compressed requests are not read; send it as it is")


class UnknownMethod(EdgeError):
    """A method that this version does not have."""


class DeadlinePassed(EdgeError):
    """The call took longer than its deadline, or without one than its method may."""


class WaitTooShort(EdgeError):
    """The call's deadline came before the message version that it waits for."""

    def __init__(self, *, wanted: int, actual: int) -> None:
        super().__init__(f"version {wanted} was waited for, the conversation is at {actual}")
        self.wanted = wanted
        self.actual = actual


@dataclass(frozen=True, slots=True)
class _Row:
    """A status: its code and the name of its reason, and from the error's attributes its metadata (`fields`), when to
    retry (`retry_s`, seconds or the attribute that has them), the resource by its type and the attribute that names it,
    the violations, and the text; by default the error's own."""

    code: grpc.StatusCode
    reason: str
    fields: tuple[str, ...] = ()
    retry_s: float | str = 0.0
    resource: tuple[str, str] | None = None
    violations: Callable[[Any], Iterable[tuple[str, str]]] = lambda _: ()
    metadata: Callable[[Any], Mapping[str, object]] = lambda _: {}
    text: str | Callable[[Any], str] = ""

    def status(self, error: Any) -> Status:
        """Return the status of an error."""
        metadata = {name: getattr(error, name) for name in self.fields} | dict(self.metadata(error))
        text = self.text(error) if callable(self.text) else self.text or str(error)
        return packed(
            self.code,
            error_reason_pb2.ErrorReason.Value(f"ERROR_REASON_{self.reason}"),
            text,
            {name: str(value) for name, value in metadata.items()},
            tuple(self._details(error)),
        )

    def _details(self, error: Any) -> Iterator[Any]:
        if violations := tuple(self.violations(error)):
            yield bad_request(violations)
        if self.resource is not None:
            kind, name = self.resource
            yield ResourceInfo(resource_type=kind, resource_name=str(getattr(error, name)))
        if self.retry_s:
            yield retry_info(getattr(error, self.retry_s) if isinstance(self.retry_s, str) else self.retry_s)


_C = grpc.StatusCode
_BAD, _DENIED, _STALE = _C.INVALID_ARGUMENT, _C.FAILED_PRECONDITION, _C.ABORTED

_STOPPING = _Row(
    _C.UNAVAILABLE,
    "SERVER_STOPPING",
    retry_s=RESTART_RETRY_S,
    text="the server stops; the same ids make a retry safe",
)
"""The row of a server that stops and of a log that is closed or failed, which are the same to a caller: it retries when
the next process serves. The server's log says which of them it was. A log whose file is gone differs: this process
stays."""

STATUSES: Mapping[type[Exception], _Row] = {
    InvalidRequest: _Row(_BAD, "INVALID_FIELD", violations=lambda e: e.violations),
    Unauthenticated: _Row(_C.UNAUTHENTICATED, "UNAUTHENTICATED"),
    PermissionDenied: _Row(_C.PERMISSION_DENIED, "PERMISSION_DENIED", ("scope",)),
    TooManyRequests: _Row(_C.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS", retry_s="retry_after_s"),
    CursorOutOfRange: _Row(_C.OUT_OF_RANGE, "CURSOR_OUT_OF_RANGE", ("log_id", "cursor", "head")),
    ServiceNotFound: _Row(_C.NOT_FOUND, "SERVICE_NOT_FOUND"),
    RequestTooLarge: _Row(_BAD, "TOO_LARGE", ("size", "limit"), violations=lambda e: ((e.field, str(e)),)),
    CompressedRequest: _Row(_C.UNIMPLEMENTED, "NOT_IMPLEMENTED"),
    UnknownMethod: _Row(_C.UNIMPLEMENTED, "NOT_IMPLEMENTED"),
    DeadlinePassed: _Row(_C.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
    WaitTooShort: _Row(_C.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", ("wanted", "actual")),
    domain.InvalidPolicy: _Row(_BAD, "INVALID_POLICY", violations=lambda e: ((_setting(e.field), e.reason),)),
    domain.TooLarge: _Row(
        _BAD,
        "TOO_LARGE",
        ("size", "limit"),
        violations=lambda e: ((e.what, f"{e.size} bytes, the limit is {e.limit}"),),
    ),
    domain.InvalidPageToken: _Row(
        _BAD,
        "INVALID_PAGE_TOKEN",
        violations=lambda _: (("page_token", "is not of this list"),),
        text="the page token is not of this list",
    ),
    domain.ConversationNotFound: _Row(
        _C.NOT_FOUND, "CONVERSATION_NOT_FOUND", resource=("conversation", "conversation_id")
    ),
    domain.ConversationExists: _Row(
        _C.ALREADY_EXISTS, "CONVERSATION_EXISTS", resource=("conversation", "conversation_id")
    ),
    domain.ConversationIsErased: _Row(
        _C.NOT_FOUND, "CONVERSATION_ERASED", resource=("conversation", "conversation_id")
    ),
    domain.ConversationHasForks: _Row(_DENIED, "CONVERSATION_HAS_FORKS", ("forks",)),
    domain.MessageOfAncestor: _Row(_DENIED, "MESSAGE_OF_ANCESTOR", ("number", "holder")),
    domain.ForksTooDeep: _Row(_DENIED, "FORKS_TOO_DEEP", ("limit",)),
    domain.ConversationIsArchived: _Row(
        _DENIED, "CONVERSATION_ARCHIVED", ("file",), resource=("conversation", "conversation_id")
    ),
    domain.ConversationIsClosed: _Row(_DENIED, "CONVERSATION_CLOSED"),
    domain.ConversationIsOpen: _Row(_DENIED, "CONVERSATION_OPEN", resource=("conversation", "conversation_id")),
    domain.ArchiveUnusable: _Row(_DENIED, "ARCHIVE_UNUSABLE", ("file",)),
    domain.EpisodeNotFound: _Row(_C.NOT_FOUND, "EPISODE_NOT_FOUND", resource=("episode", "episode_id")),
    domain.SummaryNotFound: _Row(_C.NOT_FOUND, "SUMMARY_NOT_FOUND", resource=("summary", "summary_id")),
    domain.PassNotFound: _Row(_C.NOT_FOUND, "SUMMARIZATION_NOT_FOUND", resource=("summarization", "pass_id")),
    domain.WrongMessageVersion: _Row(_STALE, "WRONG_EXPECTED_VERSION", ("expected", "actual")),
    domain.MessageIdReused: _Row(
        _C.ALREADY_EXISTS,
        "MESSAGE_ID_REUSED",
        metadata=lambda e: {"message_ids": ",".join(fitting(e.message_ids, len, bytes_max=LISTED_BYTES_MAX))},
    ),
    domain.RequestIdReused: _Row(
        _C.ALREADY_EXISTS, "REQUEST_ID_REUSED", text="the request id was used with other content"
    ),
    domain.NothingToSummarize: _Row(_DENIED, "NOTHING_TO_SUMMARIZE", text="nothing in the window can be compressed"),
    domain.DepthLimitReached: _Row(_DENIED, "DEPTH_LIMIT", text="the chain of summaries is as deep as it may be"),
    domain.SummaryNotInUse: _Row(_DENIED, "SUMMARY_REVOKED", resource=("summary", "summary_id")),
    domain.RuleNotFound: _Row(_C.NOT_FOUND, "RULE_NOT_FOUND", ("number",), resource=("rule", "number")),
    domain.MessageNotFound: _Row(_C.NOT_FOUND, "MESSAGE_NOT_FOUND", ("number",), resource=("message", "number")),
    domain.MessageRemoved: _Row(_DENIED, "MESSAGE_REMOVED", ("number",)),
    domain.PinsTooLarge: _Row(_DENIED, "PINS_TOO_LARGE", ("tokens", "limit")),
    domain.PassesDisabled: _Row(_DENIED, "SUMMARIZATION_DISABLED", text="summarization is switched off"),
    domain.PassSuperseded: _Row(_STALE, "WRONG_EXPECTED_VERSION", text="the summarization is no longer pending"),
    domain.WindowTooLarge: _Row(_DENIED, "WINDOW_TOO_LARGE", ("tokens", "limit")),
    domain.WaitedPassFailed: _Row(
        _DENIED, "SUMMARIZATION_FAILED", ("error_class", "cause"), metadata=lambda e: {"summarization_id": e.pass_id}
    ),
    domain.TextNotSummarized: _Row(_DENIED, "SUMMARIZATION_FAILED", ("error_class", "cause")),
    domain.ModelAway: _Row(_C.UNAVAILABLE, "MODEL_AWAY", ("error_class", "cause"), MODEL_RETRY_S),
    domain.VersionNotReached: _Row(_DENIED, "VERSION_NOT_REACHED", ("wanted", "actual")),
    domain.TooManyPasses: _Row(_C.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS", retry_s="retry_after_s"),
    recall.RecallOff: _Row(_DENIED, "RECALL_OFF", ("setting", "value")),
    recall.RecallStopped: _Row(
        _DENIED,
        "RECALL_STOPPED",
        metadata=lambda e: {"cause": str(e)},
        text="the search index follows the log no longer; /readyz and the server's log say why",
    ),
    recall.EmbedderAway: _Row(
        _C.UNAVAILABLE,
        "EMBEDDER_AWAY",
        retry_s=EMBEDDER_RETRY_S,
        text="the model that makes vectors does not answer; a search by words needs none",
    ),
    log.WrongExpectedVersion: _Row(_C.UNAVAILABLE, "LOG_UNAVAILABLE", retry_s=LOG_RETRY_S, text="try again"),
    log.EventTooLarge: _Row(_BAD, "TOO_LARGE", ("size", "limit")),
    log.LogUnavailable: _Row(
        _C.UNAVAILABLE,
        "LOG_UNAVAILABLE",
        retry_s=LOG_RETRY_S,
        text="the log is busy; the same ids make a retry safe",
    ),
    log.KeysUnusable: _Row(
        _C.UNAVAILABLE,
        "LOG_UNAVAILABLE",
        retry_s=RESTART_RETRY_S,
        text="the keys of the log cannot be used, the server's operator must see to it; the same ids make a retry safe",
    ),
    ServerStopping: _STOPPING,
    log.LogClosed: _STOPPING,
    log.LogFailed: _STOPPING,
    log.LogGone: _Row(
        _C.UNAVAILABLE,
        "LOG_GONE",
        retry_s=RESTART_RETRY_S,
        text="the log is not in its place; the same ids make a retry safe",
    ),
    log.LogFull: _Row(_C.RESOURCE_EXHAUSTED, "LOG_FULL", retry_s=FULL_RETRY_S),
    MemoryError: _Row(
        _C.RESOURCE_EXHAUSTED,
        "TOO_MANY_REQUESTS",
        retry_s=MEMORY_RETRY_S,
        text="the server is out of memory; the same ids make a retry safe",
    ),
    log.LogCorrupt: _Row(
        _C.DATA_LOSS,
        "LOG_CORRUPT",
        text="something that is stored is damaged or missing, and nothing was changed; stop the sidecar and run "
        "`abridged log verify`, which says what",
    ),
    log.StreamCorrupt: _Row(
        _C.DATA_LOSS,
        "LOG_CORRUPT",
        ("version",),
        metadata=lambda e: {"conversation_id": e.stream.name},
        text=lambda e: _damaged(e.stream.name, e.version),
    ),
}
"""A type stands for its subclasses too; an error whose type is not here is a bug and answered as INTERNAL."""


def status_of(error: Exception) -> Status | None:
    """The status of an error that callers may see; None for one that they may not."""
    row = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None)
    return None if row is None else row.status(error)


def internal_status(error_id: str) -> Status:
    """A bug: an id that the server's log carries, and nothing else."""
    return packed(
        _C.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, f"internal error {error_id}", {"error_id": error_id}, ()
    )


def _damaged(conversation_id: str, version: int) -> str:
    """The text for a damaged event, by its version, because positions count the events of all namespaces."""
    where = f"event {version} of conversation {conversation_id}" if version else f"conversation {conversation_id}"
    return (
        f"{where} is damaged, so the conversation is refused; its events were not changed, and no snapshot of it "
        "was removed; stop the sidecar, run `abridged log verify`, which says what is damaged, and restore a "
        "backup or salvage the log"
    )


def _setting(field: str) -> str:
    """The path of a setting in a request: some rules are about the conversation's own settings, most about its
    policy."""
    own = field in conversation_pb2.ConversationSettings.DESCRIPTOR.fields_by_name
    return f"settings.{field}" if own else f"settings.policy.{field}"
