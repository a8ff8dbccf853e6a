"""Checks for `/readyz`: the log can be written and read, and its disk has room. The model's health is a detail beside
it and decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from abridged.eventlog.async_append import AsyncAppender
from abridged.eventlog.errors import EventLogError, WrongExpectedVersion
from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append, EventLog
from abridged.service.api.http import Check
from abridged.service.conversations.rebuild import Rebuild
from abridged.service.models.model import ModelError, SummaryModel
from abridged.service.recall.projection import Projection

FREE_BYTES_MIN = 64 << 20
"""Bytes below which the log may be full before it has looked again: its write-ahead log grows to WAL_BYTES_MAX (48
MiB), and by an append of APPEND_BYTES_MAX (8 MiB) more, before it is copied into the file and cut."""

_STREAM = StreamId("default", "-readiness")
_EVENT = NewEvent(bytes(16), "Probe", b"")


def log_checks(log: EventLog) -> Mapping[str, Check]:
    """Checks of whether messages can be appended and read."""
    appender = AsyncAppender(log)

    async def append() -> str:
        """Go the whole way of an append but for the writing: nothing is ever at the version that it expects."""
        if reason := await asyncio.to_thread(log.full):
            return f"read-only: {reason}"
        try:
            await appender.append(Append(_STREAM, [_EVENT], expected=-1))
        except WrongExpectedVersion:
            return ""
        except EventLogError as error:
            return _named(error)
        return "a probe was written"

    async def read() -> str:
        try:
            await asyncio.to_thread(log.read_all, after=0, limit=1)
        except EventLogError as error:
            return _named(error)
        return ""

    return {"append": append, "read": read}


def _named(error: EventLogError) -> str:
    """The error's type and cause: whoever asks may not learn where a database is."""
    return f"{type(error).__name__} ({error.cause})" if error.cause else type(error).__name__


def rebuild_check(rebuild: Rebuild) -> Check:
    """The check of whether the read table stands; it tells how far the table is while it is made again."""

    async def stands() -> str:
        return rebuild.reason()

    return stands


def space_check(free_bytes: Callable[[], int]) -> Check:
    """The check of whether the log's volume has room. `append` tells only when no room is left: it writes nothing
    itself."""

    async def space() -> str:
        try:
            free = await asyncio.to_thread(free_bytes)
        except OSError as error:
            return f"the log's volume cannot be looked at: {error.strerror}"
        if free >= FREE_BYTES_MIN:
            return ""
        return f"{free >> 20} MiB are free on the log's volume, {FREE_BYTES_MIN >> 20} MiB are needed"

    return space


def recall_check(projection: Projection) -> Check:
    """The check of whether the search index follows the log."""

    async def follows() -> str:
        return projection.progress.stopped

    return follows


def model_check(model: SummaryModel | None) -> Check:
    """The check of whether the summarizer's server responds; extraction, which is None, needs no server."""

    async def answers() -> str:
        if model is None:
            return ""
        try:
            await model.describe()
        except ModelError as error:
            return error.error_class
        return ""

    return answers
