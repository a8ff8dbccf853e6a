"""The SQLite part of a log: settings, files, locks, full disks, damaged rows, the size of the write-ahead log."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from abridged.eventlog.chain import HASH_BYTES, SEAL_BYTES, commit_to, envelope
from abridged.eventlog.errors import (
    LogClosed,
    LogCorrupt,
    LogFailed,
    LogForeign,
    LogForked,
    LogFull,
    LogGone,
    LogLocked,
    LogUnavailable,
    LogUnsafe,
)
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import EventFilter
from abridged.eventlog.sqlite.connection import READERS_MAX, readers_of, writer_of
from abridged.eventlog.sqlite.database import has_tables
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.eventlog.sqlite.sql import select_stream, select_window
from abridged.eventlog.sqlite.writer import STREAMS_KEPT_MAX, WAL_BYTES_MAX
from tests.support.event_logs import A, B, Clock, append, event, verify_stream
from tests.support.patience import PATIENCE_S


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.db"


@pytest.fixture
def log(path):
    opened = SqliteEventLog.open(path, clock_us=Clock())
    yield opened
    opened.close()


def _setting(connection, name: str):
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_schema")]


def _outside(path: Path, statement: str, *parameters) -> None:
    """Change the file with a connection of its own, as damage or another program would."""
    connection = sqlite3.connect(path)
    with connection:
        changed = connection.execute(statement, parameters).rowcount
    connection.close()
    assert changed == 1


def test_the_writing_connection_flushes_every_commit(path):
    """Acknowledged means on disk: write-ahead log and FULL, on the connection that commits, and read back."""
    with closing(writer_of(path)) as connection:
        found = {
            name: _setting(connection, name)
            for name in ("journal_mode", "synchronous", "fullfsync", "checkpoint_fullfsync", "mmap_size")
        }

    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "fullfsync": 1,
        "checkpoint_fullfsync": 1,
        "mmap_size": 0,
    }


def test_the_connection_inside_the_log_is_the_flushing_one(path):
    """The hook runs on the writer's connection, so that it can tell."""
    found: list[object] = []

    def hook(connection, committed) -> None:
        found.extend(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode"))

    log = SqliteEventLog.open(path, clock_us=Clock(), hook=hook)
    log.submit(append(event(1))).result()
    log.close()

    assert found == [2, "wal"]


def test_readers_can_neither_write_nor_checkpoint(log, path):
    """One connection writes and checkpoints, which keeps older SQLite libraries safe."""
    with closing(readers_of(path)) as readers, readers.lent() as connection:
        assert _setting(connection, "wal_autocheckpoint") == 0
        assert _setting(connection, "query_only") == 1
        with pytest.raises(Exception, match="readonly"):
            connection.execute("DELETE FROM events")


def test_readers_keep_to_the_file_that_was_opened(log, path):
    """However many read at once, none opens by its name a file that was put in the log's place."""
    log.submit(append(event(1))).result()
    log._writer.checkpoint()
    other = SqliteEventLog.open(path.with_name("other.db"), clock_us=Clock())
    other.close()
    path.with_name("other.db").replace(path)
    together = threading.Barrier(READERS_MAX, timeout=PATIENCE_S)

    def events(connection) -> int:
        together.wait()
        found: int = connection.execute("SELECT count(*) FROM events").fetchone()[0]
        return found

    with ThreadPoolExecutor(READERS_MAX) as pool:
        found = [pool.submit(log.read, events) for _ in range(READERS_MAX)]

    assert [read.result() for read in found] == [1] * READERS_MAX


def test_a_log_on_a_database_without_a_write_ahead_log_is_refused(tmp_path):
    """A setting that SQLite does not take over is an error, not a weaker promise."""
    with pytest.raises(LogUnsafe, match="journal_mode"):
        writer_of(Path(":memory:"))


def test_files_are_readable_to_their_owner_alone(log, path):
    """Files with text have mode 0600 from their first byte, side files too."""
    log.submit(append(event(1))).result()

    assert {each.name: _mode(each) for each in path.parent.iterdir()} == dict.fromkeys(
        ("log.db", "log.db-wal", "log.db-shm", "log.db.lock"), 0o600
    )


def test_an_existing_file_is_closed_to_others(path):
    """A file that was made too open is tightened."""
    path.touch(mode=0o644)
    path.chmod(0o644)

    SqliteEventLog.open(path, clock_us=Clock()).close()

    assert _mode(path) == 0o600


def test_a_second_owner_is_refused(log, path):
    """One process owns a log."""
    with pytest.raises(LogLocked):
        SqliteEventLog.open(path, clock_us=Clock())

    assert log.submit(append(event(1))).result().first_position == 1


def test_a_closed_log_can_be_owned_again(path):
    """Closing releases the lock, also after a refused attempt."""
    SqliteEventLog.open(path, clock_us=Clock()).close()

    SqliteEventLog.open(path, clock_us=Clock()).close()


def test_a_failed_open_releases_the_lock(path):
    """A file that could not be opened has no owner."""
    path.write_bytes(b"this is not a database, though it is long enough to be one" * 100)

    for _ in range(2):
        with pytest.raises(LogCorrupt):
            SqliteEventLog.open(path, clock_us=Clock())


@pytest.mark.parametrize("journal_mode", ["delete", "wal"])
@pytest.mark.parametrize("open_elsewhere", [True, False])
def test_another_programs_database_is_not_taken_over(path, journal_mode, open_elsewhere):
    """The database may be in use or not: no table, no mode, no lock file, and its write-ahead log as it was."""
    with closing(sqlite3.connect(path)) as app:
        app.execute(f"PRAGMA journal_mode = {journal_mode}")
        app.execute("CREATE TABLE users (name)")
        if not open_elsewhere:
            app.close()
        path.chmod(0o644)
        before = {
            file.name: (_mode(file), file.read_bytes()) for file in path.parent.iterdir() if "-shm" not in file.name
        }

        with pytest.raises(LogForeign, match="database of something else"):
            SqliteEventLog.open(path, clock_us=Clock())

        assert before == {
            file.name: (_mode(file), file.read_bytes()) for file in path.parent.iterdir() if "-shm" not in file.name
        }
        assert open_elsewhere or not path.with_name(f"{path.name}-shm").exists()
    assert _tables(path) == ["users"]


def test_a_database_that_gets_its_tables_behind_the_look_is_not_taken_over(path):
    """The transaction that would make the log's tables looks again."""
    with closing(sqlite3.connect(path)) as app:
        app.execute("CREATE TABLE users (name)")
    with closing(writer_of(path)) as connection, pytest.raises(LogForeign):
        has_tables(connection, path)

    assert _tables(path) == ["users"]


def test_a_missing_folder_is_said_to_be_unavailable(tmp_path):
    """An error of the operating system is an error of the log."""
    with pytest.raises(LogUnavailable, match="there is no folder"):
        SqliteEventLog.open(tmp_path / "nowhere" / "log.db", clock_us=Clock())


def test_a_file_of_a_newer_schema_is_refused(path):
    """An older program never writes into a schema that it does not understand."""
    SqliteEventLog.open(path, clock_us=Clock()).close()
    _outside(path, "UPDATE eventlog_revision SET version_num = '9999'")

    with pytest.raises(LogUnsafe, match="newer"):
        SqliteEventLog.open(path, clock_us=Clock())


def test_closing_leaves_one_file_with_everything_in_it(path):
    """The database file is complete without its write-ahead log after a clean close."""
    log = SqliteEventLog.open(path, clock_us=Clock())
    log.submit(append(*(event(number) for number in range(50)))).result()

    log.close()

    assert not path.with_name("log.db-wal").exists()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (50,)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_closing_empties_the_write_ahead_log_though_others_have_the_file_open(path):
    """A backup program that looks on does not keep the log in two files."""
    log = SqliteEventLog.open(path, clock_us=Clock())
    log.submit(append(event(1))).result()
    onlooker = sqlite3.connect(path)
    assert onlooker.execute("SELECT count(*) FROM events").fetchone() == (1,)

    log.close()

    assert path.with_name("log.db-wal").stat().st_size == 0
    onlooker.close()


def test_more_streams_than_are_remembered_go_on_where_they_were(log):
    """The writer's memory of streams is bounded, and forgetting changes no answer."""
    futures = [
        log.submit(append(event(1), to=StreamId("many", str(number)))) for number in range(STREAMS_KEPT_MAX + 50)
    ]
    assert futures[-1].result().first_position == STREAMS_KEPT_MAX + 50

    again = log.submit(append(event(2), to=StreamId("many", "0"))).result()

    assert again.last_version == 2
    assert len(log._writer._tips) == STREAMS_KEPT_MAX
    assert verify_stream(log, StreamId("many", "0")).version == 2


def _use_in_child(log: SqliteEventLog, answers) -> None:
    answers.put(type(log.submit(append(event(1))).exception(PATIENCE_S)))
    try:
        log.head()
    except LogClosed as error:
        answers.put(type(error))
    log.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_refused(log, path):
    """A connection must not cross a fork; the parent is not harmed by a child that tries, nor by its close."""
    log.submit(append(event(0))).result()
    wal_bytes = path.with_name("log.db-wal").stat().st_size
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_use_in_child, args=(log, answers))

    child.start()
    child.join(PATIENCE_S)

    assert child.exitcode == 0
    assert [answers.get(), answers.get()] == [LogForked, LogForked]
    assert path.with_name("log.db-wal").stat().st_size == wal_bytes > 0
    assert log.submit(append(event(1))).result().first_position == 2


