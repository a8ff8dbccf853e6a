"""A whole sidecar in the test's own process: real settings, a real SQLite file, a real gRPC channel.

Invariant: nothing but the edges is a test's: the clock, the environment, the file that the log lies in and the room
that its disk has. A second `sidecar` on the same folder is a restart.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2_grpc

from abridged.eventlog.sqlite.file import volume_free_bytes
from abridged.observability.logs import LogSettings, configure_logs
from abridged.service.bootstrap import Running, serve
from abridged.service.config.settings import Settings
from abridged.service.config.sources import load
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import (
    conversation_service_pb2_grpc,
    event_log_service_pb2,
    event_log_service_pb2_grpc,
    message_pb2,
    server_info_service_pb2,
    server_info_service_pb2_grpc,
    text_service_pb2_grpc,
)
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S

ANY_DRAFT: dict[str, Any] = {
    "policy.min_shared_words": 0,
    "policy.min_grounded_share": 0.0,
    "policy.min_coverage": 0.0,
    "policy.min_carried_share": 0.0,
    "policy.min_remake_share": 0.0,
    "policy.max_repetition": 0.0,
}
"""Settings under which a draft need not speak of its source: for tests of the fate of records."""

_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0))

_ROLES = (message_pb2.ROLE_USER, message_pb2.ROLE_ASSISTANT)


class Clock:
    """Microseconds since the epoch; `advance` makes time pass without anybody waiting for it."""

    def __init__(self) -> None:
        self._ahead_us = 0

    def __call__(self) -> int:
        return time_ns() // 1_000 + self._ahead_us

    def advance(self, seconds: float) -> None:
        """Move on."""
        self._ahead_us += int(seconds * 1e6)


@dataclass(slots=True)
class Sidecar:
    """A running sidecar and a channel to it."""

    running: Running
    channel: grpc.aio.Channel
    folder: Path
    _logs: io.StringIO = field(repr=False)
    _stop: Callable[[], Awaitable[None]] = field(repr=False)
    metadata: Sequence[tuple[str, str]] = ()

    @property
    def conversations(self) -> Any:
        """The stub of ConversationService."""
        return conversation_service_pb2_grpc.ConversationServiceStub(self.channel)

    @property
    def event_log(self) -> Any:
        """The stub of EventLogService."""
        return event_log_service_pb2_grpc.EventLogServiceStub(self.channel)

    @property
    def info(self) -> Any:
        """The stub of ServerInfoService."""
        return server_info_service_pb2_grpc.ServerInfoServiceStub(self.channel)

    @property
    def texts(self) -> Any:
        """The stub of TextService."""
        return text_service_pb2_grpc.TextServiceStub(self.channel)

    @property
    def health(self) -> Any:
        """The stub of gRPC's own health service."""
        return health_pb2_grpc.HealthStub(self.channel)

    @property
    def http_address(self) -> str:
        """`host:port` of the HTTP port."""
        return self.running.http_address

    @property
    def logs(self) -> list[dict[str, Any]]:
        """Every log line so far."""
        return [json.loads(line) for line in self._logs.getvalue().splitlines()]

    @property
    def log_text(self) -> str:
        """The log as it was written."""
        return self._logs.getvalue()

    def chat(self, conversation_id: str = "c1", **settings: Any) -> Chat:
        """A conversation of 2,000 tokens unless `settings` say otherwise."""
        return Chat(self, conversation_id, conversation.ConversationSettings(**{"context_length": 2_000, **settings}))

    async def stop(self) -> None:
        """Stop as a signal would, and return when the process would end."""
        await self._stop()

    async def idle(self) -> None:
        """Return when no pass is pending."""
        request = server_info_service_pb2.WaitIdleRequest(timeout=Duration(seconds=int(PATIENCE_S)))
        # A pass may begin between the moment at which none is pending and the answer.
        while not (await self.info.WaitIdle(request, metadata=self.metadata)).idle:
            continue

    async def http(self, path: str) -> str:
        """Return the HTTP port's answer, head and body."""
        host, _, port = self.http_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
        await writer.wait_closed()
        return answer.decode()


