"""Rows whose names are remembered by number."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from abridged.eventlog.chain import SALT_BYTES, blanked, commit_to, envelope
from abridged.eventlog.errors import StreamCorrupt
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.event_rows import EventRows
from abridged.eventlog.stored_event import Row

STREAM, TYPE = 7, 3


class Names:
    """The names of a database that gives number STREAM to a stream, and TYPE to a type."""

    def __init__(self) -> None:
        self.name, self.type = "first", "noted"
        self.asked: list[str] = []

    def streams(self, numbers: Collection[int]) -> list[tuple[int, str, str]]:
        self.asked.append("streams")
        return [(number, "default", self.name) for number in numbers]

    def types(self, numbers: Collection[int]) -> list[tuple[int, None, str]]:
        self.asked.append("types")
        return [(number, None, self.type) for number in numbers]

    def row(self, version: int) -> Row:
        """The row of an event of the stream."""
        event = RecordedEvent(
            version, StreamId("default", self.name), version, bytes([version] * 16), self.type, 1, 5, "", b"payload"
        )
        salt = bytes(SALT_BYTES)
        commitment = commit_to(salt, envelope(event), event.payload)
        return (version, STREAM, version, event.event_id, TYPE, 1, 5, "", event.payload, salt, commitment)


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def rows(names: Names) -> EventRows:
    return EventRows(names.streams, names.types)


def test_names_are_looked_up_once(names, rows):
    """However many pages have events of the stream."""
    for version in (1, 2, 3):
        (event,) = rows.recorded([names.row(version)])
        assert (event.stream, event.type) == (StreamId("default", "first"), "noted")

    assert sorted(names.asked) == ["streams", "types"]


@pytest.mark.parametrize(("stream", "kind"), [("second", "noted"), ("first", "moved"), ("second", "moved")])
def test_a_number_that_was_given_anew_has_its_new_name(names, rows, stream, kind):
    """A primary is lost with a stream or a type that its standby never had, which gives the number to another."""
    rows.recorded([names.row(1)])
    names.name, names.type = stream, kind
    names.asked.clear()

    found = rows.recorded([names.row(version) for version in range(1, 101)])

    assert {(event.stream.name, event.type) for event in found} == {(stream, kind)}
    assert sorted(names.asked) == ["streams", "types"]
    # What rows have in common is made of the new names, else each of them would be checked twice.
    assert {(known.name, its_type) for known, its_type, _ in rows._alike.values()} == {(stream, kind)}


def test_a_blanked_event_has_nothing_looked_up_again(names, rows):
    """The commitment binds what the event was before."""
    row = names.row(1)
    rows.recorded([row])
    (blank,) = blanked([sealed_from(rows, row)], StreamId("default", "first"), {1: b"gone"})
    names.asked.clear()

    found = rows.recorded([(*row[:8], blank.event.payload, blank.salt, row[10])] * 3)

    assert [event.payload for event in found] == [b"gone"] * 3
    assert names.asked == []


def sealed_from(rows: EventRows, row: Row) -> SealedEvent:
    (sealed,) = rows.sealed([(*row, b"", b"")], StreamId("default", "first"))
    return sealed


def test_an_event_of_another_stream_is_refused(names, rows):
    """A row whose number leads to a name that it was not written with."""
    row = names.row(1)
    names.name = "second"

    with pytest.raises(StreamCorrupt, match="position 1 is not what was written"):
        rows.recorded([row])
