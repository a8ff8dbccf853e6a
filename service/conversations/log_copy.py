"""A whole log as lines of JSON, and a log from such lines: a head line, then every event in the order of positions.

The copy is the same log on another machine: its id, positions, versions, event ids and times are those of the lines, so
that cursors and repeated appends hold. Seals are made anew under the copy's own secret. Keys of requests are not among
the lines; a repeated request is known by the ids of its messages.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import BinaryIO, NamedTuple

from abridged.eventlog.errors import EventLogError, LogCorrupt, LogUnavailable, StreamCorrupt
from abridged.eventlog.event import NewEvent, RecordedEvent, StreamId
from abridged.eventlog.log import APPEND_EVENTS_MAX, PAGE_EVENTS_MAX, Append, AppendResult, EventLog
from abridged.eventlog.verification import LogVerification
from abridged.service.codec.event_json import event_line, event_of_line
from abridged.service.codec.events import ERASED, content_of
from abridged.service.conversations.replay import evolved, recorded_events
from abridged.service.domain.conversation import initial_state
from abridged.service.domain.events import ConversationArchived, ConversationErased, ConversationForked
from abridged.service.text.nested_json import strictly_parsed

FORMAT = "abridged-log-1"

LINE_BYTES_MAX = 8 << 20
"""A payload of the largest size, each byte escaped, and the rest of its line."""

_ENDS = frozenset({ConversationErased.__name__, ConversationArchived.__name__})
"""Types of events after which those before them need no contents."""

_WAITING_MAX = 512
"""Appends that are on their way to the disk: as many as a group commit takes at a time."""

Walked = Callable[[int, int], None]
"""Called with the events that are done, and all of them."""


class LogLinesRefused(ValueError):
    """A line that is not one of a whole log; `args` say which, and why."""


class Head(NamedTuple):
    """The first line: the log's id, how many events follow, and the id of the log that it is a part of, if it is."""

    log_id: str
    events: int
    part_of: str = ""


def lines_of_log(log: LogVerification, walked: Walked) -> Iterator[str]:
    """Yield the lines, each with its end. Raises LogCorrupt for a lost end and at the first damage, and LogUnavailable
    at the end for a copy of an earlier log with contents whose keys were erased since: without the erasures the lines
    are no log. Memory holds a page of events, and the names of conversations without contents whose end is still to
    come."""
    log.require_same_head()
    count = log.event_count()
    yield json.dumps({"format": FORMAT, "logId": log.log_id, "events": count}) + "\n"
    done = 0
    blanked: set[StreamId] = set()
    while page := log.read_all(after=done, limit=PAGE_EVENTS_MAX):
        for event in page:
            if event.payload == ERASED:
                blanked.add(event.stream)
            elif event.type in _ENDS:
                blanked.discard(event.stream)
            yield event_line(log.log_id, event) + "\n"
        done = page[-1].position
        walked(done, count)
    if done != count:
        raise LogCorrupt(f"of {count} events {done} can be read; `abridged log verify` says more")
    if blanked:
        named = min(f"{stream.namespace}/{stream.name}" for stream in blanked)
        raise LogUnavailable(
            f"{len(blanked):,} conversations, such as {named}, have no contents, and no event says so: if they were "
            "erased after this copy of the log was made, a sidecar that starts on it beside its keys erases them again"
        )


def head_of_lines(lines: BinaryIO) -> Head:
    """Read the first line. Raises LogLinesRefused."""
    try:
        head = strictly_parsed(_text(lines.readline(LINE_BYTES_MAX + 1)))
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise ValueError(f'it begins with {{"format": "{FORMAT}", ...}}')
        log_id, events = head.get("logId"), head.get("events")
        if not isinstance(log_id, str) or not log_id.isalnum() or type(events) is not int or events < 0:
            raise ValueError("logId and events are needed")
        part_of = head.get("partOf")
        whole_id = part_of.get("logId") if isinstance(part_of, dict) else ""
    except ValueError as error:
        raise LogLinesRefused(f"line 1: no log was exported here: {error}") from error
    return Head(log_id, events, whole_id if isinstance(whole_id, str) else "")


