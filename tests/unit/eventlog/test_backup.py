"""A copy of a log's file that takes several steps, between which the log goes on, and others want its place."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from abridged.eventlog.errors import LogLocked, LogUnsafe
from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append, EventLog
from abridged.eventlog.sqlite.backup import PAGES_AT_ONCE, Copying, backed_up, restored
from abridged.eventlog.sqlite.copy import copied as made_by_lines
from abridged.eventlog.sqlite.log import SqliteEventLog
from tests.support.patience import PATIENCE_S

PAYLOAD_BYTES = 500_000
STEPS = 3


def noted(log: EventLog, count: int, size: int) -> None:
    """Append events of the given size."""
    for _ in range(count):
        event = NewEvent(os.urandom(16), "noted", os.urandom(size))
        log.submit(Append(StreamId("default", "c"), [event])).result(PATIENCE_S)


def test_commits_between_two_steps_are_not_in_the_copy_and_do_not_begin_it_again(tmp_path: Path) -> None:
    """The copy is of the moment at which it began, and ends after as many steps as that has pages."""
    steps: list[tuple[int, int]] = []
    with closing(SqliteEventLog.open(tmp_path / "a.db", clock_us=lambda: time.time_ns() // 1_000)) as log:
        noted(log, STEPS * PAGES_AT_ONCE * 4_096 // PAYLOAD_BYTES, PAYLOAD_BYTES)
        before = log.head()

        def copied(done: int, total: int) -> None:
            noted(log, 1, 10)
            steps.append((done, total))
            assert len(steps) <= 2 * STEPS, "the copy begins again after every commit"

        backed_up(tmp_path / "a.db", tmp_path / "b.db", Copying(lambda _: None, copied))
        assert log.head() == before + len(steps)

    assert len(steps) >= STEPS
    assert steps == sorted(steps)
    assert {total for _, total in steps} == {steps[-1][0]}
    with closing(sqlite3.connect(tmp_path / "b.db")) as copy:
        assert copy.execute("SELECT count(*), max(position) FROM events").fetchall() == [(before, before)]
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of one event."""
    with closing(SqliteEventLog.open(tmp_path / "a.db", clock_us=lambda: time.time_ns() // 1_000)) as opened:
        noted(opened, 1, 10)
    return tmp_path / "a.db"


def unreported(done: int, total: int) -> None:
    """Report nothing."""


def test_a_file_that_comes_during_a_backup_is_not_replaced(tmp_path: Path, log: Path) -> None:
    """The file has its contents afterwards, and the copy is gone."""
    to = tmp_path / "b.db"

    def check(_: Path) -> None:
        to.write_bytes(b"precious")

    with pytest.raises(FileExistsError, match=f"there is a file {to}"):
        backed_up(log, to, Copying(check, unreported))

    assert to.read_bytes() == b"precious"
    assert not (tmp_path / "b.db.new").exists()


def test_a_log_that_is_set_aside_during_a_restore_is_not_replaced(tmp_path: Path, log: Path) -> None:
    """The restore is refused, and the log in its place stays."""
    backed_up(log, tmp_path / "b.db", Copying(lambda _: None, unreported))
    before, kept = log.read_bytes(), tmp_path / "a.db.replaced"

    def check(_: Path) -> None:
        kept.write_bytes(b"precious")

    with pytest.raises(FileExistsError, match="a log that was replaced before"):
        restored(log, tmp_path / "b.db", Copying(check, unreported), replaces=True)

    assert (kept.read_bytes(), log.read_bytes()) == (b"precious", before)


def log_id_in(path: Path) -> str:
    """The id of a log whose file is whole."""
    with closing(sqlite3.connect(path)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        ((log_id,),) = copy.execute("SELECT log_id FROM log").fetchall()
        return str(log_id)


def test_an_import_to_the_place_of_a_backup_is_refused(tmp_path: Path, log: Path) -> None:
    """The backup goes on with its own file."""
    to, checked = tmp_path / "b.db", []

    def check(new: Path) -> None:
        with pytest.raises(LogLocked, match="another process makes the copy"):
            made_by_lines(to, "a" * 32, lambda new: noted(new, 1, 10), lambda _: None)
        checked.append(log_id_in(new))

    backed_up(log, to, Copying(check, unreported))

    assert [log_id_in(to)] == [log_id_in(log)] == checked


def test_a_backup_to_the_place_of_an_import_is_refused(tmp_path: Path, log: Path) -> None:
    """The import goes on with its own file."""
    to = tmp_path / "b.db"

    def fill(new: EventLog) -> None:
        with pytest.raises(LogLocked, match="another process makes the copy"):
            backed_up(log, to, Copying(lambda _: None, unreported))
        noted(new, 1, 10)

    made_by_lines(to, "a" * 32, fill, lambda _: None)

    assert log_id_in(to) == "a" * 32


def test_an_import_takes_over_what_a_killed_one_has_left(tmp_path: Path, log: Path) -> None:
    """A killed import leaves its file and the write-ahead log of that."""
    for name in ("b.db.new", "b.db.new-wal"):
        (tmp_path / name).write_bytes(log.read_bytes())
    (tmp_path / "b.db.new-making").touch()

    made_by_lines(tmp_path / "b.db", "a" * 32, lambda new: noted(new, 1, 10), lambda _: None)

    assert sorted(path.name for path in tmp_path.iterdir() if "b.db" in path.name) == ["b.db", "b.db.lock"]


@pytest.mark.parametrize("size", [0, 5_000, None], ids=["empty", "half", "whole"])
def test_a_start_removes_the_copy_that_a_killed_process_has_left(tmp_path: Path, log: Path, size: int | None) -> None:
    """An erasure would not reach its text; the write-ahead log and the lock of one that was opened go with it."""
    new = tmp_path / "a.db.new"
    new.write_bytes(log.read_bytes()[:size])
    (tmp_path / "a.db.new-making").touch()
    if size is None:
        with closing(sqlite3.connect(new)) as copy:
            copy.execute("PRAGMA journal_mode = wal")
        (tmp_path / "a.db.new.lock").touch()

    with new.open("rb") as made:
        fcntl.flock(made, fcntl.LOCK_EX)
        assert started(log) == ["leftover_copy"]
    assert started(log) == []

    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.db", "a.db.lock"]


def test_what_nobody_was_making_stays_where_copies_are_made(tmp_path: Path, log: Path) -> None:
    """A file of that name may be the only copy of something: neither a start nor a copy takes its place."""
    new = tmp_path / "a.db.new"
    for content in (b"precious", log.read_bytes(), _database(tmp_path / "other.db")):
        new.write_bytes(content)

        assert started(log) == ["leftover_copy"]
        with pytest.raises(LogUnsafe, match="no process was making it"):
            restored(log, log, Copying(lambda _: None, unreported), replaces=True)

        assert new.read_bytes() == content


def _database(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE notes (note TEXT)")
        other.commit()
    return path.read_bytes()


def started(log: Path) -> list[str]:
    """The codes of what a start says of leftovers."""
    with closing(SqliteEventLog.open(log, clock_us=lambda: 1)) as opened:
        assert opened.head() == 1
        return [notice.code for notice in opened.notices if notice.code != "sqlite_wal_reset"]


def test_a_backup_is_not_made_where_a_start_would_remove_it(tmp_path: Path, log: Path) -> None:
    """The name is that of copies in the making."""
    with pytest.raises(LogUnsafe, match="another name"):
        backed_up(log, tmp_path / "a.db.new", Copying(lambda _: None, unreported))


def test_a_backup_with_two_names_is_not_written_again(tmp_path: Path, log: Path) -> None:
    """A process that was killed between giving the one and taking the other leaves both."""
    (tmp_path / "b.db.new").write_bytes(b"precious")
    (tmp_path / "moved.db").hardlink_to(tmp_path / "b.db.new")

    backed_up(log, tmp_path / "b.db", Copying(lambda _: None, unreported))

    assert (tmp_path / "moved.db").read_bytes() == b"precious"
    assert not (tmp_path / "b.db.new").exists()
