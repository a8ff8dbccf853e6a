"""Every backend keeps its promises of the rows beside its events, and of snapshots where it keeps any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.event import StreamId
from abridged.eventlog.log import AppendResult, Committed, EventLog
from abridged.eventlog.rows import Rows
from abridged.eventlog.snapshots import Snapshots, StoredSnapshot
from tests.support.event_logs import BACKENDS, DURABLE, NOTES, OTHER, A, B, Clock, Kind, Note, append, event

C = StreamId("default", "c")


class Noted:
    """A log whose hook writes the row that is projected with an append."""

    def __init__(self, kind: Kind, path: Path) -> None:
        self.kind = kind
        self.place: Any = kind.at(path)
        self.rows: Rows[Note] = self.place.rows(NOTES)
        opened = self.place.open(self.rows, clock_us=Clock(), hook=self._project, on_fatal=lambda _: None)
        self.log: EventLog = opened.log
        self.kept = opened.kept
        self._next = 0

    def note(self, stream: StreamId, **fields: Any) -> AppendResult:
        """Append an event, and write the row with these fields."""
        self._next += 1
        return self.log.submit(append(event(self._next), to=stream, projected=fields)).result()

    def listed(self, namespace: str = "default", *, before: int = 0, limit: int = 10, text: str = "") -> list[str]:
        """The ids of a page of rows that hold the text."""
        page = self.rows.page(namespace, before=before, limit=limit, accepts=lambda row: text in row.text)
        return [row.id for row in page]

    def _project(self, transaction: Any, committed: Sequence[Committed]) -> None:
        self.rows.require_complete()
        newest = {
            commit.stream: Note(*commit.stream, commit.events[-1].position, **commit.projected) for commit in committed
        }
        self.rows.put(transaction, list(newest.values()))
        for commit in committed:
            if commit.projected.get("topic") == "refused":
                raise ValueError("the hook refuses this append")


@pytest.fixture(params=BACKENDS, ids=str)
def noted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Noted]:
    it = Noted(request.param, tmp_path / "log.db")
    yield it
    it.log.close()


@pytest.fixture(params=DURABLE, ids=str)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Noted]:
    it = Noted(request.param, tmp_path / "log.db")
    yield it
    it.log.close()


def test_a_row_is_what_was_last_written_of_its_stream(noted: Noted):
    """A row keeps each type of value, and the difference between no value and an empty one."""
    assert noted.rows.row(A) is None
    noted.note(A, text="first", weight=0.5, data=b"\0\xff", urgent=3, topic="Größe")
    noted.note(B)
    at = noted.note(A, text="second").last_position

    assert noted.rows.row(A) == Note(*A, at, "second", None, b"", 0, "")
    assert noted.rows.row(B) == Note(*B, 2)
    assert noted.rows.row(OTHER) is None


def test_a_text_may_have_any_character(noted: Noted):
    """A row also keeps characters that a database gives a meaning of its own."""
    for text in ("a\0b", "\\", "\\0", "\\\0\\", "'\"%_", "\u2028🙂"):
        noted.note(A, text=text, topic=text)
        assert noted.rows.row(A) == Note(*A, noted.log.head(), text, topic=text)
        assert noted.rows.tally("topic") == Counter({text: 1})
    noted.note(StreamId("back\\slash", "\\0"))
    assert noted.listed("back\\slash") == ["\\0"]


def test_a_page_is_of_one_namespace_last_changed_first(noted: Noted):
    """A page starts at any position and holds only the rows that match."""
    for stream, text in ((A, "x"), (B, "y"), (OTHER, "x"), (C, "x"), (A, "x")):
        noted.note(stream, text=text)

    assert noted.listed() == ["a", "c", "b"]
    assert noted.listed("other") == ["a"]
    assert noted.listed(limit=1) == ["a"]
    assert noted.listed(before=5) == ["c", "b"]
    assert noted.listed(text="x") == ["a", "c"]
    assert noted.listed("nobody") == []


def test_rows_are_found_by_any_column_of_a_mark_and_counted_by_its_value(noted: Noted):
    """A row loses a mark with its next change."""
    noted.note(A, urgent=1, topic="tea")
    noted.note(B, text="late", topic="tea")
    noted.note(C, topic="")
    noted.note(OTHER, topic="rain")

    assert {row.id for row in noted.rows.marked("urgent")} == {"a", "b"}
    assert noted.rows.tally("topic") == Counter({"tea": 2, "rain": 1})
    assert noted.rows.values("topic") == {A: "tea", B: "tea", OTHER: "rain"}

    noted.note(A)
    assert {row.id for row in noted.rows.marked("urgent")} == {"b"}
    assert noted.rows.tally("topic") == Counter({"tea": 1, "rain": 1})


def test_marked_rows_come_in_pages(noted: Noted):
    """Pages follow namespace and id, so that a look at many rows has a bound."""
    for key in (OTHER, C, A, B):
        noted.note(key, urgent=1)

    first = noted.rows.marked("urgent", limit=3)
    assert [row[:2] for row in first] == [A, B, C]
    assert [row[:2] for row in noted.rows.marked("urgent", after=StreamId(*first[-1][:2]), limit=3)] == [OTHER]
    assert noted.rows.marked_streams("urgent", limit=3) == [A, B, C]
    assert noted.rows.marked_streams("urgent", after=C, limit=3) == [OTHER]


def test_a_row_is_written_with_its_events_or_not_at_all(noted: Noted):
    """A hook that raises has no effect."""
    noted.note(A, text="kept")
    with pytest.raises(ValueError, match="refuses"):
        noted.note(A, text="lost", topic="refused")

    assert noted.rows.row(A) == Note(*A, 1, "kept")
    assert noted.log.stream_version(A) == 1


def test_rows_last_as_long_as_their_log(stored: Noted, tmp_path: Path):
    """The next start need not make them again; one of another version does, and finds every stream."""
    stored.note(A, text="kept")
    stored.note(OTHER)
    stored.log.close()

    again = Noted(stored.kind, tmp_path / "log.db")
    rows = again.kept.rows if again.kept else None
    assert rows is not None
    assert (rows.is_complete, rows.row(A)) == (True, Note(*A, 1, "kept"))
    assert (set(rows.streams()), rows.stream_count()) == ({A, OTHER}, 2)
    again.log.close()


def test_a_log_says_which_it_is_and_how_large(stored: Noted):
    """A process that has the log open does not hinder the answer."""
    stored.note(A)
    assert stored.place.log_id() == stored.log.log_id
    assert stored.place.size_bytes() > 0


def test_a_snapshot_is_the_newest_of_its_stream(stored: Noted):
    """A snapshot that is set aside is not read again, and still tells its version."""
    snapshots = _snapshots(stored)
    assert (snapshots.of(A), snapshots.version_of(A), snapshots.is_damaged(A)) == (None, 0, False)
    for version in (1, 4):
        snapshots.put(_snapshot(A, version))
    snapshots.put(_snapshot(B, 2))
    snapshots.put(_snapshot(B, 9), unless=lambda: True)

    assert snapshots.of(A) == _snapshot(A, 4)
    assert snapshots.version_of(B) == 2

    assert snapshots.set_aside(A, _snapshot(A, 6)) == 6
    assert (snapshots.of(A), snapshots.set_aside(A), snapshots.set_aside(OTHER)) == (None, 6, 0)


def test_a_snapshot_goes_when_as_many_events_are_proven(stored: Noted):
    """One of more events may be all that is left of them, and is set aside with the rest."""
    snapshots = _snapshots(stored)
    snapshots.put(_snapshot(A, 4))
    snapshots.put(_snapshot(B, 4))

    assert snapshots.drop_proven({A: 4, B: 3}) == 1
    assert (snapshots.version_of(A), snapshots.version_of(B)) == (0, 4)
    assert (snapshots.set_aside_rest(), snapshots.version_of(B), snapshots.set_aside(B)) == (1, 0, 4)


def _snapshots(noted: Noted) -> Snapshots:
    assert noted.kept is not None
    return noted.kept.snapshots


def _snapshot(stream: StreamId, version: int) -> StoredSnapshot:
    return StoredSnapshot(stream, version, 10 * version, b"chain", "codec", f"state {version}".encode())