def test_a_full_disk_is_said_and_passes_by_itself(path):
    """Appends fail as LogFull while there is no room, nothing is half written, and the log goes on when there is."""
    limit: list[str] = []

    def hook(connection, committed) -> None:
        for statement in limit:
            connection.execute(statement)
        limit.clear()

    log = SqliteEventLog.open(path, clock_us=Clock(), hook=hook)
    pages = log.read(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    limit.append(f"PRAGMA max_page_count = {pages + 40}")
    written = 0
    outcome = None
    while outcome is None:
        outcome = log.submit(append(event(written, b"x" * 20_000))).exception()
        written += outcome is None

    assert isinstance(outcome, LogFull)
    assert log.head() == written == len(log.read_all())
    again = log.submit(append(event(written, b"x" * 20_000))).exception()
    assert isinstance(again, LogFull)

    limit.append("PRAGMA max_page_count = 1000000")
    assert log.submit(append(event(9_999, b""))).exception() is None
    assert log.submit(append(event(written, b"x" * 20_000))).result().first_position == written + 2
    assert verify_stream(log, A).version == written + 2
    log.close()


def test_a_failing_disk_stops_the_log_and_says_so_once(path):
    """The log acknowledges nothing after an I/O error, whatever the next attempt would say."""
    heard: list[Exception] = []
    broken = [True]
    queued = threading.Event()

    def hook(connection, committed) -> None:
        assert queued.wait(PATIENCE_S)
        if broken:
            broken.clear()
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
            raise error

    log = SqliteEventLog.open(path, clock_us=Clock(), hook=hook, on_fatal=heard.append)

    futures = [log.submit(append(event(number))) for number in range(2_000)]
    queued.set()
    outcomes = {type(future.exception(PATIENCE_S)) for future in futures}
    later = log.submit(append(event(9_999))).exception(PATIENCE_S)

    assert (outcomes, type(later)) == ({LogFailed}, LogFailed)
    assert [type(error) for error in heard] == [LogFailed]
    log.close()


def test_a_file_that_goes_while_its_commit_is_flushed_acknowledges_nothing(path):
    """The log looks at the file after the flush too: a look before it proves nothing at the time of the answer."""

    def prepare(connection) -> None:
        connection.set_trace_callback(lambda statement: path.unlink() if statement == "COMMIT" and armed else None)

    armed: list[bool] = []
    log = SqliteEventLog.open(path, clock_us=Clock(), prepare=prepare)
    armed.append(True)

    assert isinstance(log.submit(append(event(1))).exception(PATIENCE_S), LogGone)
    log.close()


def test_a_bug_in_the_writer_answers_everybody_and_stops_the_log(path):
    """Nobody waits for ever for a writer that is gone."""
    heard: list[Exception] = []

    def clock() -> int:
        if heard or threading.current_thread().name == "eventlog-writer":
            raise ZeroDivisionError
        return 1

    log = SqliteEventLog.open(path, clock_us=clock, on_fatal=heard.append)

    futures = [log.submit(append(event(number))) for number in range(20)]

    assert {type(future.exception(PATIENCE_S)) for future in futures} == {LogFailed}
    assert [type(error) for error in heard] == [ZeroDivisionError]
    log.close()


def test_an_append_that_meets_a_foreign_writer_is_unavailable(path):
    """A busy file is retryable. The wait is SQLite's own, cut short here by the hook."""

    def hook(connection, committed) -> None:
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = sqlite3.SQLITE_BUSY
        error.sqlite_errorname = "SQLITE_BUSY"
        raise error

    log = SqliteEventLog.open(path, clock_us=Clock(), hook=hook)

    assert isinstance(log.submit(append(event(1))).exception(), LogUnavailable)
    assert log.head() == 0
    log.close()


@pytest.mark.parametrize(
    ("column", "damage"),
    [
        ("payload", b"forged"),
        ("salt", b"0123456789abcdef"),
        ("commitment", b"0" * 32),
        ("event_id", b"0123456789abcdef"),
        ("type", 77),
        ("time_us", 1),
        ("schema_version", 9),
        ("trace_context", "forged"),
        ("version", 77),
        ("position", 77),
    ],
)
def test_a_changed_row_is_never_served(log, path, column, damage):
    """A read of an event with any part changed is LogCorrupt, and the event's neighbours are still served."""
    log.submit(append(event(1), event(2), event(3))).result()

    _outside(path, f"UPDATE events SET {column} = ? WHERE position = 2", damage)

    for read in (log.read_all, lambda: log.read_stream(A), log.scan, lambda: log.read_all(backward=True)):
        with pytest.raises(LogCorrupt):
            read()
    assert [recorded.position for recorded in log.read_all(limit=1)] == [1]


@pytest.mark.parametrize("is_blanked", [False, True])
@pytest.mark.parametrize("size", [1, SEAL_BYTES - 1, SEAL_BYTES + 1, HASH_BYTES - 1, HASH_BYTES + 1])
def test_a_commitment_of_another_size_binds_nothing(log, path, size, is_blanked):
    """A commitment of a single byte would fit one changed payload in 256."""
    log.submit(append(event(1))).result()
    (found,) = log.read_sealed(A)
    fitting = commit_to(found.salt, envelope(found.event), found.event.payload, size)

    if is_blanked:
        _outside(path, "UPDATE events SET salt = ?", found.salt + fitting)
    else:
        _outside(path, "UPDATE events SET commitment = ?", fitting)

    for read in (log.read_all, lambda: log.read_stream(A), log.scan, lambda: verify_stream(log, A)):
        with pytest.raises(LogCorrupt):
            read()


def test_a_renamed_stream_is_never_served(log, path):
    """The seal covers the stream to which an event belongs."""
    log.submit(append(event(1))).result()

    _outside(path, "UPDATE streams SET name = 'b' WHERE name = 'a'")

    with pytest.raises(LogCorrupt):
        log.read_stream(B)


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_in_a_row_is_never_served(log, path, seed):
    """One bit anywhere in a row's sealed bytes is found when the row is read or when its stream is walked."""
    log.submit(append(event(1), event(2, b"payload" * 30), event(3))).result()
    column = ("payload", "salt", "commitment", "event_id", "chain")[seed % 5]
    connection = sqlite3.connect(path)
    (value,) = connection.execute(f"SELECT {column} FROM events WHERE position = 2").fetchone()
    connection.close()
    flipped = bytearray(value)
    flipped[seed * 7 % len(flipped)] ^= 1 << seed % 8

    _outside(path, f"UPDATE events SET {column} = ? WHERE position = 2", bytes(flipped))

    with pytest.raises(LogCorrupt):
        verify_stream(log, A)


def test_a_removed_event_breaks_its_stream(log, path):
    """Leaving an event out, at the start or inside, is found by walking the stream."""
    log.submit(append(event(1), event(2), event(3))).result()

    _outside(path, "DELETE FROM events WHERE position = 2")

    with pytest.raises(LogCorrupt, match="version 2 is missing"):
        verify_stream(log, A)


@pytest.mark.parametrize(
    "read",
    [
        lambda log: log.read_stream(A),
        lambda log: log.read_stream(A, backward=True),
        lambda log: log.read_all(),
        lambda log: log.read_all(backward=True),
        lambda log: log.scan(),
        lambda log: log.scan(backward=True),
        lambda log: log.scan(matching=EventFilter(namespace=A.namespace)),
        lambda log: log.scan(matching=EventFilter(stream=A, types=frozenset({"never"}))),
    ],
)
def test_a_page_that_lacks_an_event_is_refused(log, path, read):
    """Reads of both directions and of every kind refuse it: a shorter answer would be a wrong one."""
    log.submit(append(event(1), event(2), event(3))).result()

    _outside(path, "DELETE FROM events WHERE position = 2")

    with pytest.raises(LogCorrupt):
        read(log)


def test_an_event_that_damage_hides_from_a_filter_is_refused(log, path):
    """The log looks at the whole event before a filter passes it over."""
    log.submit(append(event(1), event(2), event(3))).result()
    matching = EventFilter(types=frozenset({log.read_all()[0].type}))

    _outside(path, "INSERT INTO types VALUES (77, 'other')")
    _outside(path, "UPDATE events SET type = 77 WHERE position = 2")

    with pytest.raises(LogCorrupt):
        log.scan(matching=matching)


@pytest.mark.parametrize(
    ("table", "damage"),
    [("events", "UPDATE bare SET stream = 2 WHERE position = 1"), ("streams", "UPDATE bare SET namespace = 'other'")],
)
def test_damage_moves_no_event_out_of_its_namespace(log, path, table, damage):
    """Table and index both have to say that it is another's; else it is read, and its seal tells."""
    log.submit(append(event(1), event(2))).result()
    log.submit(append(event(3), to=StreamId("other", "b"))).result()

    _in_table_alone(path, table, damage)

    with pytest.raises(LogCorrupt):
        log.scan(matching=EventFilter(namespace=A.namespace))


@pytest.mark.parametrize("table", ["streams", "types"])
@pytest.mark.parametrize("matching", [EventFilter(), EventFilter(namespace=A.namespace)])
def test_an_event_whose_names_are_lost_is_refused(log, path, table, matching):
    """The log writes no number without its name, so the reader refuses such a row."""
    log.submit(append(event(1), event(2))).result()

    _in_table_alone(path, table, "DELETE FROM bare")

    with pytest.raises(LogCorrupt, match="position 1 is not what was written"):
        log.scan(matching=matching)


@pytest.mark.parametrize(
    ("table", "text", "damage"),
    [
        ("events", b"(type) REFERENCES types", b"(type) REFERENCES tipes"),
        ("events", b"REFERENCES types (id)", b"REFERENCES types (ie)"),
        ("requests", b"(stream) REFERENCES streams (id)\n)\nWITHOUT", b"(stream) REFERENCES stream3 (id)\n)\nWITHOUT"),
        ("events", b"CHECK ((salt", b"CHECK\xa0((salt"),
        ("events", b"(salt IS NULL) = (payload", b"(salt IS NULL) < (payload"),
    ],
)
def test_a_table_whose_text_would_keep_rows_from_being_written_is_refused_at_the_start(path, table, text, damage):
    """SQLite reads it only to write a row, so every read would go on, and every append fail."""
    log = SqliteEventLog.open(path, clock_us=Clock())
    log.submit(append(event(1))).result()
    log.close()
    whole = path.read_bytes()
    assert whole.count(text) == 1
    damaged = whole.replace(text, damage)
    path.write_bytes(damaged)

    with pytest.raises(LogCorrupt, match=f"the table {table} is not as it was made|text is not UTF-8"):
        SqliteEventLog.open(path, clock_us=Clock())

    assert path.read_bytes() == damaged


def test_namespaces_that_share_a_log_are_told_apart_whichever_is_read_first(log):
    """Reading begins as if there were one namespace."""
    log.submit(append(event(1), event(2))).result()
    whole = EventFilter(namespace=A.namespace)
    assert [each.position for each in log.scan(matching=whole).events] == [1, 2]

    log.submit(append(event(3), to=StreamId("other", "b"))).result()
    log.submit(append(event(4))).result()

    assert [each.position for each in log.scan(matching=whole).events] == [1, 2, 4]
    assert [each.position for each in log.scan(matching=EventFilter(namespace="other")).events] == [3]


def _in_table_alone(path: Path, table: str, statement: str) -> None:
    """Change a table and none of its indexes, as a damaged page does: `statement` names it `bare`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        columns[0] += " INTEGER PRIMARY KEY"
        bare = f"CREATE TABLE bare ({', '.join(columns)})"
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("INSERT INTO sqlite_schema VALUES ('table', 'bare', 'bare', ?, ?)", (root, bare))
        connection.execute("PRAGMA writable_schema = RESET")
        assert connection.execute(statement).rowcount
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'bare'")


def test_the_write_ahead_log_stays_bounded_under_readers(log, path):
    """Readers in short snapshots do not let the write-ahead log grow."""
    done = threading.Event()
    largest = [0]

    def read() -> None:
        while not done.is_set():
            log.read_all(limit=50)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    payload = os.urandom(100_000)
    for number in range(700):
        log.submit(append(event(number, payload))).result()
        largest[0] = max(largest[0], path.with_name("log.db-wal").stat().st_size)
    done.set()
    for reader in readers:
        reader.join()

    assert largest[0] < WAL_BYTES_MAX + (8 << 20)


def test_a_held_snapshot_does_not_stop_appends_and_its_end_lets_the_log_shrink(log, path):
    """A reader that stays costs space and nothing else, and only while it stays."""
    wal = path.with_name("log.db-wal")
    payload = os.urandom(900_000)

    def hold(connection) -> int:
        connection.execute("SELECT count(*) FROM events").fetchone()
        for number in range(80):
            log.submit(append(event(number, payload))).result()
        size: int = wal.stat().st_size
        return size

    grown = log.read(hold)
    for number in range(80, 100):
        log.submit(append(event(number, payload))).result()

    assert grown > WAL_BYTES_MAX
    assert wal.stat().st_size < WAL_BYTES_MAX
    assert log.head() == 100


def test_what_the_hook_writes_is_committed_with_the_events(path):
    """The hook's owner makes its own tables and reads them in a snapshot of its own."""

    def prepare(connection) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS seen (position INTEGER PRIMARY KEY)")

    def hook(connection, committed) -> None:
        for each in committed:
            for recorded in each.events:
                connection.execute("INSERT INTO seen VALUES (?)", (recorded.position,))
            if each.projected == "refuse":
                raise RuntimeError("refused")

    for _ in range(2):
        log = SqliteEventLog.open(path, clock_us=Clock(), hook=hook, prepare=prepare)
        first = log.head()
        log.submit(append(event(first), event(first + 1))).result()
        with pytest.raises(RuntimeError):
            log.submit(append(event(99), projected="refuse")).result()
        seen = log.read(lambda connection: connection.execute("SELECT count(*) FROM seen").fetchone()[0])
        assert seen == log.head()
        log.close()


def test_a_mistake_in_the_hooks_sql_fails_only_its_append(path):
    """An error that is the program's own surfaces as it is and does not stop the log."""
    wrong = [True]

    def hook(connection, committed) -> None:
        if wrong:
            wrong.clear()
            connection.execute("INSERT INTO no_such_table VALUES (1)")

    log = SqliteEventLog.open(path, clock_us=Clock(), hook=hook)

    with pytest.raises(Exception, match="no_such_table"):
        log.submit(append(event(1))).result()
    assert log.submit(append(event(1))).result().first_position == 1
    log.close()


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (select_stream("e.version > ?", "e.version"), "uq_events_stream_version|autoindex_events"),
        (select_stream("e.version < ?", "e.version DESC"), "autoindex_events"),
        (select_window(backward=False, of_namespace=False), "PRIMARY KEY"),
        (select_window(backward=True, of_namespace=False), "PRIMARY KEY"),
        (select_window(backward=False, of_namespace=True), "PRIMARY KEY"),
        (select_window(backward=True, of_namespace=True), "PRIMARY KEY"),
    ],
)
def test_pages_are_read_by_their_order_and_never_sorted(log, sql, index):
    """The cost of a page depends on the page, not on the log."""
    parameters = ("x",) * (sql.count("?") - 2) + (1, 1)

    plan = log.read(lambda connection: connection.execute("EXPLAIN QUERY PLAN " + sql, parameters).fetchall())

    details = " | ".join(row[3] for row in plan)
    assert any(name in details for name in index.split("|")), details
    assert "SCAN" not in details
    assert "TEMP B-TREE" not in details


