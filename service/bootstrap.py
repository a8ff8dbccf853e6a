"""The composition root: the only place where real things are chosen. Settings in, a running sidecar out."""

from __future__ import annotations

import asyncio
import hashlib
import random
import secrets
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog

from abridged.v1 import server_info_service_pb2
from eventlog.event import StreamId
from eventlog.log import EventLog
from eventlog.memory import MemoryEventLog
from eventlog.sqlite import SqliteEventLog
from eventlog.subscription import CommitWakeUp, Timing
from observability.logs import LogSettings, configure_logs
from observability.metrics import MetricLabels, Metrics
from observability.tracing import Tracing, TracingSettings, current_traceparent, open_tracing
from service.api.auth import Authenticator, Grant
from service.api.conversation_servicer import ConversationServicer, RequestLimits
from service.api.edge import METHOD_SCOPES, Edge, EdgeLimits
from service.api.event_log_servicer import EventLogServicer
from service.api.http import HttpServer, health_routes, metrics_route
from service.api.readiness import log_checks, model_check
from service.api.server import GrpcServer, Servicers
from service.api.server_info_servicer import ServerFacts, ServerInfoServicer
from service.api.validation import Validation
from service.api.watch import Watching
from service.api.wire import conversation_view
from service.changes import Changes
from service.chat_models import ChatModels
from service.codec.events import EVENT_TYPES
from service.commit_report import CommitReport
from service.context_lengths import ContextLengths
from service.conversation_log import ConversationLog
from service.conversations import Conversations, OnChanged
from service.counting import Counting
from service.domain.conversation import Conversation
from service.domain.decide import ChangeSettings
from service.domain.errors import DomainError
from service.domain.events import Event
from service.domain.prompt import CHAIN_TEMPLATE, PromptTemplate, template_from_text
from service.domain.tokens import TokenCounter
from service.models.model import SummaryModel
from service.models.retry import RetryPolicy
from service.policies import Policies
from service.projections import ConversationTable, MemoryConversationTable, SqlConversationTable
from service.providers import Providers, host_labels
from service.settings import Settings
from service.summarizer.ask import AskerSettings
from service.summarizer.pass_maker import PassMaker, Surroundings
from service.summarizer.progress import ProgressBoard
from service.summarizer.reactor import Reactor, ReactorLimits
from service.summarizer.report import Telemetry, TracedModel
from service.tokenizers.choice import counter_named
from service.version import VERSION

__all__ = ["Running", "run", "serve"]

READ_THREADS = 4
TIMED_METHODS = (
    "abridged.v1.ConversationService/AppendMessages",
    "abridged.v1.ConversationService/GetContext",
)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Running:
    """A sidecar that serves. `http_address` is empty when there is no HTTP port."""

    grpc_addresses: tuple[str, ...]
    http_address: str
    log_id: str