def filled(log: EventLog, head: Head, lines: BinaryIO, walked: Walked) -> None:
    """Append the events of the lines after the head to a log without any.

    Raises LogLinesRefused, and EventLogError if the log cannot be written. Memory holds what is on its way to the disk
    and the number of events of each conversation.
    """
    waiting: deque[tuple[int, int, Future[AppendResult]]] = deque()
    for number, run in _runs(_events(head, lines)):
        new = [
            NewEvent(e.event_id, e.type, e.payload, e.schema_version, content_of(e.type, e.payload), e.trace_context)
            for e in run
        ]
        first = run[0]
        append = Append(first.stream, new, expected=first.version - 1, time_us=first.time_us)
        waiting.append((number, run[-1].position, log.submit(append)))
        while len(waiting) > _WAITING_MAX:
            walked(_written(*waiting.popleft()), head.events)
    while waiting:
        walked(_written(*waiting.popleft()), head.events)


def _written(number: int, position: int, future: Future[AppendResult]) -> int:
    try:
        result = future.result()
    except EventLogError as error:
        raise LogLinesRefused(f"line {number} and after: {error}") from error
    if result.last_position != position:
        raise LogLinesRefused(f"line {number} and after: an event id is there twice")
    return position


def _events(head: Head, lines: BinaryIO) -> Iterator[tuple[int, RecordedEvent]]:
    """Yield each event with the number of its line."""
    versions: dict[StreamId, int] = {}
    position = 0
    while line := lines.readline(LINE_BYTES_MAX + 1):
        position += 1
        try:
            event, decoded = event_of_line(_text(line), log_id=head.log_id)
            if event.position != position:
                raise ValueError(f"position {event.position} stands in the place of {position}")
            version = versions.get(event.stream, 0) + 1
            if event.version != version:
                raise ValueError(f"version {event.version} of its conversation stands in the place of {version}")
            if isinstance(decoded, ConversationForked):
                parent = StreamId(event.stream.namespace, decoded.parent_id)
                if not 1 <= decoded.parent_event_version <= versions.get(parent, 0):
                    raise ValueError("the conversation that it begins from does not stand before it")
        except ValueError as error:
            raise LogLinesRefused(f"line {position + 1}: {error}") from error
        versions[event.stream] = version
        yield position + 1, event
    if position != head.events:
        raise LogLinesRefused(
            f"line {position + 1}: the last of {position} events, of which the head has {head.events}"
        )


def refused(stream: StreamId, error: Exception) -> LogLinesRefused:
    """Name the conversation whose events were read, and contradict each other."""
    return LogLinesRefused(f"conversation {stream.namespace}/{stream.name}: {error}")


def unfoldable(log: EventLog, error: Exception) -> LogLinesRefused:
    """Name the line of the first event, by conversation, that does not follow from those before it. `error` is what
    the fold of all of them has met."""
    if isinstance(error, StreamCorrupt):
        return refused(error.stream, error)
    seen: dict[StreamId, None] = {}
    after = 0
    while page := log.read_all(after=after, limit=PAGE_EVENTS_MAX):
        seen |= dict.fromkeys(event.stream for event in page)
        after = page[-1].position
    for key in seen:
        events = list(recorded_events(log, key))
        whole = len(events)
        last = bisect_left(range(1, whole + 1), x=True, key=lambda n: not _folds(log, key, events[:n]))
        if last < whole:
            return LogLinesRefused(f"line {events[last].position + 1}: the event does not follow from those before it")
    return LogLinesRefused(f"the conversations cannot be folded: {error}")


def _folds(log: EventLog, key: StreamId, events: Sequence[RecordedEvent]) -> bool:
    try:
        evolved(log, key, initial_state(), iter(events))
    except Exception:  # noqa: BLE001 -- whatever contradicts the fold, a line has it
        return False
    return True


def _runs(events: Iterator[tuple[int, RecordedEvent]]) -> Iterator[tuple[int, list[RecordedEvent]]]:
    """Yield the events in runs of one conversation and time, which were written together, with their first line."""
    run: list[RecordedEvent] = []
    begun = size = 0
    for number, event in events:
        fits = run and (event.stream, event.time_us) == (run[0].stream, run[0].time_us)
        size += len(event.payload)
        if run and not (fits and len(run) < APPEND_EVENTS_MAX and size <= _RUN_BYTES_MAX):
            yield begun, run
            run, size = [], len(event.payload)
        if not run:
            begun = number
        run.append(event)
    if run:
        yield begun, run


def _text(line: bytes) -> str:
    if len(line) > LINE_BYTES_MAX:
        raise ValueError(f"longer than {LINE_BYTES_MAX} bytes")
    if not line.endswith(b"\n"):
        raise ValueError("the line has no end")
    return line.decode()


_RUN_BYTES_MAX = 4 << 20
"""Payload of one append, at most half of what the log takes."""