def test_a_checkpoint_that_fails_leaves_the_patience_of_writes_as_it_was(log):
    """A disk that is full for a moment must not make later writes give up after a tenth of a second."""
    connection = log._writer._connection
    before = _setting(connection, "busy_timeout")

    def denied(action: int, name: str | None, *_rest: object) -> int:
        is_checkpoint = action == sqlite3.SQLITE_PRAGMA and name == "wal_checkpoint"
        return sqlite3.SQLITE_DENY if is_checkpoint else sqlite3.SQLITE_OK

    connection.set_authorizer(denied)
    assert log._writer.checkpoint() is False
    connection.set_authorizer(None)

    assert _setting(connection, "busy_timeout") == before


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="the system has no locks of open files")
@pytest.mark.parametrize("is_new", [True, False])
def test_another_name_of_the_file_leads_to_no_second_owner(tmp_path, is_new):
    """A hard link has a lock file and a write-ahead log of its own: the appends of one owner would be lost."""
    path, link = tmp_path / "log.db", tmp_path / "other" / "log.db"
    link.parent.mkdir()
    if not is_new:
        SqliteEventLog.open(path, clock_us=Clock()).close()
    with closing(SqliteEventLog.open(path, clock_us=Clock())) as log:
        link.hardlink_to(path)
        before = _locks_of(path)
        with pytest.raises(LogUnsafe, match="another name"):
            SqliteEventLog.open(link, clock_us=Clock())
        assert _locks_of(path) == before
        log.submit(append(event(1))).result()

    with closing(SqliteEventLog.open(link, clock_us=Clock())) as log:
        assert log.head() == 1


def _locks_of(path: Path) -> list[list[str]]:
    """The locks on the file: kind, mode, first and last byte of each."""
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    inode = f":{path.stat().st_ino}"
    return sorted([kind, mode, *ends] for _, kind, _, mode, _, file, *ends in lines if file.endswith(inode))
