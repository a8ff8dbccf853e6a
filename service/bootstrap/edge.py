"""The sidecar's servers around its core: gRPC, HTTP, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from abridged.eventlog.subscription import CommitWakeUp, Timing
from abridged.observability.facts import LogMeasured, RecallMeasured
from abridged.service.api.admission import Admission, Limits
from abridged.service.api.amendments import AmendmentCalls
from abridged.service.api.appends import AppendCalls, RequestLimits
from abridged.service.api.archives import ArchiveCalls
from abridged.service.api.auth import Authenticator, Grant
from abridged.service.api.contexts import ContextCalls
from abridged.service.api.conversation_servicer import ConversationServicer
from abridged.service.api.conversations import ConversationCalls
from abridged.service.api.erasures import ErasureCalls
from abridged.service.api.event_log_servicer import EventLogServicer
from abridged.service.api.http import Calls, HttpServer, health_routes, http_server_at, metrics_route
from abridged.service.api.look import Look
from abridged.service.api.pages import Pages
from abridged.service.api.passes import PassCalls
from abridged.service.api.pipeline import Pipeline
from abridged.service.api.readiness import log_checks, model_check, rebuild_check, recall_check, space_check
from abridged.service.api.records import RecordCalls
from abridged.service.api.rules import RuleCalls
from abridged.service.api.search import SearchCalls
from abridged.service.api.server import CONNECTIONS_MAX, Connections, GrpcServer, Servicers
from abridged.service.api.server_info_servicer import ServerFacts, ServerInfoServicer
from abridged.service.api.slow_calls import SlowCalls
from abridged.service.api.text_servicer import TextServicer
from abridged.service.api.validation import Validation
from abridged.service.api.watch import WatchCalls, Watching
from abridged.service.api.web_server import WebAccess
from abridged.service.bootstrap.backends import stored_backend
from abridged.service.bootstrap.core import Core, new_id
from abridged.service.bootstrap.descriptors import for_connections
from abridged.service.bootstrap.open_log import require_no_archives
from abridged.service.bootstrap.rebuild import rebuild_if_due
from abridged.service.bootstrap.recall import drop_unused_index, forgotten, lacking, open_recall
from abridged.service.config.settings import ServerSettings, Settings
from abridged.service.conversations.following import Following
from abridged.service.conversations.later_erasures import erase_again
from abridged.service.conversations.purges import Forgotten
from abridged.service.conversations.redactions import Redactions
from abridged.service.conversations.retention import archive_unchanged, erase_unchanged
from abridged.service.passes.stand_ins import StandIns
from abridged.service.recall.recall import Recall
from abridged.service.version import VERSION


@dataclass(frozen=True, slots=True)
class Running:
    """A serving sidecar. `http_address` is empty if there is no HTTP port; `woken` returns when everything has been
    requested whose time has come."""

    grpc_addresses: tuple[str, ...]
    http_address: str
    log_id: str
    woken: Callable[[], Awaitable[None]]


@dataclass(slots=True)
class Sidecar:
    """Core and servers as one: started once, stopped once."""

    server: ServerSettings
    core: Core
    grpc: GrpcServer
    http: HttpServer | None
    recall: Recall | None
    forgotten: Forgotten
    started: asyncio.Event

    async def start(self) -> Running:
        """Bind the addresses, take up what earlier runs left, then serve. A failure leaves nothing running."""
        http_address = ""
        try:
            # First, because it reports what the rest waits for.
            if self.http is not None:
                port = await self.http.start()
                http_address = f"{self.server.http_listen.rpartition(':')[0]}:{port}"
            await rebuild_if_due(self.core.rebuild)
            if self.core.keys is not None:
                await asyncio.to_thread(require_no_archives, self.core.table)
                await erase_again(self.core.keys, self.core.conversations, new_id)
            attention = await asyncio.to_thread(self.core.table.attention)
            self.core.models.remember(await asyncio.to_thread(self.core.table.calibrations))
            # The first count loads the vocabulary, and no client should wait for that.
            await asyncio.to_thread(self.core.counter.count, "ready")
            # After HTTP, because gRPC cannot release an address before it has served.
            addresses = self.grpc.listen(self.server.listen)
            self.core.reactor.start(attention)
            await self.core.purges.start(self.forgotten)
            await self.grpc.start()
            if self.recall is not None:
                self.recall.projection.start()
        except BaseException:
            await self.stop()
            raise
        self.started.set()
        return Running(addresses, http_address, self.core.log.log_id, self.core.reactor.woken)

    async def stop(self) -> None:
        """End the calls within the grace, then the running passes; the rest stays pending in the log."""
        self.started.clear()
        # Callers that wait for a pass get the current state; a committed append must not end as an error.
        self.core.changes.close()
        grace_s = self.server.shutdown_grace_s
        began = time.monotonic()
        await self.grpc.stop(grace_s=grace_s / 2)
        if self.recall is not None:
            await self.recall.projection.stop()
        await self.core.reactor.stop(grace_s=max(0.1, grace_s - (time.monotonic() - began)))
        if self.http is not None:
            await self.http.close()


_CLOSED = "calls from other machines need server.tokens; without, let server.http_listen be on loopback"

REQUEST_FACTOR = 2
"""The limit of one request, in largest appends: that limit counts messages, without the rest of their request."""

LARGEST_APPENDS = 16
"""Appends of the largest size that a namespace may have in progress; a thousand ordinary ones weigh less."""


def assembled(
    settings: Settings, core: Core, resources: AsyncExitStack, *, free_bytes: Callable[[Path], int]
) -> Sidecar:
    """The servers around `core`. `free_bytes` returns the free bytes on a file's volume."""
    stopping, started = asyncio.Event(), asyncio.Event()
    if core.conversations.is_shared:
        _follow(core, resources)
    if settings.log.time_to_live_s:
        _start_retention(partial(erase_unchanged, core.erasures), settings.log.time_to_live_s, core, started, resources)
    if settings.log.archive_after_s:
        _start_retention(
            partial(archive_unchanged, core.archives), settings.log.archive_after_s, core, started, resources
        )
    server, validation = settings.server, Validation()
    admission = admission_of(settings)
    drop_unused_index(settings)
    recall = open_recall(settings, core.log, core.conversations.state, resources)
    pipeline = Pipeline(
        authenticator=Authenticator(
            Grant(g.token.get_secret_value() if g.token else "", g.namespace, frozenset(g.scopes))
            for g in server.tokens
        ),
        admission=admission,
        tracing=core.tracing,
        metrics=core.metrics,
        slow=SlowCalls(settings.telemetry.slow_call_s),
    )
    grpc = GrpcServer(
        servicers(settings, core, resources, admission, stopping, recall, validation),
        pipeline,
        validation,
        request_bytes_max=REQUEST_FACTOR * server.batch_bytes_max,
        stopping=stopping,
        connections=Connections(max(1, for_connections(CONNECTIONS_MAX) // len(server.listen))),
        web=WebAccess(frozenset(server.http_origins), "" if server.takes_http_calls else _CLOSED),
    )
    return Sidecar(
        server=server,
        core=core,
        grpc=grpc,
        http=_http(settings, core, started, free_bytes, recall, grpc.web),
        recall=recall,
        forgotten=partial(forgotten, settings, recall),
        started=started,
    )


def _follow(core: Core, resources: AsyncExitStack) -> None:
    """Have waiting callers notice the commits of other processes."""
    wake_up = CommitWakeUp(core.log)
    resources.callback(wake_up.close)
    following = Following(core.log, core.executor, wake_up, core.changes, core.conversations)
    resources.callback(asyncio.create_task(following.run()).cancel)


def _start_retention(
    retention: Callable[..., Awaitable[None]],
    after_s: float,
    core: Core,
    started: asyncio.Event,
    resources: AsyncExitStack,
) -> None:
    """Have conversations leave that have not changed for a time, from the start on."""

    async def leaving() -> None:
        await started.wait()
        await retention(after_s=after_s, now_us=core.now_us)

    resources.callback(asyncio.create_task(leaving()).cancel)


def admission_of(settings: Settings) -> Admission:
    """The admission of calls, with the limits that the server's settings give."""
    server = settings.server
    return Admission(
        Limits(
            server.concurrent_rpcs_max,
            server.streams_max,
            server.waits_max,
            server.answer_bytes_max,
            settings.summarizer.concurrent_texts,
        ),
        request_bytes_max=LARGEST_APPENDS * server.batch_bytes_max,
        multi_tenant=server.is_multi_tenant,
    )


def servicers(
    settings: Settings,
    core: Core,
    resources: AsyncExitStack,
    admission: Admission,
    stopping: asyncio.Event,
    recall: Recall | None,
    validation: Validation,
) -> Servicers:
    """The services of `core` and of its index. `resources` closes what they hold; `stopping` ends the streams."""
    watching = _watching(core, resources, stopping)
    server = settings.server
    stand_ins = StandIns(core.conversations, core.reactor, core.changes)
    contexts = ContextCalls(core.conversations, stand_ins, core.changes, core.policies, admission)
    pages = Pages(hashlib.blake2b(core.log.log_id.encode(), digest_size=32).digest())
    return Servicers(
        conversations=ConversationServicer(
            AppendCalls(
                core.conversations,
                core.models,
                contexts,
                RequestLimits(
                    server.message_bytes_max, server.batch_messages_max, server.batch_bytes_max, server.ingest_window
                ),
                validation,
                new_id=new_id,
                stopping=stopping,
            ),
            contexts,
            ConversationCalls(core.conversations, core.table, core.models, core.policies, core.telemetry, pages),
            PassCalls(core.conversations, core.reactor, contexts, pages),
            RecordCalls(core.conversations, pages),
            RuleCalls(core.conversations, pages),
            AmendmentCalls(core.conversations, core.policies),
            ArchiveCalls(core.archives, core.conversations, core.policies),
            ErasureCalls(core.erasures, Redactions(core.conversations, core.table, core.purges)),
            WatchCalls(core.conversations, watching),
            SearchCalls(recall, lacking(settings), core.table, core.metrics, watching.noticing),
        ),
        event_log=EventLogServicer(watching, core.table),
        server_info=ServerInfoServicer(
            _facts(settings, core),
            core.reactor.backlog,
            admission,
            conversations=core.conversations,
            changes=core.changes,
            recall=recall,
        ),
        texts=TextServicer(
            texts=core.texts,
            counting=core.conversations.counting,
            reason=core.counter.reason,
            policies=core.policies,
            models=core.models,
            admission=admission,
            stopping=stopping,
        ),
    )


def _watching(core: Core, resources: AsyncExitStack, stopping: asyncio.Event) -> Watching:
    wake_up = CommitWakeUp(core.log)
    resources.callback(wake_up.close)
    return Watching(
        core.log,
        core.executor,
        wake_up,
        core.board,
        stopping,
        core.now_us,
        time.monotonic,
        Timing(),
        core.conversations.log.noticing,
        core.conversations.reached,
    )


def _http(
    settings: Settings,
    core: Core,
    started: asyncio.Event,
    free_bytes: Callable[[Path], int],
    recall: Recall | None,
    calls: Calls,
) -> HttpServer | None:
    if not settings.server.http_listen:
        return None
    ready = dict(log_checks(core.log))
    rebuild = core.rebuild
    if rebuild is not None:
        ready["read_table"] = rebuild_check(rebuild)
    file = settings.log.file
    if file is not None:
        ready["space"] = space_check(lambda: free_bytes(file))
    details = {"model": model_check(core.model)}
    if recall is not None:
        details["recall"] = recall_check(recall.projection)
    health = health_routes(
        started=started.is_set,
        busy=lambda: rebuild is not None and rebuild.is_due,
        ready=ready,
        details=details,
    )
    look = Look(
        core.metrics,
        core.table,
        None if file is None else lambda: LogMeasured(stored_backend(settings.log).size_bytes(), free_bytes(file)),
        recall=None if recall is None else partial(_behind, core, recall),
    )
    return http_server_at(settings.server.http_listen, health | metrics_route(core.metrics, look=look), calls)


def _behind(core: Core, recall: Recall) -> RecallMeasured:
    progress, head = recall.projection.progress, core.log.head()
    return RecallMeasured(
        words_position=progress.words,
        vectors_position=progress.vectors,
        words_behind=max(0, head - progress.words),
        vectors_behind=max(0, head - progress.vectors),
        stopped=bool(progress.stopped),
    )


def _facts(settings: Settings, core: Core) -> ServerFacts:
    server = settings.server
    return ServerFacts(
        version=VERSION,
        log_id=core.log.log_id,
        models=settings.summarizer.models,
        limits={
            "append_messages_max": server.batch_messages_max,
            "message_bytes_max": server.message_bytes_max,
            "append_bytes_max": server.batch_bytes_max,
            "concurrent_rpcs_max": server.concurrent_rpcs_max,
            "streams_max": server.streams_max,
            "waits_max": server.waits_max,
            "answer_bytes_max": server.answer_bytes_max,
            "queued_passes_max": settings.summarizer.queue_max,
            "request_bytes_max": REQUEST_FACTOR * server.batch_bytes_max,
            "concurrent_texts_max": settings.summarizer.concurrent_texts,
        },
        started_us=core.now_us(),
        counter=core.counter.name,
        counts_exactly=core.counter.counts_exactly,
    )