@dataclass(slots=True)
class Chat:
    """One conversation, as a client that appends to it and reads it."""

    sidecar: Sidecar
    id: str
    settings: conversation.ConversationSettings
    count: int = 0

    async def append(self, *messages: message_pb2.Message, wait_s: float = 0, **fields: Any) -> Any:
        """Append messages; opens the conversation with its settings."""
        self.count += len(messages)
        request = api.AppendMessagesRequest(
            conversation_id=self.id,
            messages=messages,
            settings=self.settings,
            wait=duration(wait_s) if wait_s else None,
            **fields,
        )
        return await self.sidecar.conversations.AppendMessages(
            request, timeout=PATIENCE_S, metadata=self.sidecar.metadata
        )

    async def talk(self, count: int, *, tokens: int = 120, wait_s: float = 0) -> Any:
        """Append `count` turns in one batch, each counted by the caller."""
        first = self.count + 1
        return await self.append(*(said(n, tokens=tokens) for n in range(first, first + count)), wait_s=wait_s)

    async def context(self, *, wait_s: float = 0, **options: Any) -> Any:
        """The window."""
        request = api.GetContextRequest(conversation_id=self.id, wait=duration(wait_s) if wait_s else None, **options)
        return await self.sidecar.conversations.GetContext(request, timeout=PATIENCE_S, metadata=self.sidecar.metadata)

    async def state(self) -> Any:
        """The conversation's state."""
        return (await self._ask("GetConversation", api.GetConversationRequest)).conversation

    async def summarize(self, *, wait_s: float = PATIENCE_S) -> Any:
        """A forced pass, at its end unless `wait_s` is 0."""
        wait = duration(wait_s) if wait_s else None
        return (await self._ask("SummarizeConversation", api.SummarizeConversationRequest, wait=wait)).summarization

    async def update(self, paths: Iterable[str], **settings: Any) -> Any:
        """Change the settings that `paths` name."""
        new = conversation.ConversationSettings(**settings)
        return await self._ask(
            "UpdateConversation", api.UpdateConversationRequest, settings=new, update_mask={"paths": list(paths)}
        )

    async def summaries(self) -> list[Any]:
        """The records, newest first."""
        return list((await self._ask("ListSummaries", api.ListSummariesRequest)).summaries)

    async def passes(self) -> list[Any]:
        """The passes, newest first."""
        return list((await self._ask("ListSummarizations", api.ListSummarizationsRequest)).summarizations)

    async def events(self, kind: str = "") -> list[Any]:
        """The decoded events, of one type when `kind` names it."""
        found: list[Any] = []
        after = 0
        while True:
            page = await self.sidecar.event_log.ReadEvents(
                event_log_service_pb2.ReadEventsRequest(conversation_id=self.id, after=after, limit=500),
                metadata=self.sidecar.metadata,
            )
            found += [decoded(event) for event in page.events if not kind or event.type == kind]
            if page.end:
                return found
            after = page.next_after

    async def _ask(self, method: str, request: Any, **fields: Any) -> Any:
        stub = getattr(self.sidecar.conversations, method)
        return await stub(
            request(conversation_id=self.id, **fields), timeout=PATIENCE_S, metadata=self.sidecar.metadata
        )


@asynccontextmanager
async def sidecar(
    folder: Path,
    settings: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    now_us: Callable[[], int] | None = None,
    free_bytes: Callable[[Path], int] = volume_free_bytes,
    metadata: Sequence[tuple[str, str]] = (),
    log_content: bool = False,
    lines: io.StringIO | None = None,
    adapt: Callable[[Settings], Settings] = lambda loaded: loaded,
) -> AsyncIterator[Sidecar]:
    """Serve the log in `folder` with the scripted model, or as `settings` (by their dotted names) say.

    `adapt` changes the settings that were loaded.
    """
    flags = {
        **({} if "log.url" in (settings or {}) else {"log.path": str(folder / "abridged.db")}),
        "server.listen": ["127.0.0.1:0"],
        "server.http_listen": "127.0.0.1:0",
        "server.shutdown_grace_s": 0.01,
        "recall.index": "off",
        "summarizer.models": ["scripted:default"],
        "summarizer.backoff_base_ms": 1,
        **(settings or {}),
    }
    lines = lines or io.StringIO()
    undo_logs = configure_logs(LogSettings(level="debug", style="json", content=log_content), lines)
    stop = asyncio.Event()
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(
            adapt(load({}, flags=flags).settings),
            environ or {},
            stop=stop,
            ready=ready.set_result,
            now_us=now_us or Clock(),
            free_bytes=free_bytes,
        )
    )

    async def stopped() -> None:
        stop.set()
        await serving

    try:
        waiting: set[asyncio.Future[Any]] = {serving, ready}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        running = ready.result()
        async with grpc.aio.insecure_channel(running.grpc_addresses[0], options=_OPTIONS) as channel:
            yield Sidecar(running, channel, folder, lines, stopped, metadata)
    finally:
        await stopped()
        undo_logs()


def said(
    number: int, content: str | None = None, *, role: Any = None, tokens: int | None = None, **fields: Any
) -> message_pb2.Message:
    """Message `number`; odd ones are the user's. The message's id is `m<number>`."""
    if content is None:
        content = f"Turn {number}: the importer reads table orders_{number} on host db-{number:02d}."
    return message_pb2.Message(
        id=f"m{number}", role=role or _ROLES[(number - 1) % 2], content=content, token_count=tokens, **fields
    )


def call(number: int, *ids: str, tokens: int | None = None) -> message_pb2.Message:
    """An assistant message with tool calls of these ids."""
    calls = [message_pb2.ToolCall(id=i, name="search", arguments='{"q": "orders"}') for i in ids]
    return message_pb2.Message(id=f"m{number}", role=message_pb2.ROLE_ASSISTANT, tool_calls=calls, token_count=tokens)


def tool_result(
    number: int, call_id: str, content: str = "3 rows", *, tokens: int | None = None
) -> message_pb2.Message:
    """A tool's result."""
    return message_pb2.Message(
        id=f"m{number}", role=message_pb2.ROLE_TOOL, content=content, tool_call_id=call_id, token_count=tokens
    )


def script(
    folder: Path, *steps: Mapping[str, Any], context_length: int = 8_192, name: str = "script"
) -> dict[str, Any]:
    """Settings for a scripted model that takes these steps; the last one repeats."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"context_length": context_length, "steps": list(steps)}))
    return {"summarizer.models": [f"scripted:{path}"]}


def on_ollama(server: FakeOllama, *models: str) -> dict[str, Any]:
    """Settings for models of this server."""
    return {"ollama.hosts": [server.url], "summarizer.models": [f"ollama:{m}" for m in models or ("qwen2.5:3b",)]}


def decoded(event: Any) -> Any:
    """Return the body of a stored event."""
    return getattr(event, event.WhichOneof("body"))


def duration(seconds: float) -> Duration:
    """Seconds as the contract has them."""
    return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
