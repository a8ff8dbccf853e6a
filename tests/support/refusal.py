"""A refused call's words: status, reason and details, taken apart for comparison."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, ResourceInfo, RetryInfo
from grpc_status import rpc_status


@dataclass(slots=True)
class Refusal:
    """An error status, as a client sees it."""

    code: str = ""
    reason: str = ""
    domain: str = ""
    text: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    resource: tuple[str, str] = ("", "")
    retry_s: float | None = None
    pushback: str | None = None


@asynccontextmanager
async def refused(code: str, reason: str) -> AsyncIterator[Refusal]:
    """The block ends in an error of this status, with an ErrorInfo of this reason; its details are filled in."""
    refusal = Refusal()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield refusal
    found = refusal_of(caught.value)
    for name in Refusal.__dataclass_fields__:
        setattr(refusal, name, getattr(found, name))
    assert (refusal.code, refusal.reason, refusal.domain) == (code, reason, "abridged.dev"), refusal.text


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """The error, taken apart."""
    refusal = Refusal(code=error.code().name, text=error.details() or "")
    status = rpc_status.from_call(_WithMetadata(error))
    for detail in status.details if status is not None else ():
        _take(refusal, detail)
    refusal.pushback = next((str(value) for key, value in error.trailing_metadata() if "pushback" in key), None)
    return refusal


class _WithMetadata:
    """grpc_status reads synchronous calls; an asynchronous error has the same facts."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self._error = error

    def trailing_metadata(self) -> Any:
        return self._error.trailing_metadata()

    def code(self) -> grpc.StatusCode:
        return self._error.code()

    def details(self) -> str | None:
        return self._error.details()


def _take(refusal: Refusal, detail: Any) -> None:
    info, bad, resource, retry = ErrorInfo(), BadRequest(), ResourceInfo(), RetryInfo()
    if detail.Unpack(info):
        refusal.reason, refusal.domain, refusal.metadata = info.reason, info.domain, dict(info.metadata)
    elif detail.Unpack(bad):
        refusal.fields = {violation.field: violation.description for violation in bad.field_violations}
    elif detail.Unpack(resource):
        refusal.resource = (resource.resource_type, resource.resource_name)
    elif detail.Unpack(retry):
        refusal.retry_s = retry.retry_delay.ToNanoseconds() / 1e9
