"""Records a call: its span, how it ended, how long it took.

Calls of gRPC's own services make no spans: a probe that asks every second would be most of what a collector gets.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractContextManager
from uuid import uuid4

import structlog
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status

from abridged.eventlog.errors import StreamCorrupt
from abridged.observability.facts import RpcEnded, RpcStarted
from abridged.observability.metrics import Metrics
from abridged.observability.stages import begin_stages
from abridged.observability.tracing import SilentTracing, Span, Tracing, sampled_trace_id
from abridged.service.api.call import Call
from abridged.service.api.errors import internal_status, status_of
from abridged.service.api.methods import UNKNOWN, Method
from abridged.service.api.rich_status import reason_of
from abridged.service.api.slow_calls import SlowCalls

_log = structlog.get_logger()
_UNSEEN = SilentTracing()

DEADLINE_SLACK_S = 0.25
"""A client's clock ends a call that much before the server's, whose deadline began with the arrival of the call."""


def status_for(error: BaseException, failed: str, **where: str) -> Status:
    """The status of an error. Clients get nothing of it but its table row; an error that is in no row is a bug, and
    gets an opaque id, which the log line `failed` carries with `where`.
    """
    status = status_of(error) if isinstance(error, Exception) else None
    if status is None or status.code == Code.DATA_LOSS or isinstance(error, MemoryError):
        error_id = uuid4().hex
        status = status or internal_status(error_id)
        damaged = (
            {"conversation_id": error.stream.name, "event_version": error.version}
            if isinstance(error, StreamCorrupt)
            else {}
        )
        _log.error(
            failed,
            **where,
            error_id=error_id,
            error_type=type(error).__name__,
            **damaged,
            exc_info=error,
        )
    return status


class CallRecord:
    """One call, open while it is entered; `slow` is None for a stream, which lasts.

    `conversation_id` is set when the request has passed: it is an id then, and no longer anybody's text.
    """

    __slots__ = ("_method", "_metrics", "_opened", "_slow", "_span", "_stages", "_started_s", "conversation_id")

    _span: Span

    def __init__(self, method: Method, call: Call, tracing: Tracing, metrics: Metrics, slow: SlowCalls | None) -> None:
        self._method = method
        self._metrics = metrics
        self._slow = slow
        self._stages = begin_stages()
        self._started_s = time.perf_counter()
        opens = tracing if method.is_ours or method is UNKNOWN else _UNSEEN
        started = RpcStarted(method=method.name, traceparent=call.metadata.get("traceparent", ""))
        self._opened: AbstractContextManager[Span] = opens.span(started)
        self.conversation_id = ""

    def __enter__(self) -> None:
        self._span = self._opened.__enter__()

    def __exit__(self, *error: object) -> None:
        # The call's status says how it ended; an exception that leaves says no more.
        self._opened.__exit__(None, None, None)

    def ended(self, code: str, *, reason: str = "") -> None:
        """Write down how the call ended: `code` is the name of its status. One that was slow is logged, too."""
        self._span.note(RpcEnded(code, reason, self.conversation_id))
        seconds = time.perf_counter() - self._started_s
        self._metrics.rpc_ended(
            self._method.name, code, seconds=seconds, trace_id=sampled_trace_id(self._span.traceparent)
        )
        if self._slow is not None:
            self._slow.ended(self._method.name, code, seconds=seconds, stages=self._stages)

    def failed(self, call: Call, error: BaseException) -> Status | None:
        """The status to refuse the call with; None when the caller has gone or the handler ended the call itself."""
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            left_s = call.time_remaining()
            self.ended("CANCELLED" if left_s is None or left_s > DEADLINE_SLACK_S else "DEADLINE_EXCEEDED")
            return None
        if (code := call.own_code(error)) is not None:
            self.ended(code)
            return None
        status = status_for(error, "rpc.failed", method=self._method.name)
        self.ended(Code.Name(status.code), reason=reason_of(status))
        return status