def run(settings: Settings, environ: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT, on an event loop of our own. Raises what `serve` raises."""
    undo_logs = configure_logs(
        LogSettings(
            level=settings.telemetry.log_level,
            style=settings.telemetry.log_format,
            content=settings.telemetry.log_content,
        ),
        sys.stderr,
    )
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_until_signalled(settings, environ))
    finally:
        undo_logs()


def _now_us() -> int:
    return time.time_ns() // 1_000


async def serve(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    stop: asyncio.Event,
    ready: Callable[[Running], None],
    now_us: Callable[[], int] = _now_us,
) -> None:
    """Serve until `stop` is set; `ready` hears when calls are taken. `now_us` is the clock of events and waits.

    Raises EventLogError when the log cannot be opened, AddressTaken when an address cannot be listened at, and
    TracingMisconfigured, AddressError, ScriptError, TokenizerMissing, or InvalidPolicy or OSError for a prompt file,
    when settings cannot be carried out.
    """
    async with AsyncExitStack() as resources:
        sidecar = await _assembled(settings, environ, resources, stop, now_us)
        running = await sidecar.start()
        ready(running)
        _log.info("sidecar.ready", addresses=list(running.grpc_addresses), http_address=running.http_address)
        await stop.wait()
        _log.info("sidecar.stopping")
        await sidecar.stop()


async def _until_signalled(settings: Settings, environ: Mapping[str, str]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, environ, stop=stop, ready=lambda _: None)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # a platform that has none
        return None
    return uvloop.new_event_loop


@dataclass(slots=True)
class _Sidecar:
    settings: Settings
    grpc: GrpcServer
    http: HttpServer | None
    reactor: Reactor
    table: ConversationTable
    log: EventLog
    started: asyncio.Event

    async def start(self) -> Running:
        self.reactor.start(await asyncio.to_thread(self.table.attention))
        http_address = ""
        if self.http is not None:
            port = await self.http.start()
            http_address = f"{self.settings.server.http_listen.rpartition(':')[0]}:{port}"
        addresses = await self.grpc.start(self.settings.server.listen)
        self.started.set()
        return Running(addresses, http_address, self.log.log_id)

    async def stop(self) -> None:
        """Within the grace: first the calls, then the running passes; what is left is pending in the log."""
        grace_s = self.settings.server.shutdown_grace_s
        began = time.monotonic()
        await self.grpc.stop(grace_s=grace_s / 2)
        await self.reactor.stop(grace_s=max(0.1, grace_s - (time.monotonic() - began)))
        if self.http is not None:
            await self.http.close()


async def _assembled(
    settings: Settings,
    environ: Mapping[str, str],
    resources: AsyncExitStack,
    stop: asyncio.Event,
    now_us: Callable[[], int],
) -> _Sidecar:
    """Everything, wired; what must be closed is in `resources`, in the order in which it must be closed."""
    tracing = open_tracing(TracingSettings.from_environment(environ, service_version=VERSION))
    resources.callback(tracing.close)
    metrics = Metrics(version=VERSION, labels=_labels(settings))
    executor = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="read")
    resources.callback(executor.shutdown, wait=False)
    asyncio.get_running_loop().set_default_executor(executor)
    log, table = _open_log(settings, metrics, tracing, resources, stop, now_us)

    counter = counter_named("bpe:o200k" if settings.tokens.counter == "bpe" else "estimate")
    providers = Providers(settings.ollama, metrics=metrics, counter=counter, clock_s=time.monotonic)
    resources.push_async_callback(providers.close)
    policies = Policies(settings.policy_for, client_fields=frozenset(settings.client_policy_fields))
    changes = Changes()
    heard = _Heard(changes)
    conversations = Conversations(
        ConversationLog(log, new_id=_new_id, traceparent=current_traceparent),
        policies=policies,
        counting=Counting(counter),
        clock_us=now_us,
        new_id=_new_id,
        on_changed=heard,
    )
    board = ProgressBoard()
    telemetry = Telemetry(metrics, tracing, board, log_content=settings.telemetry.log_content)
    model = TracedModel(providers.preferred(settings.summarizer.models), tracing)
    reactor = Reactor(
        conversations,
        maker=_maker(settings, model, providers.extractive(), counter, now_us),
        telemetry=telemetry,
        limits=ReactorLimits(settings.summarizer.concurrent_passes, settings.summarizer.queue_max),
    )
    models = _chat_models(settings, providers, table, conversations, resources)
    heard.listeners = (reactor.changed, lambda key, state, _: models.changed(key, state.settings))

    stopping = asyncio.Event()
    wake_up = CommitWakeUp(log)
    resources.callback(wake_up.close)
    watching = Watching(log, executor, wake_up, board, stopping, now_us, time.monotonic, Timing())
    servicers = Servicers(
        conversations=ConversationServicer(
            conversations=conversations,
            reactor=reactor,
            table=table,
            changes=changes,
            models=models,
            policies=policies,
            limits=RequestLimits(
                settings.server.message_bytes_max,
                settings.server.batch_messages_max,
                settings.server.batch_bytes_max,
            ),
            watching=watching,
            new_id=_new_id,
            token_key=hashlib.blake2b(log.log_id.encode(), digest_size=32).digest(),
        ),
        event_log=EventLogServicer(watching),
        server_info=ServerInfoServicer(_facts(settings, log, now_us), reactor.backlog),
    )
    edge = Edge(
        authenticator=Authenticator(
            Grant(g.token.get_secret_value() if g.token else "", g.namespace, frozenset(g.scopes))
            for g in settings.server.tokens
        ),
        limits=EdgeLimits(settings.server.concurrent_rpcs_max, settings.server.streams_max),
        validation=Validation(),
        tracing=tracing,
        metrics=metrics,
    )
    started = asyncio.Event()
    return _Sidecar(
        settings=settings,
        grpc=GrpcServer(servicers, edge, stopping=stopping),
        http=_http(settings, metrics, log, model, started),
        reactor=reactor,
        table=table,
        log=log,
        started=started,
    )


class _Heard:
    """Hands every commit to whoever listens; the listeners are known only after what they listen to is made."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self.listeners: tuple[OnChanged, ...] = ()

    def __call__(self, key: StreamId, state: Conversation, events: Sequence[Event]) -> None:
        for listener in self.listeners:
            listener(key, state, events)
        self._changes.notify(key)


def _open_log(
    settings: Settings,
    metrics: Metrics,
    tracing: Tracing,
    resources: AsyncExitStack,
    stop: asyncio.Event,
    now_us: Callable[[], int],
) -> tuple[EventLog, ConversationTable]:
    loop = asyncio.get_running_loop()
    report = CommitReport(metrics, tracing, clock_ns=time.time_ns)
    if settings.log.backend == "memory":
        memory_table = MemoryConversationTable(_view)
        memory = MemoryEventLog(clock_us=now_us, hook=report.hook(memory_table.project))
        resources.callback(memory.close)
        memory.on_commit(report.committed)
        return memory, memory_table

    def fatal(error: Exception) -> None:
        _log.critical("log.failed", error_type=type(error).__name__)
        loop.call_soon_threadsafe(stop.set)

    table = SqlConversationTable(_view)
    log = SqliteEventLog.open(
        settings.log.path,
        clock_us=now_us,
        hook=report.hook(table.project),
        prepare=table.prepare,
        on_fatal=fatal,
    )
    resources.callback(log.close)
    log.on_commit(report.committed)
    table.read_through(log.read)
    for warning in log.warnings:
        _log.warning("log.warning", code=warning.code, hint=warning.message)
    return log, table


def _maker(
    settings: Settings, model: SummaryModel, extractive: SummaryModel, counter: TokenCounter, now_us: Callable[[], int]
) -> PassMaker:
    summarizer = settings.summarizer
    retry = RetryPolicy(attempts_max=summarizer.retries + 1, delay_base_s=summarizer.backoff_base_ms / 1_000)
    return PassMaker(
        model,
        extractive,
        asking=AskerSettings(summarizer.temperature, summarizer.seed, retry, summarizer.deadline_s),
        template=_template(summarizer.prompt_file),
        window_default=settings.ollama.num_ctx,
        surroundings=Surroundings(
            counter, time.monotonic, now_us, asyncio.sleep, random.Random(), secrets.token_bytes(16)
        ),
    )


def _template(path: Path | None) -> PromptTemplate:
    return CHAIN_TEMPLATE if path is None else template_from_text(path.stem, path.read_text(encoding="utf-8"))


def _chat_models(
    settings: Settings,
    providers: Providers,
    table: ConversationTable,
    conversations: Conversations,
    resources: AsyncExitStack,
) -> ChatModels:
    tasks: set[asyncio.Task[None]] = set()

    async def update(key: StreamId) -> None:
        try:
            await conversations.execute(
                key,
                lambda state: ChangeSettings(models.resolved(state.settings), _new_id(), conversations.now_us()),
            )
        except DomainError as error:
            _log.warning("settings.not_updated", conversation_id=key.name, error_type=type(error).__name__)

    def learned(model: str) -> None:
        task = asyncio.get_running_loop().create_task(models.learned(model, update))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    lengths = ContextLengths(
        describe=providers.context_length,
        table=settings.tokens.context_lengths,
        default=settings.tokens.default_context_length,
        now_s=time.monotonic,
        on_learned=learned,
    )
    resources.push_async_callback(lengths.close)
    models = ChatModels(lengths, calibrations=table.calibrations())
    return models


def _http(
    settings: Settings, metrics: Metrics, log: EventLog, model: SummaryModel, started: asyncio.Event
) -> HttpServer | None:
    if not settings.server.http_listen:
        return None
    host, _, port = settings.server.http_listen.rpartition(":")
    health = health_routes(started=started.is_set, ready=log_checks(log), details={"model": model_check(model)})
    return HttpServer(host.strip("[]"), int(port), routes=health | metrics_route(metrics))


def _facts(settings: Settings, log: EventLog, now_us: Callable[[], int]) -> ServerFacts:
    server = settings.server
    return ServerFacts(
        version=VERSION,
        log_id=log.log_id,
        models=settings.summarizer.models,
        limits=server_info_service_pb2.Limits(
            append_messages_max=server.batch_messages_max,
            message_bytes_max=server.message_bytes_max,
            append_bytes_max=server.batch_bytes_max,
            concurrent_rpcs_max=server.concurrent_rpcs_max,
            streams_max=server.streams_max,
            queued_passes_max=settings.summarizer.queue_max,
        ),
        started_us=now_us(),
    )


def _labels(settings: Settings) -> MetricLabels:
    return MetricLabels(
        # The first names get series of their own: the model that is wanted, and what stands in for it.
        models=tuple(dict.fromkeys((settings.summarizer.models[0], "extractive:default", *settings.summarizer.models))),
        hosts=host_labels(settings.ollama),
        methods=tuple(METHOD_SCOPES),
        timed_methods=TIMED_METHODS,
        event_types=EVENT_TYPES,
    )


def _view(state: Conversation) -> bytes:
    return conversation_view(state).SerializeToString()


def _new_id() -> str:
    return uuid.uuid4().hex
