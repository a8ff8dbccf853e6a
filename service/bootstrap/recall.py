"""The search index that the settings ask for: wired for a sidecar, or made again while none runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from abridged.eventlog.errors import LogUnavailable
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.service.bootstrap.core import open_unserved
from abridged.service.config.settings import Settings
from abridged.service.domain.conversation import Conversation
from abridged.service.models.ollama.host import open_hosts
from abridged.service.recall.embedders import OllamaEmbedder, WordLlamaEmbedder
from abridged.service.recall.errors import RecallLocked, RecallStopped
from abridged.service.recall.file import is_index, remove, remove_unused, require_installed
from abridged.service.recall.multilingual import MultilingualEmbedder
from abridged.service.recall.projection import IN_BACKGROUND, Pace, Progress, Projection
from abridged.service.recall.recall import Recall
from abridged.service.recall.vectors import Embedder

EMBED_CALLS_MAX = 2
"""Calls to one host for vectors: one for the index and one for a search beside it."""

PROGRESS_S = 1.0
AT_ONCE = Pace(rest_share=0.0, rest_s=0.0)

_log = structlog.get_logger()


def lacking(settings: Settings) -> tuple[str, str] | None:
    """The setting that an index lacks, and its value; None where there is an index."""
    if settings.recall.index == "off":
        return "recall.index", "words"
    # A file beside nothing, one that a start makes anew of the whole log, or one with the words of an encrypted log in
    # clear would be nobody's choice.
    if (settings.log.url is not None or settings.encryption.is_on) and settings.recall.path is None:
        return "recall.path", "FILE"
    return None


def index_path(log_path: Path) -> Path:
    """The path of the index of a log's file, unless the settings name another place."""
    return log_path.with_name(f"{log_path.name}-recall")


def drop_unused_index(settings: Settings) -> None:
    """Remove the index beside the log's file, which this process owns, if the settings keep none there: no erasure
    would reach its words."""
    beside, named = settings.log.file, settings.recall.path
    if beside is None or not (default := index_path(beside)).exists():
        return
    is_kept = not settings.encryption.is_on if named is None else named.resolve() == default.resolve()
    if is_kept:
        return
    try:
        if not is_index(default):
            raise FileExistsError("it is no index that can be read")
        remove_unused(default)
    except (RecallLocked, OSError, ImportError) as error:
        _log.warning("recall.unused_index", hint=f"{default} stays: {error}; no erasure reaches its words: remove it")
    else:
        _log.info("recall.unused_index", hint=f"{default} was removed: the settings keep no index there any more")


def open_recall(
    settings: Settings,
    log: EventLog,
    state_of: Callable[[StreamId], Awaitable[Conversation]],
    resources: AsyncExitStack,
    *,
    pace: Pace = IN_BACKGROUND,
) -> Recall | None:
    """The index, not started; None where it is off. `state_of` as for Recall; `resources` closes it.

    Raises RecallMissing, RecallStopped when its file cannot be opened, and AddressError.
    """
    if lacking(settings) is not None:
        return None
    path = _path(settings)
    if path is None:
        path = Path(resources.enter_context(TemporaryDirectory(prefix="abridged-"))) / "recall"
    embedder = _embedder(settings) if settings.recall.index == "both" else None
    recall = Recall(log, Projection(log, path, embedder, pace=pace), state_of)
    resources.push_async_callback(recall.close)
    return recall


async def forgotten(settings: Settings, recall: Recall | None, position: int) -> None:
    """Return when the search index has followed the log up to this position and its file is purged. One that no sidecar
    follows is removed: a start with it makes it again. Raises LogUnavailable when it follows the log no longer, or its
    file cannot be purged now."""
    if recall is not None:
        try:
            await recall.projection.forgotten(position)
        except RecallStopped as error:
            raise LogUnavailable(f"the search index has not forgotten: {error}") from error
    elif (path := _path(settings)) is not None:
        await asyncio.to_thread(remove, path)


def index_bytes(settings: Settings) -> int:
    """Bytes of the index of the log of `settings`; 0 without one."""
    path = _path(settings)
    files = (path, path.with_name(f"{path.name}-wal")) if path is not None else ()
    return sum(file.stat().st_size for file in files if file.exists())


def forget_index(settings: Settings) -> None:
    """Remove the index of the log of `settings`, which is of events that are to be replaced: a start makes it again.

    Raises RecallLocked, and removes nothing, while a sidecar has it open.
    """
    path = _path(settings)
    if path is not None and path.exists():
        remove_unused(path)


async def reindexed(
    settings: Settings, environ: Mapping[str, str], report: Callable[[Progress, int], None]
) -> Progress:
    """Rebuild the index of the log of `settings`, whatever made it; `report` is called now and then with the progress
    and the log's head. Raises EventLogError, RecallStopped, RecallLocked while a sidecar has the index open, and
    RecallMissing.
    """
    async with AsyncExitStack() as resources:
        without = settings.model_copy(update={"recall": settings.recall.model_copy(update={"index": "off"})})
        core = open_unserved(without, environ, resources)
        # A log in a file is this process's own now; sidecars share one in a database, and have their indexes open.
        if (path := _path(settings)) is not None:
            remove_unused(path)
        recall = open_recall(settings, core.log, core.conversations.state, resources, pace=AT_ONCE)
        assert recall is not None, "the index is on"
        projection = recall.projection
        projection.start()
        done = asyncio.create_task(projection.caught_up())
        while not (await asyncio.wait({done}, timeout=PROGRESS_S))[0]:
            report(projection.progress, core.log.head())
        done.result()
        return projection.progress


async def embedded_dimension(settings: Settings) -> int:
    """Numbers of a vector that the settings' model makes of a small text; 0 for an index of words alone.

    Raises RecallMissing, EmbedderAway and AddressError.
    """
    if settings.recall.index != "both":
        return 0
    require_installed(settings.recall.embedder)
    embedder = _embedder(settings)
    try:
        return int((await embedder.embed(["ready"])).shape[1])
    finally:
        await embedder.close()


def _path(settings: Settings) -> Path | None:
    """The path of the index; None for one that ends with the process."""
    beside = settings.log.file
    return settings.recall.path or (beside and index_path(beside))


def _embedder(settings: Settings) -> Embedder:
    provider, _, model = settings.recall.embedder.partition(":")
    if provider == "multilingual":
        return MultilingualEmbedder()
    if provider == "wordllama":
        return WordLlamaEmbedder(settings.recall.dimension)
    group = settings.ollama
    hosts = open_hosts(group.addresses(), replace(group.calls(), calls_max=EMBED_CALLS_MAX), clock=time.monotonic)
    return OllamaEmbedder(model, hosts, seconds=settings.recall.embed_timeout_s, clock=time.monotonic)
