"""The read table made again: all that is in the log, and nothing of it is read before all is there."""

from __future__ import annotations

import sqlite3
import tracemalloc
from pathlib import Path

import pytest

from abridged.eventlog.errors import LogClosed, LogCorrupt, LogNewer, LogUnavailable
from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append
from abridged.eventlog.sqlite.rows import STREAMS_PAGE
from abridged.service.conversations.rebuild import BATCH_ROWS, RebuildReport
from abridged.service.conversations.row import READ_TABLE
from abridged.service.conversations.table import ListQuery, Projected
from abridged.service.domain.conversation import initial_state
from tests.support.read_tables import OLDER, asked, changed, grown, opened, written_anew

SOME = BATCH_ROWS + STREAMS_PAGE + 3
NEWER = f"UPDATE projections SET version = {READ_TABLE.version + 1}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def rows_of(path: Path) -> list[object]:
    return asked(path, "SELECT * FROM conversations ORDER BY namespace, id")


def test_a_table_that_stands_is_left_as_it_is(path: Path):
    """Most starts: nothing is made again."""
    grown(path, 3)

    with opened(path) as (_, table, rebuild):
        assert not rebuild.is_due
        assert [row.id for row in table.page(ListQuery("default", 10))] == ["c000002", "c000001", "c000000"]


@pytest.mark.parametrize(
    "fault",
    [
        OLDER,
        "DROP TABLE projections",
        "DROP TABLE conversations",
        "UPDATE projections SET log_id = 'another'",
        "UPDATE projections SET complete = 0",
    ],
)
def test_a_table_that_does_not_stand_is_made_again_to_the_last_row(path: Path, fault: str):
    """Older, unversioned, missing, another log's, or not made to its end: the rows are those that commits wrote."""
    grown(path, SOME)
    before = rows_of(path)
    changed(path, fault)

    with opened(path) as (_, _, rebuild):
        assert rebuild.is_due
        assert rebuild() == (SOME, 2 * SOME, 0)
        assert not rebuild.is_due

    assert rows_of(path) == before
    with opened(path) as (_, _, rebuild):
        assert not rebuild.is_due


def test_nothing_is_read_or_written_before_all_rows_are_there(path: Path):
    """A list of a half-made table would be short, and an append's row would be written over by an older one."""
    grown(path, 3)
    changed(path, OLDER)

    with opened(path) as (log, table, _):
        for read in (
            lambda: table.row(StreamId("default", "c000000")),
            lambda: table.page(ListQuery("default", 1)),
            table.attention,
            table.calibrations,
            table.standing,
        ):
            with pytest.raises(LogUnavailable, match="made again"):
                read()
        append = Append(StreamId("default", "new"), [NewEvent(bytes(16), "X", b"")], projected=_nothing())
        with pytest.raises(LogUnavailable, match="made again"):
            log.submit(append).result()


def test_a_rebuild_that_is_interrupted_begins_again(path: Path):
    """The second rebuild removes all that the first had written, and ends the same."""
    grown(path, SOME)
    before = rows_of(path)
    changed(path, OLDER)

    def interrupted(done: int, _total: int) -> None:
        if done > 2 * (BATCH_ROWS + 1):
            raise InterruptedError

    with opened(path) as (_, _, rebuild), pytest.raises(InterruptedError):
        rebuild(RebuildReport(interrupted))
    assert len(rows_of(path)) == BATCH_ROWS

    with opened(path) as (_, _, rebuild):
        assert asked(path, "SELECT count(*) FROM conversations") == [(0,)]
        rebuild()
    assert rows_of(path) == before


def test_a_log_that_is_closed_ends_its_rebuild(path: Path):
    """A stop does not wait for the rest."""
    grown(path, SOME)
    changed(path, OLDER)

    with opened(path) as (log, _, rebuild), pytest.raises(LogClosed):
        rebuild(RebuildReport(lambda _done, _total: log.close()))

    assert asked(path, "SELECT complete FROM projections") == [(0,)]


def test_a_table_of_a_newer_version_is_refused_with_the_way_out(path: Path):
    """Rows of a newer version may hold values that this version would misread; they are left alone."""
    grown(path, 3)
    changed(path, NEWER)
    before = rows_of(path)

    with pytest.raises(LogNewer, match="abridged log rebuild"), opened(path):
        pass

    assert rows_of(path) == before
    written_anew(path)
    with opened(path) as (_, table, rebuild):
        rebuild()
    with opened(path) as (_, table, rebuild):
        assert len(table.page(ListQuery("default", 10))) == 3


def test_a_table_of_this_version_with_other_columns_is_damaged(path: Path):
    """Rows are read by place."""
    grown(path, 1)
    changed(path, "ALTER TABLE conversations RENAME COLUMN ratio TO ration")

    with pytest.raises(LogCorrupt, match="not as it was made"), opened(path):
        pass


