"""The error of a failed call, and the patience with which a call is made again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage

from abridged.client.status_pb2 import BadRequest, ErrorInfo, RetryInfo, Status

_DETAILS = "grpc-status-details-bin"
_CUT = frozenset({grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN})
"""The codes with which a transport ends a call whose connection breaks, or whose server ends before it takes the call.
A call that its own caller cancels never ends with a status."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The number of attempts of a call, and the pauses in between, which double: full jitter, or what the server asks
    for.

    `uniform` draws a number between two.
    """

    attempts_max: int = 4
    pause_base_s: float = 0.1
    pause_max_s: float = 2.0
    uniform: Callable[[float, float], float] = random.uniform

    def pause_s(self, attempt: int, error: SidecarError) -> float | None:
        """Seconds until the next attempt, None at the end. `attempt` counts from 1."""
        if not error.retryable or attempt >= self.attempts_max:
            return None
        if error.retry_after_s is not None:
            return min(error.retry_after_s, self.pause_max_s) + self.uniform(0.0, self.pause_base_s)
        return self.uniform(0.0, min(self.pause_max_s, self.pause_base_s * 2.0 ** (attempt - 1)))


DEFAULT_PATIENCE = Patience()


class SidecarError(Exception):
    """A call failed.

    `code` is the gRPC status by name, `reason` the name of an ErrorReason without its prefix, empty when no sidecar
    answered. `message` says what happened; the error's text begins with the reason or, without one, with the code.
    `violations` has the fields of an INVALID_ARGUMENT with what is wrong with each.
    """

    def __init__(
        self,
        code: str,
        reason: str,
        message: str,
        *,
        metadata: Mapping[str, str],
        violations: tuple[tuple[str, str], ...] = (),
        retry_after_s: float | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(f"{reason or code}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.metadata = metadata
        self.violations = violations
        self.retry_after_s = retry_after_s
        self.retryable = retryable


def reason(error: BaseException) -> str:
    """Return why the sidecar refused a call, such as `MESSAGE_REMOVED`; empty if no sidecar said so.

    Takes a SidecarError, and the grpc.RpcError of a program that calls the stubs itself.
    """
    if isinstance(error, SidecarError):
        return error.reason
    return error_of_call(error, "").reason if isinstance(error, grpc.Call) else ""


def error_of_call(error: Any, address: str) -> SidecarError:
    """The error of a call that ended with a status. One without details comes from the transport."""
    details: Iterable[AnyMessage] = ()
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS:
            details = Status.FromString(value).details
    text = f"{address}: {_unanswered(address, error.code(), error.details() or '')}"
    return _error_of(error.code(), error.details() or "", details, without=text)


def _unanswered(address: str, code: grpc.StatusCode, details: str) -> str:
    """The meaning of a status that the transport made; of an address that cannot be right, what is wrong with it."""
    if code is grpc.StatusCode.UNAVAILABLE:
        if "errors resolving" in details:
            return _NO_ADDRESS if "://" in address or "parse port" in details else "no host of this name is known"
        if "Failed parsing HTTP/2" in details:
            return "what answers there does not speak gRPC; the port is one of the setting server.listen"
    return _TRANSPORT.get(code, details)


def error_of_refusal(code: int, message: str, details: Iterable[AnyMessage]) -> SidecarError:
    """The error of an append of a stream that was refused."""
    found = next(known for known in grpc.StatusCode if known.value[0] == code)
    return _error_of(found, message, details, without=message)


def _error_of(code: grpc.StatusCode, message: str, details: Iterable[AnyMessage], *, without: str) -> SidecarError:
    """The error of a status; `without` is its message when it has no reason of the sidecar."""
    info, retry, bad = ErrorInfo(), RetryInfo(), BadRequest()
    for detail in details:
        for known in (info, retry, bad):
            if detail.type_url.endswith(f"/google.rpc.{known.DESCRIPTOR.name}"):
                known.ParseFromString(detail.value)
    from_sidecar = bool(info.reason)
    return SidecarError(
        code.name,
        info.reason,
        (message or code.name) if from_sidecar else without,
        metadata=dict(info.metadata),
        violations=tuple((v.field, v.description) for v in bad.field_violations),
        retry_after_s=retry.retry_delay.ToNanoseconds() / 1e9 if retry.HasField("retry_delay") else None,
        retryable=(
            code is grpc.StatusCode.UNAVAILABLE or retry.HasField("retry_delay") or (code in _CUT and not from_sidecar)
        ),
    )


_TRANSPORT = {
    grpc.StatusCode.UNAVAILABLE: "nobody answers",
    grpc.StatusCode.DEADLINE_EXCEEDED: "no answer in time",
    grpc.StatusCode.UNIMPLEMENTED: "what answers there is no sidecar, or one of another version",
    grpc.StatusCode.CANCELLED: "the connection was closed",
    grpc.StatusCode.UNKNOWN: "the connection was closed",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "more than the transport takes",
}

_NO_ADDRESS = "an address is 'host:port' or 'unix:/path', without 'http://'"
