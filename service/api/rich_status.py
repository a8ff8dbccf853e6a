"""A google.rpc.Status: packed from a code, a reason of ours and details, and read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyProto
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from abridged.v1 import error_reason_pb2

DOMAIN = "abridged.dev"
"""Distinguishes our reasons from those of other services: a name of the project, not an address."""


def packed(
    code: grpc.StatusCode, reason: int, text: str, metadata: Mapping[str, str], details: tuple[Any, ...]
) -> Status:
    """The status, with ErrorInfo and then `details`."""
    name = error_reason_pb2.ErrorReason.Name(reason).removeprefix("ERROR_REASON_")  # type: ignore[arg-type]  # a row's
    wrapped_details = []
    for detail in (ErrorInfo(reason=name, domain=DOMAIN, metadata=metadata), *details):
        wrapped = AnyProto()
        wrapped.Pack(detail)
        wrapped_details.append(wrapped)
    return Status(code=code.value[0], message=text, details=wrapped_details)


def retry_ms(status: Status) -> int | None:
    """Milliseconds until a caller may come back, as the status says it; None when it does not."""
    retry = RetryInfo()
    for detail in status.details:
        if detail.Unpack(retry):
            return int(retry.retry_delay.ToMilliseconds())
    return None


def reason_of(status: Status) -> str:
    """The reason of its ErrorInfo, which every status of ours has."""
    info = ErrorInfo()
    status.details[0].Unpack(info)
    return str(info.reason)


def bad_request(violations: Iterable[tuple[str, str]]) -> BadRequest:
    """Fields and what is wrong with each."""
    return BadRequest(
        field_violations=[BadRequest.FieldViolation(field=field, description=what) for field, what in violations]
    )


def retry_info(seconds: float) -> RetryInfo:
    """The detail that says when a caller may come back."""
    return RetryInfo(retry_delay=Duration(seconds=int(seconds), nanos=round(seconds % 1 * 1e9)))