def test_what_the_old_table_knows_of_missing_events_is_not_forgotten(path: Path):
    """A log that lost its end is refused, and not given a table that says so too."""
    grown(path, 3)
    changed(path, OLDER, "DELETE FROM events WHERE stream = 3", "DELETE FROM streams WHERE id = 3")

    with pytest.raises(LogCorrupt, match="up to position 6"), opened(path):
        pass


def test_a_conversation_that_cannot_be_read_is_left_out_and_tried_again(path: Path):
    """The others are served; it is refused by itself, and the list of its namespace says that one is missing."""
    grown(path, 3)
    changed(path, OLDER, "UPDATE events SET payload = X'00' WHERE stream = 2 AND version = 2")
    left_out: list[str] = []

    with opened(path) as (_, table, rebuild):
        report = RebuildReport(left_out=lambda stream, _: left_out.append(stream.name))
        assert rebuild(report) == (2, 4, 1)
        assert left_out == ["c000001"]
        assert table.row(StreamId("default", "c000000")) is not None
        with pytest.raises(LogCorrupt, match="could not be read"):
            table.row(StreamId("default", "c000001"))
        with pytest.raises(LogCorrupt, match="3 conversations are in the log and 2"):
            table.page(ListQuery("default", 10))

    with opened(path) as (_, table, rebuild):
        assert rebuild.is_due


def test_a_conversation_whose_name_the_index_has_lost_opens_no_second_stream(path: Path):
    """Streams are those of their table; one that cannot be found by its name is refused as long as that lasts."""
    grown(path, 3)
    changed(path, OLDER)
    _flipped(path, index="sqlite_autoindex_streams_1", entry=b"c000001")

    with opened(path) as (_, table, rebuild):
        assert rebuild().left_out
        with pytest.raises(LogCorrupt, match="could not be read"):
            table.row(StreamId("default", "c000001"))


def test_a_conversation_whose_repeats_would_be_taken_for_new_is_left_out(path: Path):
    """The index of event ids is read for each stream: one that has lost an id would let a message be written twice."""
    grown(path, 3)
    changed(path, OLDER)
    _flipped(path, index="sqlite_autoindex_events_2", entry=b"1".rjust(16))

    with opened(path) as (_, _, rebuild):
        assert rebuild().left_out == 1


def test_a_damaged_position_does_not_keep_an_operator_from_making_the_table_again(path: Path):
    """A row whose seal does not hold knows of no missing events."""
    grown(path, 3)
    before = rows_of(path)
    changed(path, f"UPDATE conversations SET position = {1 << 40} WHERE id = 'c000001'")

    written_anew(path)
    with opened(path) as (_, _, rebuild):
        rebuild()

    assert rows_of(path) == before


@pytest.mark.parametrize(
    "hidden",
    [
        "DELETE FROM events WHERE stream = 2 AND version = 2",
        "INSERT INTO streams VALUES (9, 'default', 'ghost')",
        "INSERT INTO streams VALUES (-9, 'default', 'unreached')",
    ],
)
def test_a_stream_that_ends_too_early_is_no_shorter_conversation(path: Path, hidden: str):
    """All positions of the log are found in its streams, or the table is not taken for whole."""
    grown(path, 3)
    changed(path, OLDER, "DROP TABLE conversations", "PRAGMA foreign_keys = 0", hidden)

    with opened(path) as (_, _, rebuild):
        if "ghost" in hidden:
            assert rebuild().left_out == 1
        else:
            found = 6 if "unreached" in hidden else 5
            with pytest.raises(LogCorrupt, match=f"of 6 events {found} are found in 3 streams"):
                rebuild()
            assert rebuild.is_due


def test_memory_does_not_grow_with_the_number_of_conversations(tmp_path: Path):
    """One conversation, a batch and a page of names at a time."""
    peaks = []
    for count in (SOME, 2 * SOME):
        path = grown(tmp_path / f"{count}.db", count)
        changed(path, OLDER)
        with opened(path) as (_, _, rebuild):
            tracemalloc.start()
            rebuild()
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    assert peaks[1] < 1.4 * peaks[0]


def test_the_hooks_owner_cannot_write_into_a_log_that_has_stopped(path: Path):
    """The log has stopped after its close, or after a statement that the database refuses."""
    grown(path, 1)
    with opened(path) as (log, *_):
        with pytest.raises(sqlite3.IntegrityError):
            log.write(lambda connection: connection.execute("INSERT INTO log SELECT * FROM log"))
        log.close()
        with pytest.raises(LogClosed):
            log.write(lambda _: None)


def _flipped(path: Path, *, index: str, entry: bytes) -> None:
    """Flip a bit at the beginning of an entry of an index."""
    ((root,),) = asked(path, "SELECT rootpage FROM sqlite_schema WHERE name = ?", index)
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(entry, (root - 1) * 4_096)] ^= 1
    path.write_bytes(damaged)


def _nothing() -> Projected:
    return Projected(initial_state(), [])
