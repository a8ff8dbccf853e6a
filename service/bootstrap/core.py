"""The sidecar's core: the log, the conversations, the passes; everything except the servers."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from abridged.eventlog.backend import Backend, StreamKeys
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.observability.labels import MetricLabels
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import Tracing, TracingSettings, current_traceparent, open_tracing
from abridged.service.api.methods import METHOD_SCOPES
from abridged.service.bootstrap.backends import backend_of
from abridged.service.bootstrap.clocks import now_us as machine_us
from abridged.service.bootstrap.open_log import OpenLog, open_log
from abridged.service.bootstrap.providers import Providers, host_labels, model_counters
from abridged.service.bootstrap.summarizers import summarizers_of, texts_of
from abridged.service.codec.events import EVENT_TYPES
from abridged.service.config.settings import ARCHIVES_IN_CLEAR, Settings
from abridged.service.conversations.archive_folder import ArchiveFolder
from abridged.service.conversations.archives import Archives
from abridged.service.conversations.blanks import Blanks
from abridged.service.conversations.cache import ConversationCache
from abridged.service.conversations.changes import Changes
from abridged.service.conversations.chat_models import ChatModels
from abridged.service.conversations.context_lengths import ContextLengths
from abridged.service.conversations.conversation_log import ConversationLog, OnChanged
from abridged.service.conversations.conversations import Conversations, OnLoaded
from abridged.service.conversations.counting import Counting
from abridged.service.conversations.erasures import Erasures
from abridged.service.conversations.policies import Policies
from abridged.service.conversations.purges import Purges
from abridged.service.conversations.rebuild import Rebuild
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.commands import ChangeSettings
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import Event
from abridged.service.domain.tokens import TokenCounter
from abridged.service.models.model import SummaryModel
from abridged.service.passes.claims import LEASE_S, Claims
from abridged.service.passes.reactor import Reactor, ReactorLimits
from abridged.service.summarizer.summarizer import EXTRACTIVE, Summarizers
from abridged.service.telemetry.commits import CommitReport
from abridged.service.telemetry.progress import ProgressBoard
from abridged.service.telemetry.telemetry import Telemetry, TracedModel, metric_labels
from abridged.service.tokenizers.model_counters import ModelCounters
from abridged.service.version import VERSION

if TYPE_CHECKING:
    from abridged.service.summarizer.texts import TextSummarizer

READ_THREADS = 4

TIMED_METHODS = (
    "abridged.v1.ConversationService/AppendMessages",
    "abridged.v1.ConversationService/GetContext",
)

_IDS = random.Random(secrets.randbits(256))
"""Seeded once from the system: asking the system for every id costs more than all other work on an append's ids."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Core:
    """The parts that the servers need; `rebuild` rebuilds the read table if the backend has one, and
    `keys` are those of an encrypted log."""

    log: EventLog
    table: ConversationTable
    rebuild: Rebuild | None
    keys: StreamKeys | None
    executor: ThreadPoolExecutor
    conversations: Conversations
    reactor: Reactor
    purges: Purges
    erasures: Erasures
    archives: Archives
    changes: Changes
    counter: ModelCounters
    models: ChatModels
    policies: Policies
    texts: Callable[[], TextSummarizer]
    board: ProgressBoard
    model: SummaryModel | None
    tracing: Tracing
    metrics: Metrics
    telemetry: Telemetry
    now_us: Callable[[], int]


