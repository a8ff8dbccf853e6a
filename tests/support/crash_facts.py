"""Events of a sidecar's log as facts for the audit, read over its API; and facts that only the file can tell."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventLog
from abridged.eventlog.sqlite.backend import SqliteBackend
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.service.api.event_wire import EventEncoder
from abridged.service.api.wire import conversation_view
from abridged.service.codec.events import decode
from abridged.service.codec.values import settings_from_bytes
from abridged.service.conversations.row import READ_TABLE, Row
from abridged.service.conversations.table import ConversationTable, row_of
from abridged.service.domain.events import Event
from abridged.service.domain.fold import fold
from abridged.v1 import conversation_pb2, event_log_service_pb2, event_pb2
from tests.support.crash_audit import Fact, PassFact, PassStep
from tests.support.crash_process import CALL_S, until_answered
from tests.support.event_logs import verify_stream

PAGE_EVENTS = 500
_PASS_EVENTS: dict[str, str] = {
    "summarization_started": PassStep.STARTED,
    "summarization_completed": PassStep.COMPLETED,
    "summarization_failed": PassStep.ENDED,
    "summarization_skipped": PassStep.ENDED,
}


async def read_facts(stub: Any, *, after: int) -> AsyncIterator[Fact]:
    """Every event after a position, up to the end as it is met."""
    end = False
    while not end:
        request = event_log_service_pb2.ReadEventsRequest(after=after, limit=PAGE_EVENTS)
        page = await until_answered(partial(stub.ReadEvents, request, timeout=CALL_S, wait_for_ready=True))
        for event in page.events:
            yield _fact(event)
        after, end = page.next_after, page.end


def stored_facts(log: EventLog) -> Iterator[Fact]:
    """Every event of an open log, of which each is checked against its seal and each stream against its chain."""
    for stream in _streams(log):
        verify_stream(log, stream)
    after = 0
    encoded = EventEncoder(log.log_id)
    while page := log.read_all(after=after, limit=PAGE_EVENTS):
        for event in page:
            yield _fact(event_pb2.Event.FromString(encoded(event)))
        after = page[-1].position


def verified_streams(path: Path) -> list[str]:
    """Walk the hash chain of every stream of a log that nobody has open; raises LogCorrupt where it breaks."""
    log = SqliteEventLog.open(path, clock_us=_no_clock)
    try:
        streams = _streams(log)
        for stream in streams:
            verify_stream(log, stream)
        return [stream.name for stream in streams]
    finally:
        log.close()


def differing_rows(path: Path) -> list[str]:
    """Conversations whose row of the read table differs from the fold of their events."""
    backend = SqliteBackend(path)
    rows_there = backend.rows(READ_TABLE)
    table = ConversationTable(rows_there)
    log, *_ = backend.open(rows_there, clock_us=_no_clock, hook=table.project)
    try:
        rows = [(stream, table.row(stream)) for stream in _streams(log)]
        return [stream.name for stream, row in rows if row is None or _listed(row) != _folded(log, stream)]
    finally:
        log.close()


def _folded(log: EventLog, stream: StreamId) -> conversation_pb2.Conversation:
    state = fold(_events(log, stream))
    return conversation_view(row_of(stream, state), state.settings)


def _listed(row: Row) -> conversation_pb2.Conversation:
    return conversation_view(row, settings_from_bytes(row.settings))


def _events(log: EventLog, stream: StreamId) -> Iterator[tuple[Event, int]]:
    after = 0
    while page := log.read_stream(stream, after=after, limit=PAGE_EVENTS):
        for event in page:
            yield decode(event.type, event.schema_version, event.payload), event.time_us
        after = page[-1].version


def _streams(log: EventLog) -> list[StreamId]:
    streams: dict[StreamId, None] = {}
    after = 0
    while page := log.read_all(after=after, limit=PAGE_EVENTS):
        streams.update(dict.fromkeys(event.stream for event in page))
        after = page[-1].position
    return list(streams)


def _no_clock() -> int:
    raise AssertionError("nothing is written here")


def _fact(event: event_pb2.Event) -> Fact:
    message: tuple[str, str, int] | None = None
    of_pass: PassFact | None = None
    body = event.WhichOneof("body") or ""
    if body == "message_appended":
        appended = event.message_appended
        message = (appended.message.id, appended.message.content, appended.number)
    elif body == "summarization_requested":
        of_pass = PassFact(event.summarization_requested.plan.summarization_id, PassStep.REQUESTED)
    elif body in _PASS_EVENTS:
        of_pass = _pass_fact(getattr(event, body), _PASS_EVENTS[body])
    return Fact(event.position, event.conversation_id, event.version, event.event_id, message, of_pass)


def _pass_fact(payload: Any, step: str) -> PassFact | None:
    if not payload.summarization_id:  # a pass that was skipped before it began has no id
        return None
    claim = payload.claim if isinstance(payload, event_pb2.SummarizationStarted) else 0
    return PassFact(payload.summarization_id, step, claim)
