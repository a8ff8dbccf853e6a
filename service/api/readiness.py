"""What `/readyz` asks: the log takes and gives; how the model is doing is told beside it and decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from eventlog.async_append import AsyncAppender
from eventlog.errors import EventLogError, WrongExpectedVersion
from eventlog.event import NewEvent, StreamId
from eventlog.log import Append, EventLog, exactly
from service.api.http import Check
from service.models.model import ModelError, SummaryModel

__all__ = ["log_checks", "model_check"]

_STREAM = StreamId("default", "-readiness")
_EVENT = NewEvent(bytes(16), "Probe", b"")


def log_checks(log: EventLog) -> Mapping[str, Check]:
    """Whether messages can be appended and read."""
    appender = AsyncAppender(log)

    async def append() -> str:
        """Go the whole way of an append but for the writing: nothing is ever at the version that it expects."""
        try:
            await appender.append(Append(_STREAM, [_EVENT], expected=exactly(-1)))
        except WrongExpectedVersion:
            return ""
        except EventLogError as error:
            return type(error).__name__
        return "a probe was written"

    async def read() -> str:
        try:
            await asyncio.to_thread(log.read_all, after=0, limit=1)
        except EventLogError as error:
            return type(error).__name__
        return ""

    return {"append": append, "read": read}


def model_check(model: SummaryModel) -> Check:
    """Whether the summarizer's server answers."""

    async def answers() -> str:
        try:
            await model.describe()
        except ModelError as error:
            return error.error_class
        return ""

    return answers
