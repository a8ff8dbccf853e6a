"""The composition root, the only place that chooses implementations. Settings in, a running sidecar out."""

from __future__ import annotations

import asyncio
import gc
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from abridged.eventlog.errors import EventLogError, LogFailed
from abridged.observability.logs import LogSettings, configure_logs
from abridged.service.api.listeners import guarded, try_port
from abridged.service.api.readiness import model_check
from abridged.service.bootstrap.clocks import VirtualClock, now_us
from abridged.service.bootstrap.core import open_core
from abridged.service.bootstrap.descriptors import take_all as take_all_descriptors
from abridged.service.bootstrap.edge import Running, Sidecar, assembled
from abridged.service.bootstrap.later import load_the_rest
from abridged.service.bootstrap.providers import unused_settings
from abridged.service.bootstrap.recall import lacking
from abridged.service.config.settings import Settings, TelemetrySettings
from abridged.service.config.token_strength import weak_tokens
from abridged.service.conversations.table import ConversationTable
from abridged.service.event_loop import loop_factory
from abridged.service.models.model import ModelMissing, SummaryModel
from abridged.service.passes.claims import LEASE_S

__all__ = ["Running", "VirtualClock", "logging_as_set", "run", "serve", "settle_memory"]

GC_ALLOCATIONS = 2_000
WITHOUT_MODEL = (
    "appends go on, passes fail until it responds: start its server, or set summarizer.models=extractive:default; "
    "`abridged doctor` says how to fix it"
)

_log = structlog.get_logger()


def run(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    ready: Callable[[Running], None] = lambda _: None,
    clock: VirtualClock | None = None,
    lease_s: float = LEASE_S,
) -> None:
    """Serve until SIGTERM or SIGINT, on a new event loop; call `ready` in it once calls are accepted. Goes by `clock`
    instead of the machine's, if given. `lease_s` is as in `serve`, which raises the same."""
    take_all_descriptors()
    undo_logs = logging_as_set(settings.telemetry)
    try:
        with asyncio.Runner(loop_factory=clock.new_loop if clock else loop_factory()) as runner:
            runner.run(_until_signalled(settings, environ, ready, clock.now_us if clock else now_us, lease_s))
    finally:
        undo_logs()


def logging_as_set(telemetry: TelemetrySettings) -> Callable[[], None]:
    """Log to standard error as the settings say. Returns a function that undoes it."""
    logs = LogSettings(level=telemetry.log_level, style=telemetry.log_format, content=telemetry.log_content)
    return configure_logs(logs, sys.stderr)


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


async def serve(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    stop: asyncio.Event,
    ready: Callable[[Running], None],
    now_us: Callable[[], int] = now_us,
    free_bytes: Callable[[Path], int] = _free_bytes,
    lease_s: float = LEASE_S,
) -> None:
    """Serve until `stop` is set; call `ready` once calls are accepted. `now_us` is the clock of events and waits,
    `free_bytes` returns the free bytes on a file's volume, `lease_s` is the length of a pass's lease, in seconds.

    Raises EventLogError if the log cannot be opened, LogFailed at the end if it broke while serving, ListenError if an
    address is unusable, and SettingUnusable, TokenizerMissing, or InvalidPolicy for a prompt file, if settings cannot
    be carried out.
    """
    broken: list[Exception] = []

    def end(error: Exception) -> None:
        broken.append(error)
        stop.set()

    async with AsyncExitStack() as resources:
        # Before the log: a start that fails for its addresses must not create one.
        for address in settings.server.listen:
            guarded(address, resources)
        if settings.server.http_listen:
            try_port(settings.server.http_listen, setting="server.http_listen")
        core = open_core(settings, environ, resources, on_fatal=end, now_us=now_us, lease_s=lease_s)
        if reason := await asyncio.to_thread(core.log.full):
            _log.warning("log.full", hint=f"{reason}: it is only read until there is room; no restart is needed")
        sidecar = assembled(settings, core, resources, free_bytes=free_bytes)
        running = await _started(sidecar, stop)
        if running is not None:
            ready(running)
            _log.info("sidecar.ready", addresses=list(running.grpc_addresses), http_address=running.http_address)
            for field, what in weak_tokens(settings.server):
                _log.warning("token.weak", field=field, hint=what)
            if settings.recall.index != "off" and (missing := lacking(settings)):
                _log.info(
                    "recall.off",
                    hint=f"set {missing[0]} to a file of this sidecar's own for a search index, with words in clear",
                )
            for unused in unused_settings(settings):
                _log.warning("model.endpoint_unused", hint=unused)
            loading = asyncio.create_task(asyncio.to_thread(load_the_rest, stop.is_set))
            resources.callback(loading.cancel)
            if core.model is not None:
                looking = asyncio.create_task(_look_for(core.model, settings))
                resources.callback(looking.cancel)
            if settings.log.archive_dir is None and await asyncio.to_thread(_has_archives, core.table):
                _log.warning(
                    "archives.out_of_reach",
                    hint="there are archived conversations, which nobody can unarchive or erase: set log.archive_dir",
                )
            await stop.wait()
            _log.info("sidecar.stopping")
            await sidecar.stop()
    if broken:
        kind = type(broken[0]).__name__
        raise LogFailed(f"the log failed while serving ({kind}); the next start recovers it") from broken[0]


def _has_archives(table: ConversationTable) -> bool:
    """Return whether a conversation is archived; of a damaged table nobody knows."""
    try:
        return bool(table.archived(limit=1))
    except EventLogError:
        return False


async def _started(sidecar: Sidecar, stop: asyncio.Event) -> Running | None:
    """The sidecar, started; None if `stop` was set first: a start that rebuilds a table may take long."""
    starting = asyncio.create_task(sidecar.start())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return await starting if starting.done() else None
    finally:
        starting.cancel()
        stopping.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)


async def _look_for(model: SummaryModel, settings: Settings) -> None:
    """Warn once at the start if the model is unavailable, instead of with the first pass."""
    reason = await model_check(model)()
    if reason:
        missing = reason == ModelMissing.error_class
        hint = await _remedy(settings) if missing else WITHOUT_MODEL
        _log.warning("model.unavailable", model=model.name, error_class=reason, hint=hint)


async def _remedy(settings: Settings) -> str:
    """A remedy for the first model of the first provider that knows one."""
    for provider in settings.providers_of(settings.summarizer.models):
        if remedy := await provider.missing_remedy(clock=time.monotonic):
            return f"appends go on, passes fail until it is there: {remedy}"
    return WITHOUT_MODEL


async def _until_signalled(
    settings: Settings,
    environ: Mapping[str, str],
    ready: Callable[[Running], None],
    now_us: Callable[[], int],
    lease_s: float,
) -> None:
    def settled(running: Running) -> None:
        settle_memory()
        ready(running)

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, environ, stop=stop, ready=settled, now_us=now_us, lease_s=lease_s)


def settle_memory() -> None:
    """Exclude what the start has loaded from later collections, which would stop the loop for tens of ms.

    Collecting before would take as long, and finds next to nothing: what a start loads stays.
    """
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS)
