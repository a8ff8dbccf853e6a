"""Takes every call, whatever its transport, through span, credential, request, quota (both by `admission`), deadline,
errors and metrics. A stream takes its quota before its request is read.

Streams of ours and those of gRPC's own services, which may need no credential, have places apart, so that the latter
cannot take the former's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import cache
from typing import Any

from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status

from abridged.observability.metrics import Metrics
from abridged.observability.stages import Stage, stage
from abridged.observability.tracing import Tracing
from abridged.service.api.admission import Admission, Tenant
from abridged.service.api.auth import Authenticator, Caller, set_caller
from abridged.service.api.call import Call, Refused, StreamingCall, UnaryCall
from abridged.service.api.call_record import CallRecord
from abridged.service.api.deadlines import default_deadline_s, in_time
from abridged.service.api.drain import Drain
from abridged.service.api.errors import Unauthenticated, UnknownMethod, status_of
from abridged.service.api.items import Items
from abridged.service.api.methods import UNKNOWN, Method
from abridged.service.api.slow_calls import SlowCalls


class Pipeline:
    """Serves calls; `drain` ends the unary ones that are being served."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        admission: Admission,
        tracing: Tracing,
        metrics: Metrics,
        slow: SlowCalls,
        deadline_s: Callable[[str], float] = default_deadline_s,
    ) -> None:
        self._authenticator = authenticator
        self._admission = admission
        self._tracing = tracing
        self._metrics = metrics
        self._slow = slow
        self._deadline_s = deadline_s
        self.drain = Drain()

    async def unary(self, method: Method, call: UnaryCall) -> bytes:
        """The encoded response. Raises Refused, CancelledError, or the error with which the handler ended the call."""
        caller = self._known(method, call)
        record = CallRecord(method, call, self._tracing, self._metrics, self._slow)
        with record:
            self.drain.enter()
            try:
                answer = await self._answer(method, call, caller, record)
            except BaseException as error:
                status = record.failed(call, self.drain.meaning_of(error))
                if status is None:
                    raise
            else:
                record.ended("OK")
                return answer
            finally:
                self.drain.leave()
        raise Refused(status)

    async def _answer(self, method: Method, call: UnaryCall, caller: Caller | None, record: CallRecord) -> bytes:
        with stage(Stage.ADMISSION):
            tenant = self._admitted(method, caller) or await self.drain.turn_away()
            if method is UNKNOWN:
                await tenant.skip(call.read)
                raise UnknownMethod("there is no such method")
            request, size = await tenant.take(call.read)
        try:
            if method.is_open:
                return call.encoded(await self._handled(method, call, request, record))
            tenant.take_call(reads=method.reads)
            try:
                answer = call.encoded(await self._handled(method, call, request, record))
            finally:
                tenant.give_back_call()
            call.when_over(tenant.sending(len(answer), reads=method.reads))
            return answer
        finally:
            tenant.room.let_go(size)

    def _handled(self, method: Method, call: UnaryCall, request: Any, record: CallRecord) -> Awaitable[Any]:
        """Return the handler's result, within the deadline of the method where the caller has set none."""
        record.conversation_id = getattr(request, "conversation_id", "")
        handling = call.handled(request)
        return handling if call.time_remaining() is not None else in_time(handling, self._deadline_s(method.name))

    async def stream(self, method: Method, call: StreamingCall) -> AsyncGenerator[Any, None]:
        """The responses: encoded for methods of ours, else as the handler yields them. Raises as `unary` does."""
        caller = self._known(method, call)
        record = CallRecord(method, call, self._tracing, self._metrics, None)
        with record:
            try:
                tenant = self._admitted(method, caller) or await self.drain.turn_away()
                with tenant.stream(ours=method.is_ours):
                    if method.is_ours:
                        self._metrics.subscriber_opened()
                    try:
                        async with aclosing(self._items(method, call, record, tenant)) as items:
                            async for item in items:
                                yield item
                    finally:
                        if method.is_ours:
                            self._metrics.subscriber_closed()
            except BaseException as error:
                status = record.failed(call, error)
                if status is None:
                    raise
            else:
                record.ended("OK")
                return
        raise Refused(status)

    async def _items(
        self, method: Method, call: StreamingCall, record: CallRecord, tenant: Tenant
    ) -> AsyncGenerator[Any, None]:
        request = await self._requested(method, call, tenant)
        record.conversation_id = getattr(request, "conversation_id", "")
        async with aclosing(call.handled(request)) as responses:
            async for response in responses:
                if not method.is_ours:
                    yield response
                    continue
                item = call.encoded(response)
                with tenant.item(len(item)):
                    yield item

    async def _requested(self, method: Method, call: StreamingCall, tenant: Tenant) -> Any:
        """The request of a call, or an iterator of those of a stream."""
        if not method.takes_stream:
            return (await tenant.read(call.read))[0]
        if not method.is_ours:
            return call.requests
        return Items(
            method,
            call,
            tenant,
            drain=self.drain,
            item_s=self._deadline_s(method.name),
            ended=self._metrics.append_ingested,
            slow=self._slow,
        )

    def _known(self, method: Method, call: Call) -> Caller | None:
        """The caller; None if the call needs no credential, or the server no longer takes calls.

        Raises Refused for all others before anything is allocated for the call: calls without a credential arrive in
        tens of thousands, and calls with one wait until they have been refused.
        """
        if method.is_open or not self.drain.takes_up():
            return None
        try:
            return self._authenticator.caller(call.metadata)
        except Unauthenticated as error:
            status = _unauthenticated(str(error))
        self._metrics.rpc_ended(method.name, Code.Name(status.code), seconds=0.0)
        raise Refused(status)

    def _admitted(self, method: Method, caller: Caller | None) -> Tenant | None:
        """The caller's tenant; None if the server no longer takes calls. Raises PermissionDenied."""
        if method.is_open:
            return self._admission.of("")
        if caller is None:
            return None
        if method.scope:
            caller.require(method.scope)
        set_caller(caller)
        return self._admission.of(caller.namespace)


@cache
def _unauthenticated(text: str) -> Status:
    """The status of Unauthenticated, which has a few texts, all ours."""
    status = status_of(Unauthenticated(text))
    assert status is not None, "the table has a row for it"
    return status
