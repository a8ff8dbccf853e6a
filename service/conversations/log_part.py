"""Some conversations of a log as the lines of a log of its own, which `abridged log import` makes like any other.

A part has whole conversations, and with a fork those that it began from: less could not be folded. Events of a part are
those of the log, with their ids, versions and times; positions are counted anew, because a log has no gaps. The part
has an id of its own, the same for the same events, so that no cursor of the log is taken for one of the part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.event import NUMBER_MAX, StreamId
from abridged.eventlog.log import PAGE_EVENTS_MAX
from abridged.eventlog.verification import LogVerification
from abridged.service.codec.event_json import event_line
from abridged.service.conversations.log_copy import FORMAT, Walked
from abridged.service.conversations.row import Row
from abridged.service.conversations.table import ConversationTable, ListQuery

_ID_BYTES = 16


class Choice(NamedTuple):
    """The conditions on a conversation of a part, all of which hold: its name, unless `names` is empty, its labels, the
    time of its last event, from `since_us` on and before `until_us`, and whether it is closed."""

    names: frozenset[StreamId] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()
    since_us: int = 0
    until_us: int = NUMBER_MAX
    closed: bool | None = None

    def accepts(self, row: Row) -> bool:
        """Return whether the conversation with this row is chosen. Raises KeyLost if nobody can tell."""
        asked = ListQuery(row.namespace, limit=1, labels=self.labels, closed=self.closed, every_label=True)
        return self.since_us <= row.updated_us < self.until_us and asked.accepts(row)


class Part(NamedTuple):
    """The conversations of a part with their numbers of events, how many are there for their forks alone, and the files
    of those that are archived, which alone have their contents."""

    conversations: Mapping[StreamId, int]
    ancestors: int
    archives: Mapping[StreamId, str]

    @property
    def events(self) -> int:
        """The number of its events."""
        return sum(self.conversations.values())


class ConversationMissing(LookupError):
    """The log has no conversation of this name, or it was erased."""


def part_of_log(log: LogVerification, table: ConversationTable, choice: Choice) -> Part:
    """Choose conversations by their rows in `table`. Raises ConversationMissing, LogCorrupt for a row that is not
    as written, and KeyLost for one whose labels nobody can read. Memory holds the names of all."""
    streams = log.streams()
    if missing := {name for name in choice.names if name not in streams or _row(table, name).erased}:
        raise ConversationMissing(min(f"{stream.namespace}/{stream.name}" for stream in missing))
    chosen = [stream for stream in choice.names or streams if choice.accepts(_row(table, stream))]
    found: dict[StreamId, int] = {}
    archives: dict[StreamId, str] = {}
    waiting = list(chosen)
    while waiting:
        stream = waiting.pop()
        found[stream] = streams[stream]
        row = _row(table, stream)
        if row.archive_file:
            archives[stream] = row.archive_file
        if row.forked_from and StreamId(stream.namespace, row.forked_from) not in found:
            waiting.append(StreamId(stream.namespace, row.forked_from))
    return Part(found, len(found) - len(chosen), archives)


def lines_of_part(log: LogVerification, part: Part, walked: Walked) -> Iterator[str]:
    """Yield the lines of the part, each with its end. Raises LogCorrupt for a lost end and at the first damage of the
    log, which is read up to the last event of the part. Memory holds a page of events."""
    log.require_same_head()
    count, own_id = log.event_count(), part_id(log.log_id, part.conversations)
    yield head_of_part(own_id, part.events, log.log_id, count)
    done = position = 0
    while position < part.events and (
        page := log.read_all(after=done, limit=PAGE_EVENTS_MAX, in_clear=part.conversations)
    ):
        for event in page:
            if event.version <= part.conversations.get(event.stream, 0):
                position += 1
                yield event_line(own_id, event._replace(position=position)) + "\n"
        done = page[-1].position
        walked(done, count)
    if position != part.events:
        raise LogCorrupt(f"of {part.events} events {position} can be read; `abridged log verify` says more")


def _row(table: ConversationTable, stream: StreamId) -> Row:
    row = table.row(stream)
    if row is None:
        raise LogCorrupt(f"there is no row of {stream.namespace}/{stream.name} in the read table")
    return row


def head_of_part(own_id: str, events: int, log_id: str, log_events: int) -> str:
    """The first line of a part of a log that has `log_events` itself."""
    of_log = {"logId": log_id, "events": log_events}
    return json.dumps({"format": FORMAT, "logId": own_id, "events": events, "partOf": of_log}) + "\n"


def part_id(log_id: str, conversations: Mapping[StreamId, int]) -> str:
    """The id of a part: the same for the same conversations with the same numbers of events."""
    named = sorted((*stream, events) for stream, events in conversations.items())
    return blake2b(json.dumps([log_id, named]).encode(), digest_size=_ID_BYTES).hexdigest()
