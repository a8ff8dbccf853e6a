"""A sidecar without its transport: the same core and the same servicers, called as gRPC would call them.

A call costs a tenth of one over a channel, for trials by the thousand. Errors become statuses by the
product's own table.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.rpc.status_pb2 import Status

from abridged.observability.logs import LogSettings, configure_logs
from abridged.service.api.auth import Authenticator, set_caller
from abridged.service.api.errors import internal_status, status_of
from abridged.service.api.validation import Validation
from abridged.service.bootstrap.core import Core, open_core
from abridged.service.bootstrap.edge import admission_of, servicers
from abridged.service.bootstrap.rebuild import rebuild_if_due
from abridged.service.config.sources import load
from abridged.v1 import conversation_service_pb2, event_log_service_pb2
from tests.support.patience import PATIENCE_S


class RefusedCall(Exception):
    """A call that ended in an error, with the status that a client would get."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class _Context:
    """The part of a call's context that a servicer uses."""

    def time_remaining(self) -> float:
        return PATIENCE_S


class _Stub:
    def __init__(self, servicer: Any) -> None:
        self._servicer = servicer

    def __getattr__(self, method: str) -> Callable[..., Any]:
        serve = getattr(self._servicer, method)

        async def call(request: Any, **_: Any) -> Any:
            set_caller(_ANYBODY)
            try:
                answered = await serve(request, _Context())
            except Exception as error:
                status = status_of(error) or internal_status(type(error).__name__)
                raise RefusedCall(status) from error
            return _parsed(method, answered) if isinstance(answered, bytes) else answered

        return call


def _parsed(method: str, answered: bytes) -> Any:
    """The message of an answer that its servicer has encoded by itself."""
    name = f"{method}Response"
    module = event_log_service_pb2 if hasattr(event_log_service_pb2, name) else conversation_service_pb2
    return getattr(module, name).FromString(answered)


_ANYBODY = Authenticator(()).caller({})


@dataclass(frozen=True, slots=True)
class BelowGrpc:
    """The stubs of a `tests.support.sidecar.Sidecar`, as a `Chat` needs them. `failed` has what broke the log."""

    conversations: Any
    event_log: Any
    core: Core
    failed: list[Exception]
    metadata: tuple[tuple[str, str], ...] = ()

    async def idle(self) -> None:
        """Return when no pass is pending."""
        await self.core.reactor.backlog.idle("default")


@asynccontextmanager
async def below_grpc(
    folder: Path, settings: Mapping[str, Any], *, now_us: Callable[[], int]
) -> AsyncIterator[BelowGrpc]:
    """The core of the log in `folder`, with its passes running and servicers around it."""
    loaded = load({}, flags={"log.path": str(folder / "abridged.db"), "recall.index": "off", **settings}).settings
    failed: list[Exception] = []
    async with AsyncExitStack() as resources:
        resources.callback(configure_logs(LogSettings(level="error", style="json", content=False), io.StringIO()))
        core = open_core(loaded, {}, resources, on_fatal=failed.append, now_us=now_us)
        await rebuild_if_due(core.rebuild)
        core.reactor.start(core.table.attention())
        resources.push_async_callback(core.reactor.stop, grace_s=0.1)
        served = servicers(loaded, core, resources, admission_of(loaded), asyncio.Event(), None, Validation())
        yield BelowGrpc(_Stub(served.conversations), _Stub(served.event_log), core, failed)
