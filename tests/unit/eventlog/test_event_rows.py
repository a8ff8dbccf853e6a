"""Rows whose names are remembered by number."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from abridged.eventlog.chain import SALT_BYTES, commit_to, envelope
from abridged.eventlog.errors import StreamCorrupt
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.event_rows import EventRows
from abridged.eventlog.stored_event import Row

STREAM, TYPE = 7, 3


class Names:
    """The names of a database that gives number STREAM to a stream."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0

    def streams(self, numbers: Collection[int]) -> Iterator[tuple[int, str, str]]:
        self.asked += 1
        return ((number, "default", self.name) for number in numbers)

    def types(self, numbers: Collection[int]) -> Iterator[tuple[int, None, str]]:
        return ((number, None, "noted") for number in numbers)

    def row(self, version: int) -> Row:
        """The row of an event of the stream."""
        event = RecordedEvent(
            version, StreamId("default", self.name), version, bytes([version] * 16), "noted", 1, 5, "", b"payload"
        )
        salt = bytes(SALT_BYTES)
        commitment = commit_to(salt, envelope(event), event.payload)
        return (version, STREAM, version, event.event_id, TYPE, 1, 5, "", event.payload, salt, commitment)


def test_names_are_looked_up_once():
    """However many pages have events of the stream."""
    names = Names("first")
    rows = EventRows(names.streams, names.types)

    for version in (1, 2, 3):
        (event,) = rows.recorded([names.row(version)])
        assert event.stream == StreamId("default", "first")

    assert names.asked == 1


def test_a_number_that_was_given_anew_has_its_new_name():
    """A primary is lost with a stream that its standby never had, which gives the number to another."""
    names = Names("first")
    rows = EventRows(names.streams, names.types)
    rows.recorded([names.row(1)])

    names.name = "second"
    found = rows.recorded([names.row(1), names.row(2)])

    assert [event.stream.name for event in found] == ["second", "second"]
    assert names.asked <= 4


def test_an_event_of_another_stream_is_refused():
    """A row whose number leads to a name that it was not written with."""
    names = Names("first")
    row = names.row(1)
    names.name = "second"

    with pytest.raises(StreamCorrupt, match="position 1 is not what was written"):
        EventRows(names.streams, names.types).recorded([row])
