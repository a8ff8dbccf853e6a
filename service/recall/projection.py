"""Keeps the index up with the log: follows its read loop in the background, beside everything and before nothing.

Invariants: an append neither waits for the index nor writes to it; what is indexed and how far it is are one
transaction, so that a kill costs at most the batch under way; and what the index cannot follow stops it, loudly, and
nothing else.

Words and vectors are two tasks. Words follow the log; vectors follow the words, since a model may be away for hours.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import structlog

from abridged.eventlog.errors import EventLogError, LogClosed, LogUnavailable
from abridged.eventlog.log import EventLog
from abridged.eventlog.subscription import Batch, CommitWakeUp, log_pages, subscribe
from abridged.service.codec.events import UnknownEvent
from abridged.service.recall.entries import Embedding
from abridged.service.recall.errors import EmbedderAway, EmbedderChanged, RecallStopped
from abridged.service.recall.file import opened
from abridged.service.recall.index import Index, Unembedded
from abridged.service.recall.passages import pieces_of
from abridged.service.recall.vectors import Embedder, Vector, quantized

T = TypeVar("T")
_Piece = tuple[Unembedded, int, str]

EMBED_ENTRIES_MAX = 64
"""Entries whose pieces are embedded at a time; bounds the memory for it, together with PIECES_MAX. Of 16, each entry
takes twice as many writes, because entries that follow each other share pages."""

EMBED_S = 10.0
"""Seconds, about, for which entries are embedded before their vectors are kept: a model that is slow or leaves loses no
more."""

_log = structlog.get_logger()


class Pace(NamedTuple):
    """Limits the share of the machine that the index takes: words a third of a processor, and vectors another.

    Each of them rests after a batch for `rest_share` times as long as the batch took, and for `rest_s` at least, so
    that events which come one by one are indexed together. The index waits for `retry_s` after a failure that passes
    by itself.
    """

    rest_share: float = 2.0
    rest_s: float = 0.1
    retry_s: float = 5.0


IN_BACKGROUND = Pace()


class Progress(NamedTuple):
    """The positions up to which the words and the vectors are there, and why one of them stopped, if it did."""

    words: int
    vectors: int
    stopped: str


class Projection:
    """One index and what keeps it up. Start it, stop it, then close it; `path` is its file."""

    def __init__(
        self,
        log: EventLog,
        path: Path,
        embedder: Embedder | None,
        *,
        pace: Pace = IN_BACKGROUND,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens the index, or begins it. Raises RecallMissing, and RecallStopped when it cannot be opened."""
        self.path = path
        self._log = log
        self._embedder = embedder
        self._pace = pace
        self._sleep = sleep
        self._clock = clock
        # The only thread that writes, and a single one: indexing never takes more than one processor.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recall")
        connection = opened(path, log.log_id, log.head(), report=_log_rebuild)
        self._index = Index(connection, log)
        self._tasks: list[asyncio.Task[None]] = []
        self._wake_up: CommitWakeUp | None = None
        self._indexed = asyncio.Event()
        self._moved = asyncio.Condition()
        self._position = self._index.position
        self._vectors_position = 0
        self._entries_max = 1
        self._dimension = embedder.dimension or self._index.embedder[1] if embedder is not None else 0
        self._has_vectors = embedder is None
        self._words_stopped = ""
        self._vectors_stopped = ""

    @property
    def embedder(self) -> Embedder | None:
        """Return the maker of vectors; None for an index of words alone."""
        return self._embedder

    @property
    def dimension(self) -> int:
        """Numbers of a vector; 0 while none is known."""
        return self._dimension

    @property
    def progress(self) -> Progress:
        """The positions that the index has reached."""
        vectors = self._position if self._has_vectors else self._vectors_position
        return Progress(self._position, vectors, self._words_stopped or self._vectors_stopped)

    async def stop_vectors(self, changed: EmbedderChanged) -> None:
        """Stop searches by meaning: a query's vector does not fit those of the index."""
        await self._stopped("vectors", str(changed))

    def require(self, *, meaning: bool) -> None:
        """Raise RecallStopped if a search by words, or by `meaning`, would miss what has come since."""
        reason = self._words_stopped or (self._vectors_stopped if meaning else "")
        if reason:
            raise RecallStopped(reason)

    def start(self) -> None:
        """Follow the log from where the index is."""
        self._wake_up = CommitWakeUp(self._log)
        self._tasks.append(asyncio.create_task(self._follow()))
        if self._embedder is not None:
            self._tasks.append(asyncio.create_task(self._embed_all(self._embedder)))

    async def caught_up(self) -> None:
        """Return when everything that the log has now is indexed, vectors included. Raises RecallStopped."""
        head = await asyncio.to_thread(self._log.head)
        async with self._moved:
            while not self.progress.stopped and not (self._position >= head and self._has_vectors):
                await self._moved.wait()
        if self.progress.stopped:
            raise RecallStopped(self.progress.stopped)

    async def forgotten(self, position: int) -> None:
        """Return when every event up to this position is indexed, and the file has nothing of what those erased.

        Raises LogClosed, and RecallStopped also where the file cannot be written now.
        """
        import apsw

        async with self._moved:
            while not self._words_stopped and self._position < position:
                await self._moved.wait()
        self.require(meaning=False)
        try:
            while not await self._in_thread(self._index.purge):
                await self._sleep(self._pace.retry_s)
        except (apsw.Error, OSError, LogUnavailable) as error:
            raise RecallStopped(f"the index cannot be purged ({type(error).__name__})") from error

    async def stop(self) -> None:
        """End the running tasks; a batch under way is finished or undone. May be called twice."""
        if self._wake_up is not None:
            self._wake_up.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def close(self) -> None:
        """Stop, and release the file."""
        await self.stop()
        await self._in_thread(self._index.close)
        self._thread.shutdown()
        if self._embedder is not None:
            await self._embedder.close()

    async def _follow(self) -> None:
        while not self._words_stopped:
            try:
                await self._follow_from(await self._in_thread(lambda: self._index.position))
            except LogClosed:
                return
            except Exception as error:  # noqa: BLE001 - what it cannot follow stops the index, loudly
                if not _is_temporary(error):
                    await self._stopped("words", _reason(error))
                    return
                _log.warning("recall.delayed", error_type=type(error).__name__)
                await self._sleep(self._pace.retry_s)

    async def _follow_from(self, position: int) -> None:
        assert self._wake_up is not None, "it was started"
        self._position = position
        pages = log_pages(self._log, self._thread)
        async with aclosing(subscribe(pages, self._wake_up, after=position, clock=self._clock)) as items:
            async for item in items:
                if isinstance(item, Batch):
                    began = self._clock()
                    await self._in_thread(partial(self._index.apply, item.events, item.cursor))
                    self._position = item.cursor
                    self._has_vectors = self._embedder is None
                    self._indexed.set()
                    await self._rest(self._clock() - began)
                await self._notify()

    async def _embed_all(self, embedder: Embedder) -> None:
        while not self._vectors_stopped:
            try:
                await self._require_same(embedder, embedder.dimension)
                if embedder.dimension:
                    # A model in this process loads now, and not in the first search.
                    await embedder.embed(["ready"])
                while True:
                    await self._embed_next(embedder)
            except LogClosed:
                return
            except EmbedderAway as error:
                self._entries_max = 1
                _log.warning("recall.embedder_away", hint=str(error))
                await self._sleep(self._pace.retry_s)
            except Exception as error:  # noqa: BLE001 - what it cannot follow stops the index, loudly
                if not _is_temporary(error):
                    await self._stopped("vectors", _reason(error))
                    return
                _log.warning("recall.delayed", error_type=type(error).__name__)
                await self._sleep(self._pace.retry_s)

    async def _embed_next(self, embedder: Embedder) -> None:
        self._indexed.clear()
        began = self._clock()
        entries = await self._in_thread(partial(self._index.unembedded, self._entries_max))
        if not entries:
            self._has_vectors = not self._indexed.is_set()
            self._vectors_position = self._position if self._has_vectors else self._vectors_position
            await self._notify()
            await self._indexed.wait()
            return
        self._vectors_position = entries[0].id - 1
        pieces = [(entry, place, piece) for entry in entries for place, piece in enumerate(pieces_of(entry.text))]
        rows = await embedder.embed([piece for _, _, piece in pieces]) if pieces else None
        if rows is not None:
            self._dimension = rows.shape[1]
            await self._require_same(embedder, rows.shape[1])
        await self._in_thread(partial(self._keep, embedder, entries, pieces, rows))
        took_s = self._clock() - began
        self._entries_max = min(EMBED_ENTRIES_MAX, max(1, int(len(entries) * EMBED_S / max(took_s, EMBED_S / 1_000))))
        await self._rest(took_s)

    def _keep(self, embedder: Embedder, entries: Sequence[Unembedded], pieces: Sequence[_Piece], rows: Any) -> None:
        found: dict[int, dict[int, Vector]] = {entry.id: {} for entry in entries}
        vectors = quantized(rows) if rows is not None else []
        for (entry, place, _), vector in zip(pieces, vectors, strict=True):
            if vector is not None:
                found[entry.id][place] = vector
        dimension = rows.shape[1] if rows is not None else self._index.embedder[1]
        name = embedder.name if rows is not None else self._index.embedder[0]
        self._index.embed(starmap(Embedding, found.items()), embedder=name, dimension=dimension)

    async def _require_same(self, embedder: Embedder, dimension: int) -> None:
        """Raise EmbedderChanged unless vectors of this embedder and dimension (0: any) fit those of the index."""
        name, known = await self._in_thread(lambda: self._index.embedder)
        require_same(embedder, dimension, name=name, known=known)

    async def _stopped(self, what: str, reason: str) -> None:
        if what == "words":
            self._words_stopped = reason
        else:
            self._vectors_stopped = reason
        _log.error("recall.stopped", what=what, hint=reason)
        await self._notify()

    async def _notify(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    async def _rest(self, took_s: float) -> None:
        await self._sleep(max(self._pace.rest_s, self._pace.rest_share * took_s))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def require_same(embedder: Embedder, dimension: int, *, name: str, known: int) -> None:
    """Raise EmbedderChanged unless vectors of `dimension` numbers (0: any) fit those of the index, which `name` made
    with `known` numbers (0: it has none)."""
    if known and (name != embedder.name or dimension not in (0, known)):
        raise EmbedderChanged(
            f"the index has vectors of {name} with {known} numbers, {embedder.name} makes others"
            f"{f' with {dimension}' if dimension else ''}: stop the sidecar and run `abridged log reindex`"
        )


def _is_temporary(error: Exception) -> bool:
    """Return whether the same may go well in a while: a disk that is full, a log that is busy."""
    import apsw

    return isinstance(error, LogUnavailable | apsw.FullError | apsw.BusyError | apsw.IOError)


def _reason(error: Exception) -> str:
    """Return the cause of the index's stop, without text of a conversation."""
    match error:
        case UnknownEvent():
            return f"the log has an event that this version cannot index: {error}"
        case EmbedderChanged() | EventLogError():
            return str(error)
        case _:
            return f"{type(error).__name__} while indexing: stop the sidecar and run `abridged log reindex`"


def _log_rebuild(reason: str) -> None:
    _log.info("recall.index_made_again", hint=reason)