def open_core(
    settings: Settings,
    environ: Mapping[str, str],
    resources: AsyncExitStack,
    *,
    on_fatal: Callable[[Exception], None],
    now_us: Callable[[], int],
    backend: Backend | None = None,
    stand_in: SummaryModel | None = None,
    lease_s: float = LEASE_S,
) -> Core:
    """Everything below the servers, wired. `resources` closes it in the right order.

    `on_fatal` is called on the event loop when the log has failed for good. `backend` and `stand_in` take the places of
    the log and of the models that the settings name. `lease_s` is the length of a pass's lease.
    """
    tracing = _tracing(environ, resources)
    metrics = Metrics(version=VERSION, labels=_labels(settings))
    executor = _read_threads(resources)
    providers = Providers(settings, metrics=metrics, clock_s=time.monotonic, cache_dir=_cache_dir(settings))
    counter = _counters(settings, providers, resources)
    # Each by itself: the call of a missing model and that of the next one are two spans.
    model = stand_in or providers.preferred(settings.summarizer.models, traced=lambda m: TracedModel(m, tracing))
    summarizers = summarizers_of(settings, model, counter)
    policies = _policies(settings, summarizers)
    board, report = ProgressBoard(), CommitReport(metrics, tracing, clock_ns=time.time_ns)
    telemetry = Telemetry(metrics, tracing, board, log_content=settings.telemetry.log_content)
    opened = open_log(backend or backend_of(settings), report, policies, resources, on_fatal, now_us)
    # Closed before the log, in which running model calls may still end.
    resources.push_async_callback(providers.close)
    changes, listeners = Changes(), _Listeners()
    conversations = _conversations(opened, policies, counter, listeners, now_us)
    resources.push_async_callback(conversations.log.finish)
    purges = _purges(opened, conversations, settings, resources)
    claims = Claims(opened.leases, owner=new_id(), lease_s=lease_s)
    reactor = _reactor(settings, opened, conversations, summarizers, counter, telemetry, claims)
    models = _chat_models(settings, providers, conversations, counter, resources)
    listeners.on_loaded = reactor.loaded
    listeners.on_caught_up = (changes.notify, reactor.caught_up)
    listeners.on_changed = (
        lambda key, state, _: changes.notify(key, state),
        reactor.changed,
        lambda key, state, _: models.changed(key, state),
        purges.changed,
        *_titles(settings, providers, tracing, telemetry, conversations, counter, resources),
        lambda _key, _state, events: telemetry.changed(events),
    )
    return Core(
        log=opened.log,
        table=opened.table,
        rebuild=opened.rebuild,
        keys=opened.keys,
        executor=executor,
        conversations=conversations,
        reactor=reactor,
        purges=purges,
        erasures=Erasures(opened.log, conversations, opened.table, purges, new_id=new_id),
        archives=Archives(opened.log, conversations, opened.table, purges),
        changes=changes,
        counter=counter,
        models=models,
        policies=policies,
        texts=texts_of(settings, model, counter, resources),
        board=board,
        model=model,
        tracing=tracing,
        metrics=metrics,
        telemetry=telemetry,
        now_us=now_us,
    )


def open_unserved(
    settings: Settings,
    environ: Mapping[str, str],
    resources: AsyncExitStack,
    *,
    backend: Backend | None = None,
    stand_in: SummaryModel | None = None,
) -> Core:
    """The core for a command that works on a log by itself, and whose own calls fail if the log does; arguments as in
    `open_core`."""
    return open_core(
        settings,
        environ,
        resources,
        on_fatal=lambda _: None,
        now_us=machine_us,
        backend=backend,
        stand_in=stand_in,
    )


def _tracing(environ: Mapping[str, str], resources: AsyncExitStack) -> Tracing:
    settings = TracingSettings.from_environment(environ, service_version=VERSION)
    for ignored in settings.ignored:
        _log.warning("tracing.variable_ignored", hint=ignored)
    tracing = open_tracing(settings)
    resources.callback(tracing.close)
    return tracing


def _counters(settings: Settings, providers: Providers, resources: AsyncExitStack) -> ModelCounters:
    counter = model_counters(settings.tokens, providers)
    resources.push_async_callback(counter.close)
    return counter


def _policies(settings: Settings, summarizers: Summarizers) -> Policies:
    return Policies(
        settings.policy_for,
        client_fields=frozenset(settings.client_policy_fields),
        source_tokens=summarizers.wanted.source_tokens,
        answer_tokens_max=settings.summarizer.num_predict,
    )


def _read_threads(resources: AsyncExitStack) -> ThreadPoolExecutor:
    executor = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="read")
    resources.callback(executor.shutdown, wait=False)
    asyncio.get_running_loop().set_default_executor(executor)
    return executor


class _Listeners:
    """Passes commits and loads on to `on_changed`, `on_loaded` and `on_caught_up`, which are set once their owners
    exist."""

    def __init__(self) -> None:
        self.on_changed: tuple[OnChanged, ...] = ()
        self.on_loaded: OnLoaded = lambda _key, _state: None
        self.on_caught_up: tuple[OnLoaded, ...] = ()

    def changed(self, key: StreamId, state: Conversation, events: Sequence[Event]) -> None:
        for listener in self.on_changed:
            listener(key, state, events)

    def loaded(self, key: StreamId, state: Conversation) -> None:
        self.on_loaded(key, state)

    def caught_up(self, key: StreamId, state: Conversation) -> None:
        for listener in self.on_caught_up:
            listener(key, state)


def _conversations(
    opened: OpenLog,
    policies: Policies,
    counter: ModelCounters,
    listeners: _Listeners,
    now_us: Callable[[], int],
) -> Conversations:
    cache = ConversationCache()
    return Conversations(
        ConversationLog(
            opened.log,
            table=opened.table,
            new_id=new_id,
            traceparent=current_traceparent,
            snapshots=opened.snapshots,
            cached=cache.get,
        ),
        policies=policies,
        counting=Counting(counter, want=counter.want),
        clock_us=now_us,
        new_id=new_id,
        on_changed=listeners.changed,
        on_loaded=listeners.loaded,
        on_caught_up=listeners.caught_up if opened.leases is not None else None,
        cache=cache,
    )


def _purges(opened: OpenLog, conversations: Conversations, settings: Settings, resources: AsyncExitStack) -> Purges:
    if opened.keys is not None:
        archives = ArchiveFolder(None, unset=f"the log is encrypted, and {ARCHIVES_IN_CLEAR}")
    else:
        archives = ArchiveFolder(settings.log.archive_dir)
    blanks = Blanks(opened.log, opened.table, archives, opened.keys)
    purges = Purges(opened.log, conversations, opened.table, blanks)
    resources.push_async_callback(purges.stop)
    return purges


def _reactor(
    settings: Settings,
    opened: OpenLog,
    conversations: Conversations,
    summarizers: Summarizers,
    counter: TokenCounter,
    telemetry: Telemetry,
    claims: Claims,
) -> Reactor:
    return Reactor(
        conversations,
        summarizers=summarizers,
        counter=counter,
        telemetry=telemetry,
        limits=_limits(settings),
        hash_key=opened.log.secret("bad answers"),
        clock_s=time.monotonic,
        claims=claims,
        table=opened.table,
    )


def _limits(settings: Settings) -> ReactorLimits:
    summarizer = settings.summarizer
    return ReactorLimits(
        summarizer.concurrent_passes, summarizer.queue_max, multi_tenant=settings.server.is_multi_tenant
    )


def _titles(
    settings: Settings,
    providers: Providers,
    tracing: Tracing,
    telemetry: Telemetry,
    conversations: Conversations,
    counter: TokenCounter,
    resources: AsyncExitStack,
) -> tuple[OnChanged, ...]:
    """The callbacks that make titles after commits; none if titles are off."""
    if not settings.titles.enabled:
        return ()
    from abridged.service.config.prompt_file import title_template
    from abridged.service.passes.titles import Titles, TitleSettings

    model = providers.preferred(settings.title_models, traced=lambda model: TracedModel(model, tracing))
    assert model is not None, "settings without a model for titles are refused"
    asked = TitleSettings(
        title_template(settings.titles.prompt_file),
        settings.summarizer.temperature,
        settings.summarizer.seed,
        settings.titles.deadline_s,
    )
    titles = Titles(conversations, model, telemetry, settings=asked, counter=counter)
    resources.push_async_callback(titles.stop)
    return (titles.changed,)


def _cache_dir(settings: Settings) -> Path | None:
    """The folder for models' descriptions; None for a sidecar without a file to keep it beside."""
    path = settings.log.file
    return path.with_name(f"{path.name}.models") if path is not None else None


def _chat_models(
    settings: Settings,
    providers: Providers,
    conversations: Conversations,
    counter: ModelCounters,
    resources: AsyncExitStack,
) -> ChatModels:
    tasks: set[asyncio.Task[None]] = set()

    async def update(key: StreamId) -> None:
        recount = await models.recounted(await conversations.state(key))
        await conversations.execute(key, lambda state: ChangeSettings(models.updated(state.settings, recount)))

    def learned(model: str) -> None:
        task = asyncio.get_running_loop().create_task(models.learned(model, update))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def close() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    lengths = ContextLengths(
        describe=providers.context_length,
        table=settings.tokens.context_lengths,
        default=settings.tokens.default_context_length,
        now_s=time.monotonic,
        on_learned=learned,
    )
    resources.push_async_callback(close)
    resources.push_async_callback(lengths.close)
    models = ChatModels(lengths, conversations.counting, on_exact=learned)
    counter.tell(learned)
    return models


def _labels(settings: Settings) -> MetricLabels:
    return metric_labels(
        # The first names get series of their own: the preferred model and its fallback.
        models=tuple(dict.fromkeys((settings.summarizer.models[0], EXTRACTIVE, *settings.summarizer.models))),
        hosts=host_labels(settings),
        methods=tuple(METHOD_SCOPES),
        timed_methods=TIMED_METHODS,
        event_types=EVENT_TYPES,
    )


def new_id() -> str:
    return f"{_IDS.getrandbits(128):032x}"
