"""A log in PostgreSQL bears other processes, a server that fails, and places that are unfit."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.backend import Backend, Opened
from abridged.eventlog.chain import HASH_BYTES, SALT_BYTES
from abridged.eventlog.errors import (
    EventLogError,
    LogCorrupt,
    LogForeign,
    LogFull,
    LogGone,
    LogLocked,
    LogNewer,
    LogUnavailable,
    LogUnsafe,
    WrongExpectedVersion,
)
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import AppendResult, EventLog, RequestKey
from abridged.eventlog.snapshots import StoredSnapshot
from tests.support.event_logs import NOTES, A, B, Clock, Note, append, event, event_id, verify_stream
from tests.support.patience import PATIENCE_S
from tests.support.postgres_server import PostgresServer, schema_url
from tests.support.statement_pooler import naming_pooler

psycopg = pytest.importorskip("psycopg", reason="needs psycopg, of the extra abridged[postgres]")

from abridged.eventlog.postgres.backend import PostgresBackend  # noqa: E402 - skipped without its driver
from abridged.eventlog.postgres.connections import IDLE_MAX_MS, Address  # noqa: E402 - skipped without its driver
from abridged.eventlog.postgres.database import (  # noqa: E402 - skipped without its driver
    OPENING_WAIT_MS,
    prove_exclusion,
)
from abridged.eventlog.postgres.errors import translated  # noqa: E402 - skipped without its driver
from abridged.eventlog.postgres.leases import (  # noqa: E402 - skipped without its driver
    FORGOTTEN_AFTER_S,
    FORGOTTEN_MAX,
    PostgresLeases,
)
from abridged.eventlog.postgres.log import PostgresEventLog  # noqa: E402 - skipped without its driver
from abridged.eventlog.postgres.rows import PostgresRows  # noqa: E402 - skipped without its driver
from abridged.eventlog.postgres.watch import Channel, HeadWatch  # noqa: E402 - skipped without its driver

SECRET = "correct-horse-battery"


class Place:
    """A schema, the logs that are open in it, and a session beside them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: list[EventLog] = []
        self.beside = psycopg.connect(url, autocommit=True)

    def open(self, name: str = "default") -> PostgresEventLog:
        """Open a log as one more process would."""
        backend = PostgresBackend(self.url, name)
        opened = backend.open(backend.rows(NOTES), clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None)
        assert isinstance(opened.log, PostgresEventLog)
        self._opened.append(opened.log)
        return opened.log

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a statement in the session beside the logs."""
        rows: list[tuple[Any, ...]] = self.beside.execute(statement.encode()).fetchall()
        return rows

    def run(self, statement: str) -> None:
        """Run a statement beside the logs."""
        self.beside.execute(statement.encode())

    def close(self) -> None:
        for log in self._opened:
            log.close()
        self.beside.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with closing(Place(schema_url(tmp_path))) as made:
        yield made


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop and configure."""
    server = PostgresServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def alone(own_server: PostgresServer) -> Iterator[Place]:
    """A new database of the server that a test may stop."""
    with psycopg.connect(own_server.url, autocommit=True) as connection:
        connection.execute(b"DROP DATABASE IF EXISTS alone WITH (FORCE)")
        connection.execute(b"CREATE DATABASE alone")
    with closing(Place(own_server.url.replace("/postgres?", "/alone?"))) as made:
        yield made


# Several processes on one log


def test_two_processes_write_one_gapless_log(place: Place):
    """Positions and versions are those of one log, and each stream is one chain."""
    logs = [place.open(), place.open()]

    def write(log: EventLog, writer: int) -> None:
        for number in range(30):
            stream = StreamId("default", str(number % 3))
            log.submit(append(event(1_000 * writer + number), to=stream)).result(PATIENCE_S)

    writers = [threading.Thread(target=write, args=(logs[number % 2], number)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    _wait_for(logs[0], 120)
    assert [each.position for each in logs[0].read_all()] == list(range(1, 121))
    assert [verify_stream(logs[1], StreamId("default", name)).version for name in "012"] == [40, 40, 40]


def test_a_process_hears_of_what_another_commits(place: Place):
    """The head moves, the listener is called, and the namespace's head is the other's."""
    one, other = place.open(), place.open()
    heard: list[int] = []
    done = threading.Event()

    def listen(head: int) -> None:
        heard.append(head)
        if head == 3:
            done.set()

    other.on_commit(listen)
    for number in range(3):
        one.submit(append(event(number))).result(PATIENCE_S)

    assert done.wait(PATIENCE_S)
    assert heard == sorted(set(heard))
    assert (other.head(), other.head_of("default"), len(other.read_all())) == (3, 3, 3)


def test_the_head_of_a_namespace_is_that_of_the_last_commit(place: Place):
    """Whichever process made it, also before this one has heard of it."""
    one, other = place.open(), place.open()
    for number in range(1, 31):
        one.submit(append(event(number))).result(PATIENCE_S)
        assert other.head_of("default") == number


def test_a_notification_wakes_before_the_next_look(place: Place):
    """The notification comes with the commit; a process that loses it hears by the next look."""
    log = place.open()
    heads: queue.Queue[int] = queue.Queue()
    channel = Channel.of(log.number, log.log_id)
    watch = HeadWatch(Address(place.url).connect, 1, channel, heads.put, poll_s=10 * PATIENCE_S)

    assert heads.get(timeout=PATIENCE_S) == 0
    log.submit(append(event(1))).result(PATIENCE_S)
    assert heads.get(timeout=PATIENCE_S) == 1
    watch.stop()
    log.close()
    watch.join()


def test_what_another_process_wrote_is_known(place: Place):
    """Repetitions, request keys and versions are decided by the log, not by the memory of a process."""
    one, other = place.open(), place.open()
    one.submit(append(event(1), request=RequestKey("r", b"body"))).result(PATIENCE_S)

    assert other.submit(append(event(1))).result(PATIENCE_S) == AppendResult(1, 1, 1, already_appended=True)
    assert other.submit(append(event(9), request=RequestKey("r", b"body"))).result(PATIENCE_S).already_appended
    assert isinstance(other.submit(append(event(2), expected=0)).exception(PATIENCE_S), WrongExpectedVersion)
    assert other.submit(append(event(2), expected=1)).result(PATIENCE_S).last_version == 2


# Several logs in one database


def test_two_logs_of_one_database_never_meet(place: Place):
    """Each has its own id, positions, streams and lock: one takes appends while another process holds the other's."""
    logs = {name: place.open(name) for name in ("one", "other")}
    for name, number in (("one", 1), ("other", 2), ("one", 3)):
        with psycopg.connect(place.url) as holder:
            holder.execute("SELECT 1 FROM logs WHERE name <> %s FOR UPDATE", (name,))
            logs[name].submit(append(event(number))).result(PATIENCE_S)

    assert logs["one"].log_id != logs["other"].log_id
    assert [(each.position, each.event_id) for each in logs["one"].read_all()] == [(1, event_id(1)), (2, event_id(3))]
    assert [(each.position, each.event_id) for each in logs["other"].read_all()] == [(1, event_id(2))]
    assert logs["other"].submit(append(event(1))).result(PATIENCE_S)[:3] == (2, 2, 2)
    assert (logs["one"].stream_version(A), logs["other"].stream_version(A), place.open().head()) == (2, 2, 0)


def test_a_commit_to_one_log_wakes_nobody_of_another(place: Place):
    """The watch looks at the head once at its start, and once for the commit to its own."""
    one, other = place.open("one"), place.open("other")
    heads: queue.Queue[int] = queue.Queue()
    channel = Channel.of(other.number, other.log_id)
    watch = HeadWatch(Address(place.url).connect, other.number, channel, heads.put, poll_s=10 * PATIENCE_S)
    assert heads.get(timeout=PATIENCE_S) == 0

    for number in range(5):
        one.submit(append(event(number))).result(PATIENCE_S)
    other.submit(append(event(1))).result(PATIENCE_S)

    assert heads.get(timeout=PATIENCE_S) == 1
    watch.stop()
    other.close()
    watch.join()


def test_logs_that_are_made_at_once_are_several(place: Place):
    """The database may have no tables yet."""
    made: queue.Queue[PostgresEventLog] = queue.Queue()
    names = [f"log-{number}" for number in range(6)]
    making = [threading.Thread(target=lambda name=name: made.put(place.open(name))) for name in names]
    for each in making:
        each.start()
    for each in making:
        each.join()

    assert {log.number for log in made.queue} == set(range(1, 7))
    assert PostgresBackend(place.url).names() == names


def test_a_table_of_which_only_the_type_is_seen_is_being_made(place: Place):
    """The server refuses the second of two tables that are made at once by the table's name or by its type's."""
    place.run("CREATE TYPE eventlog_revision AS ENUM ()")

    with pytest.raises(LogUnavailable, match="other processes are making the log's tables"):
        place.open()
    place.run("DROP TYPE eventlog_revision")
    place.open()


def test_the_names_in_a_database_are_those_of_whole_logs(place: Place):
    """An empty schema has none, and a log counts once its import is done."""
    backend = PostgresBackend(place.url, "other")
    assert backend.names() == []

    place.open("one").close()
    backend.copy("another", lambda _: None, lambda _: _same(backend.names(), ["one"]))
    assert backend.names() == ["one", "other"]
    assert (str(backend).endswith("(log other)"), "log" in str(PostgresBackend("postgresql://db/a"))) == (True, False)


def test_an_import_whose_place_was_taken_writes_nothing_into_the_next(place: Place):
    """Though it is of the same log, and so has the same id, and the same number."""
    backend = PostgresBackend(place.url, "copy")

    def overtaken(log: EventLog) -> None:
        log.submit(append(event(1))).result(PATIENCE_S)
        place.run("UPDATE logs SET name = 'next', key = 'of the next', is_whole = true")
        assert isinstance(log.submit(append(event(2))).exception(PATIENCE_S), LogGone)

    with pytest.raises(LogGone, match="another import"):
        backend.copy("another", overtaken, lambda _: None)
    assert place.ask("SELECT count(*) FROM events") == [(1,)]


def test_leases_that_lapsed_long_ago_are_forgotten_some_at_a_time(place: Place):
    """Leases of work that has ended are forgotten, too; younger ones, and those of another log, stay."""
    log = place.open()
    leases = PostgresLeases(log.number, log.write)
    PostgresLeases(place.open("other").number, log.write).hold({A: 1}, 0.0)
    left = {StreamId("default", str(number)): 1 for number in range(FORGOTTEN_MAX + 1)}
    leases.hold(left, 0.0)
    place.run(f"UPDATE leases SET expires_at = expires_at - interval '{FORGOTTEN_AFTER_S + 1} seconds'")
    leases.hold({A: 5}, 0.0)
    leases.hold({B: 5}, 0.0)
    place.run(
        f"UPDATE leases SET expires_at = expires_at - interval '{FORGOTTEN_AFTER_S / 2} seconds' WHERE name = 'a'"
    )

    leases.drop({})
    assert place.ask(_LEASES) == [(1, FORGOTTEN_MAX + 3), (2, 1)]
    leases.drop({B: 5})
    assert place.ask(_LEASES) == [(1, 2), (2, 1)]
    leases.drop({B: 5})
    assert place.ask(_LEASES) == [(1, 1), (2, 1)]
    assert leases.lapsed([A], 60.0) == {A: 5}


# The server fails


def test_a_connection_that_breaks_is_replaced(alone: Place):
    """The caller between two calls does not notice."""
    log = alone.open()
    log.submit(append(event(1))).result(PATIENCE_S)
    assert len(log.read_all()) == 1

    alone.run(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )

    assert len(log.read_all()) == 1
    assert log.submit(append(event(2))).result(PATIENCE_S).last_position == 2


def test_what_was_acknowledged_outlives_the_server(alone: Place, own_server: PostgresServer):
    """The same process goes on where it was after a crash of the server."""
    log = alone.open()
    log.submit(append(event(1))).result(PATIENCE_S)
    own_server.stop()

    assert isinstance(log.submit(append(event(2))).exception(PATIENCE_S), LogUnavailable)
    with pytest.raises(LogUnavailable):
        log.read_stream(A)
    own_server.start()

    assert log.submit(append(event(2))).result(PATIENCE_S).last_position == 2
    assert [each.event_id for each in log.read_stream(A)] == [event_id(1), event_id(2)]


def test_a_type_that_was_lost_with_the_primary_is_numbered_anew(alone: Place):
    """The process may have read the type's number already; another type may have it now."""
    log = alone.open()
    log.submit(append(event(1))).result(PATIENCE_S)
    _lose(alone, "types", "streams", "events")
    alone.run("INSERT INTO types (log, id, name) VALUES (1, 1, 'another')")

    log.submit(append(event(2))).result(PATIENCE_S)

    assert [(each.type, each.event_id) for each in log.read_stream(A)] == [(event(2).type, event_id(2))]


def test_a_head_that_was_lost_with_the_primary_falls(place: Place):
    """The heads of the log and of a namespace fall; listeners hear of the event in the place of the lost one."""
    log = place.open()
    log.submit(append(event(1), event(2))).result(PATIENCE_S)
    log.submit(append(event(3), to=StreamId("other", "a"))).result(PATIENCE_S)
    assert (log.head(), log.head_of("other")) == (3, 3)

    place.run("DELETE FROM events WHERE position = 3")
    _until(lambda: place.ask("SELECT true") == [(True,)] and log.head() == 2)

    assert log.head_of("other") == 0
    heard: queue.Queue[int] = queue.Queue()
    log.on_commit(heard.put)
    place.open().submit(append(event(4))).result(PATIENCE_S)
    assert heard.get(timeout=PATIENCE_S) == 3


def test_a_commit_whose_replication_was_cancelled_is_no_acknowledgement(alone: Place, own_server: PostgresServer):
    """Nor is its retry, which waits for the standby as the first did; with the standby it has the first place."""
    log = alone.open()
    log.submit(append(event(1))).result(PATIENCE_S)
    _configure(alone, "synchronous_standby_names = 'absent'")
    try:
        first = log.submit(append(event(2)))
        _cancel_wait(alone)
        assert isinstance(first.exception(PATIENCE_S), LogUnavailable)
        again = log.submit(append(event(2)))
        _cancel_wait(alone)
        assert isinstance(again.exception(PATIENCE_S), LogUnavailable)
    finally:
        _configure(alone, "synchronous_standby_names = ''")

    assert log.submit(append(event(2))).result(PATIENCE_S) == AppendResult(2, 2, 2, already_appended=True)


def test_a_commit_that_waits_keeps_no_notification_of_another_log_waiting(alone: Place, own_server: PostgresServer):
    """The server has one lock for all of them; a transaction that notifies would hold it until it is on the disk."""
    log = alone.open()
    _configure(alone, "synchronous_standby_names = 'absent'")
    try:
        waiting = log.submit(append(event(1)))
        _until(lambda: alone.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != [(0,)])
        held = alone.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND database = 0")
    finally:
        _configure(alone, "synchronous_standby_names = ''")

    assert (held, waiting.result(PATIENCE_S).last_position) == ([(0,)], 1)


@pytest.mark.parametrize("before", range(4))
def test_a_group_that_was_cancelled_leaves_the_writer_able_to_write(alone: Place, before: int):
    """Whichever it is: the driver prepares a repeated statement, also in a group that never reaches it."""
    log = alone.open()
    for number in range(before):
        log.submit(append(event(number))).result(PATIENCE_S)
    alone.run("BEGIN")
    alone.run("SELECT 1 FROM logs FOR UPDATE")
    refused = log.submit(append(event(before)))
    _until(lambda: alone.ask(_CANCEL_LOCK_WAIT) == [(True,)])
    assert isinstance(refused.exception(PATIENCE_S), LogUnavailable)
    alone.run("ROLLBACK")

    assert log.submit(append(event(before))).result(PATIENCE_S).last_position == before + 1


def test_a_primary_that_is_demoted_refuses_until_it_leads_again(alone: Place, own_server: PostgresServer):
    """An append is unavailable meanwhile; reads go on."""
    log = alone.open()
    log.submit(append(event(1))).result(PATIENCE_S)
    own_server.stop()
    own_server.follow_nobody()
    own_server.start()
    try:
        refusal = log.submit(append(event(2))).exception(PATIENCE_S)
        assert isinstance(refusal, LogUnavailable)
        assert "25006" in str(refusal)
        assert len(log.read_stream(A)) == 1
    finally:
        own_server.stop()
        own_server.lead()
        own_server.start()

    assert log.submit(append(event(2))).result(PATIENCE_S).last_position == 2


def test_a_log_that_is_dropped_takes_nothing_more(place: Place):
    """A log refuses appends without its tables, and with another log in its place."""
    log = place.open()
    log.submit(append(event(1))).result(PATIENCE_S)

    place.run("UPDATE logs SET log_id = 'another'")
    assert isinstance(log.submit(append(event(2))).exception(PATIENCE_S), LogGone)
    place.run("DROP TABLE logs")
    assert isinstance(log.submit(append(event(2))).exception(PATIENCE_S), LogGone)


def test_an_append_that_the_database_cannot_take_harms_no_other(place: Place):
    """Only the name with a character that no text of PostgreSQL holds fails."""
    log = place.open()
    names = ["a", "b\0", "c"]
    futures: list[Future[AppendResult]] = [
        log.submit(append(event(number), to=StreamId("default", name))) for number, name in enumerate(names)
    ]

    assert [future.exception(PATIENCE_S) is None for future in futures] == [True, False, True]
    assert log.head() == 2


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("08006", LogUnavailable),
        ("08P01", LogUnavailable),
        ("25006", LogUnavailable),
        ("25P03", LogUnavailable),
        ("40001", LogUnavailable),
        ("40P01", LogUnavailable),
        ("53100", LogFull),
        ("53200", LogUnavailable),
        ("53300", LogUnavailable),
        ("55P03", LogUnavailable),
        ("57014", LogUnavailable),
        ("57P01", LogUnavailable),
        ("57P02", LogUnavailable),
        ("57P03", LogUnavailable),
        ("58030", LogUnavailable),
        ("42501", LogUnsafe),
        ("42P01", LogGone),
        ("XX001", LogCorrupt),
        ("XX002", LogCorrupt),
        ("42601", None),
        ("22012", None),
    ],
)
def test_each_state_of_the_server_has_its_error(state: str, kind: type[EventLogError] | None):
    """An error of the program's own statements stays as it is."""
    outcome = translated(psycopg.errors.lookup(state)("message"))

    assert (None if outcome is None else type(outcome)) is kind


def test_what_a_pooler_says_is_unsafe_only_while_a_log_is_opened():
    """A pooler names no transaction that it refuses otherwise than a server that it has lost."""
    error = psycopg.errors.lookup("08P01")("message")

    assert type(translated(error, is_opening=True)) is LogUnsafe
    assert type(translated(error)) is LogUnavailable


def test_a_log_whose_lock_is_held_opens(place: Place):
    """The log is read at once, refuses appends after its wait for the lock, and takes them once that is free."""
    first = place.open()
    first.submit(append(event(1))).result(PATIENCE_S)
    with psycopg.connect(place.url) as holder:
        holder.execute("SELECT 1 FROM logs FOR UPDATE")
        log = place.open()
        assert [each.event_id for each in log.read_all()] == [event_id(1)]
        refusal = log.submit(append(event(2))).exception(PATIENCE_S)
        assert isinstance(refusal, LogUnavailable)
        assert refusal.cause == "55P03"

    assert log.submit(append(event(2))).result(PATIENCE_S).last_position == 2


@pytest.mark.parametrize(
    ("change", "table"),
    [("UPDATE projections SET version = 0", "logs"), ("DROP TABLE snapshots", "logs"), ("", "eventlog_revision")],
)
def test_an_opening_that_needs_a_lock_waits_for_it_and_says_so(place: Place, change: str, table: str):
    """The lock serves rows, tables and the proof; the wait is longer than a stopped process may hold the lock."""
    place.open().close()
    if change:
        place.run(change)
    with psycopg.connect(place.url) as holder:
        holder.execute(f"SELECT 1 FROM {table} FOR UPDATE".encode())
        with pytest.raises(LogUnavailable, match="55P03: another session has held a lock on the log's tables for more"):
            place.open()

    assert place.open().head() == 0
    assert OPENING_WAIT_MS > IDLE_MAX_MS


def test_a_direct_url_beside_a_pooled_one_wakes_before_the_next_look(alone: Place, own_server: PostgresServer):
    """Looks go through the pooler, and notifications come from the server: one whose connection broke is replaced."""
    with naming_pooler(own_server.folder) as pooled:
        pooled = pooled.replace("/postgres?", "/alone?")
        opened = _listening(pooled, alone.url)
        log = opened.log
        assert [notice.code for notice in opened.notices if notice.code != "unsafe_server"] == []
        channel = Channel.of(1, log.log_id)
        heads: queue.Queue[int] = queue.Queue()
        connect, listen = Address(pooled).connect, Address(alone.url).connect
        watch = HeadWatch(connect, 1, channel, heads.put, listen=listen, poll_s=10 * PATIENCE_S)
        _until(lambda: alone.ask(_LISTENING) == [(2,)])
        other = alone.open()
        other.submit(append(event(1))).result(PATIENCE_S)
        while heads.get(timeout=PATIENCE_S) != 1:
            pass
        watch.stop()
        log.close()
        other.close()
        watch.join()


def test_a_url_to_listen_at_that_leads_elsewhere_is_refused(alone: Place, own_server: PostgresServer):
    """The URL may lead to another log or to a pooler; one that cannot be reached now is a warning, and looks go on."""
    alone.open().submit(append(event(1))).result(PATIENCE_S)
    with naming_pooler(own_server.folder) as pooled:
        pooled = pooled.replace("/postgres?", "/alone?")
        with pytest.raises(LogUnsafe, match="leads to a pooler"):
            _listening(pooled, pooled)
        with pytest.raises(LogUnsafe, match="another log than"):
            _listening(pooled, own_server.url)
        opened = _listening(pooled, "postgresql://postgres@127.0.0.1:1/alone")
        heard = threading.Event()
        opened.log.on_commit(lambda _: heard.set())
        assert [notice.code for notice in opened.notices if notice.code != "unsafe_server"] == ["not_listening"]
        alone.open().submit(append(event(2))).result(PATIENCE_S)
        assert heard.wait(PATIENCE_S)
        opened.log.close()


# Places that are refused


def test_a_lock_that_excludes_nobody_is_refused(place: Place):
    """The proof fails without the lock, and holds with it."""
    place.open()
    address = Address(place.url)
    with closing(address.connect()) as one, closing(address.connect()) as other:
        with pytest.raises(LogUnsafe, match="two sessions hold"):
            prove_exclusion(one, other, lock="SELECT version_num FROM eventlog_revision")
        prove_exclusion(one, other)


def test_a_standby_is_refused(alone: Place, own_server: PostgresServer):
    """The refusal says to connect to the primary."""
    alone.open().close()
    own_server.stop()
    own_server.follow_nobody()
    own_server.start()
    try:
        with pytest.raises(LogUnsafe, match="connect to the primary"):
            alone.open()
    finally:
        own_server.stop()
        own_server.lead()
        own_server.start()


def test_an_older_version_reads_what_this_one_writes(place: Place):
    """A sidecar of that version may run beside this one, and takes a seal of another size for damage."""
    with closing(place.open()) as log:
        log.submit(append(event(1), event(2))).result(PATIENCE_S)
        log.blank(A, {2: b""})

    sizes = place.ask("SELECT DISTINCT length(commitment), length(chain) FROM events")
    assert sizes == [(HASH_BYTES, HASH_BYTES)]
    assert place.ask("SELECT length(salt) FROM events WHERE position = 2") == [(SALT_BYTES + HASH_BYTES,)]


def test_tables_of_something_else_are_left_alone(place: Place):
    """The refusal names one, and makes none."""
    place.run("CREATE TABLE events (id int)")

    with pytest.raises(LogForeign, match="a table events of something else"):
        place.open()
    assert place.ask("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()") == [(1,)]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("UPDATE eventlog_revision SET version_num = '9999'", LogNewer),
        ("DELETE FROM eventlog_revision", LogCorrupt),
        ("ALTER TABLE events DROP COLUMN salt CASCADE", LogCorrupt),
        ("DROP TABLE requests", LogCorrupt),
        ("UPDATE projections SET version = 99", LogNewer),
        ("ALTER TABLE notes DROP COLUMN topic", LogCorrupt),
    ],
)
def test_a_schema_that_is_not_as_it_was_made_is_refused(place: Place, change: str, kind: type[EventLogError]):
    """The refusal comes before anything is written to the schema."""
    place.open().close()
    place.run(change)

    with pytest.raises(kind):
        place.open()


def test_a_role_without_rights_is_refused(alone: Place):
    """The refusal says which rights are missing, and not that the log is damaged."""
    alone.open().close()
    alone.run("DROP ROLE IF EXISTS bystander")
    alone.run("CREATE ROLE bystander LOGIN")
    alone.run("REVOKE ALL ON SCHEMA public FROM public")
    with closing(Place(f"{alone.url}&user=bystander")) as others:
        with pytest.raises(LogUnsafe, match="no schema"):
            others.open()
        alone.run("GRANT USAGE ON SCHEMA public TO bystander")
        with pytest.raises(LogUnsafe, match="42501: permission denied"):
            others.open()


def test_a_role_that_can_only_read_is_refused(alone: Place):
    """The refusal names the setting that makes the role so."""
    alone.run("ALTER DATABASE alone SET default_transaction_read_only = on")

    with pytest.raises(LogUnsafe, match="default_transaction_read_only"):
        alone.open()


def test_a_database_of_another_encoding_is_refused(own_server: PostgresServer):
    """The texts of such a database would not be those that were given."""
    with psycopg.connect(own_server.url, autocommit=True) as connection:
        connection.execute(b"CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    url = own_server.url.replace("/postgres?", "/ascii?")

    with closing(Place(url)) as place, pytest.raises(LogUnsafe, match="SQL_ASCII"):
        place.open()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@127.0.0.1:9/db",
        f"postgresql://user:{SECRET}@127.0.0.1:9/db?{SECRET}=1",
        f"host=127.0.0.1 password={SECRET} {SECRET}",
        f"http://user:{SECRET}@127.0.0.1:9/db",
        f"postgresql://user:pass@{SECRET}@127.0.0.1:9/db",
        f"postgresql://user:pass/{SECRET}@127.0.0.1:9/db",
    ],
)
def test_a_password_is_never_shown(url: str):
    """No refusal, no cause of one and no name of the place shows it."""
    with pytest.raises(EventLogError) as caught:
        PostgresBackend(url).log_id()

    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in f"{error!r} {error}"
        error = None if error.__suppress_context__ and error.__cause__ is None else error.__cause__ or error.__context__
    assert SECRET not in repr(Address(f"postgresql://user:{SECRET}@127.0.0.1/db"))


def test_damage_to_a_stored_event_is_refused(place: Place):
    """A payload that was changed in the database is never served."""
    log = place.open()
    log.submit(append(event(1), event(2))).result(PATIENCE_S)
    place.run("UPDATE events SET payload = 'changed' WHERE position = 2")

    with pytest.raises(LogCorrupt, match="position 2"):
        log.read_all()
    place.run("DELETE FROM events WHERE position = 1")
    with pytest.raises(LogCorrupt, match="position 1 is missing"):
        log.read_all(limit=1)


def test_a_table_of_an_older_version_gets_the_indexes_that_it_lacks(place: Place):
    """The table's columns are the same, so other logs keep their rows in it."""
    place.open().close()
    made = "SELECT indexname FROM pg_indexes WHERE tablename = 'notes' ORDER BY indexname"
    before = place.ask(made)
    place.run("DROP INDEX notes_urgent")
    place.run("UPDATE projections SET version = 0")

    place.open()
    assert place.ask(made) == before
    assert ("notes_urgent",) in before


def test_damage_to_a_row_is_refused(place: Place):
    """The row may be changed or missing; a row with a mark is left out of those that have it."""
    log = place.open()
    rows = PostgresRows(NOTES).of(log.number)
    rows.through(log.read, log.write)
    for position, stream in enumerate((A, B), start=1):
        log.submit(append(event(1), to=stream)).result(PATIENCE_S)
        rows.insert([Note(*stream, position, "text", urgent=1)])

    place.run("UPDATE notes SET text = 'changed' WHERE id = 'a'")
    with pytest.raises(LogCorrupt, match="not what was written"):
        rows.row(A)
    assert [row.id for row in rows.marked("urgent")] == ["b"]
    place.run("DELETE FROM notes WHERE id = 'a'")
    with pytest.raises(LogCorrupt, match="2 conversations are in the log and 1"):
        rows.page("default", before=0, limit=5, accepts=lambda _: True)
    place.run("UPDATE notes SET position = 9")
    with pytest.raises(LogCorrupt, match="up to position 9"):
        place.open()


def test_rows_of_an_older_version_are_made_again_for_their_own_log(place: Place):
    """Rows of another log of the database stay, unless the columns changed."""
    for name in ("default", "other"):
        opened = place.open(name)
        opened.submit(append(event(1))).result(PATIENCE_S)
        rows = PostgresRows(NOTES).of(opened.number)
        rows.through(opened.read, opened.write)
        rows.insert([Note(*A, 1)])
    place.run("UPDATE projections SET version = 0 WHERE log = 1")

    place.open().close()
    _until(lambda: place.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)])
    assert place.ask("SELECT log, complete = 1 FROM projections ORDER BY log") == [(1, False), (2, True)]
    assert place.ask("SELECT log FROM notes") == [(2,)]

    place.run("ALTER TABLE notes DROP COLUMN topic CASCADE")
    place.run("UPDATE projections SET version = 0 WHERE log = 1")
    place.open()
    assert place.ask("SELECT log, complete = 1 FROM projections ORDER BY log") == [(1, False)]


def test_a_check_names_what_was_damaged_and_lost(place: Place):
    """The check gives a damaged event's position, and the number of an event whose row is gone."""
    log = place.open()
    log.submit(append(*map(event, range(1, 8)))).result(PATIENCE_S)
    log.submit(append(event(1), to=B)).result(PATIENCE_S)
    log.close()
    place.run("UPDATE events SET payload = 'changed' WHERE position = 3")
    place.run("DELETE FROM events WHERE position = 5")
    place.run("DELETE FROM streams WHERE name = 'b'")

    backend = PostgresBackend(place.url)
    with backend.verification(backend.rows(NOTES)) as check:
        ((_, loss),) = check.losses({A: 7})
        assert (loss.ranges, loss.intact, loss.unplaced) == (((3, 3),), 5, 1)
        assert [finding.what for finding in check.structure()] == [
            "1 streams have lost their names; their numbers: 2",
            "7 events have positions up to 8",
        ]
        with pytest.raises(LogCorrupt, match="position 3"):
            list(check.pages(A))


def test_a_check_needs_a_log(place: Place):
    """An empty schema has none, and gets none."""
    backend = PostgresBackend(place.url)
    with pytest.raises(FileNotFoundError, match="no log"), backend.verification(backend.rows(NOTES)):
        pass
    assert (backend.log_id(), place.ask("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()")) == (
        "",
        [(0,)],
    )
    with pytest.raises(OSError, match="no log"):
        backend.size_bytes()


# Copies and rows made again


def test_a_copy_is_opened_by_nobody_until_it_is_whole(place: Place):
    """The copy has the id and the events of the other log, and prevents a second copy in its place."""
    backend, seen = PostgresBackend(place.url), list[str]()

    def fill(log: EventLog) -> None:
        log.submit(append(event(1), event(2))).result(PATIENCE_S)
        with pytest.raises(LogLocked, match="imported"):
            place.open()
        with pytest.raises(LogLocked, match="imported"):
            backend.log_id()

    def check(copy: Backend) -> None:
        opened = copy.open(copy.rows(NOTES), clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None)
        with closing(opened.log) as log:
            assert opened.kept is not None
            opened.kept.rows.complete(left_out={})
            seen.append(log.log_id)

    backend.copy("another", fill, check)

    assert (seen, place.open().log_id, [each.event_id for each in place.open().read_all()]) == (
        ["another"],
        "another",
        [event_id(1), event_id(2)],
    )
    with pytest.raises(FileExistsError, match="there is a log"):
        backend.copy("other", fill, check)


def test_a_copy_that_fails_leaves_nothing(place: Place):
    """The remains of an import that was killed are gone before the next one, too."""

    def refuse(log: EventLog) -> None:
        log.submit(append(event(1))).result(PATIENCE_S)
        raise ValueError("line 2")

    backend = PostgresBackend(place.url)
    with pytest.raises(ValueError, match="line 2"):
        backend.copy("another", refuse, lambda _: None)
    assert (backend.log_id(), place.ask("SELECT count(*) FROM events")) == ("", [(0,)])

    place.open().submit(append(event(7))).result(PATIENCE_S)
    place.run("UPDATE logs SET is_whole = false")
    backend.copy("another", _with(1), lambda _: None)
    assert [each.event_id for each in place.open().read_all()] == [event_id(1)]


def test_two_imports_at_once_make_no_log_of_both(place: Place):
    """The first finds that its place was taken, and says so."""
    backend = PostgresBackend(place.url)

    def overtaken(_: EventLog) -> None:
        backend.copy("another", _with(2), lambda _: None)

    with pytest.raises(LogGone, match="another import"):
        backend.copy("another", overtaken, lambda _: None)
    assert [each.event_id for each in place.open().read_all()] == [event_id(2)]


def test_an_import_that_fails_leaves_the_copy_of_another_alone(place: Place):
    """The other import began in the place of this one, and goes on."""
    backend = PostgresBackend(place.url)

    def fails(log: EventLog) -> None:
        place.run("UPDATE logs SET key = 'of another import'")
        raise ValueError("line 2")

    with pytest.raises(ValueError, match="line 2"):
        backend.copy("another", fails, lambda _: None)
    assert place.ask("SELECT is_whole FROM logs") == [(False,)]


def test_a_copy_that_no_standby_has_is_not_made(alone: Place):
    """The copy's last step waits for the standby as an append does."""
    backend = PostgresBackend(alone.url)
    cancelling = threading.Thread(target=_cancel_wait, args=(alone,))

    def without_standby(_: Backend) -> None:
        _configure(alone, "synchronous_standby_names = 'absent'")
        cancelling.start()

    try:
        with pytest.raises(LogUnavailable, match="warned of the commit"):
            backend.copy("another", _with(1), without_standby)
    finally:
        cancelling.join()
        _configure(alone, "synchronous_standby_names = ''")


def test_rows_are_made_again_from_nothing(place: Place):
    """The rows may have any maker and any damage; the events stay."""
    place.open().submit(append(event(1))).result(PATIENCE_S)
    place.run("UPDATE projections SET version = 99")
    with pytest.raises(LogNewer):
        place.open()

    backend = PostgresBackend(place.url)
    backend.rewrite(backend.rows(NOTES))

    opened = backend.open(backend.rows(NOTES), clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None)
    with closing(opened.log) as log:
        assert (opened.kept is not None and opened.kept.rows.is_complete, log.head()) == (False, 1)


def test_rows_that_another_process_makes_again_are_waited_for(place: Place):
    """A missing row is no damage then, and a row that is made again replaces none that was written meanwhile."""
    backend = PostgresBackend(place.url)
    rows = backend.rows(NOTES)

    def hook(connection: Any, committed: Any) -> None:
        rows.put(connection, [Note("default", each.stream.name, each.events[-1].position) for each in committed])

    with closing(backend.open(rows, clock_us=Clock(), hook=hook, on_fatal=lambda _: None).log) as log:
        log.submit(append(event(1), event(2))).result(PATIENCE_S)
        rows.insert([Note("default", "a", 1)])
        assert rows.row(A) == Note("default", "a", 2)

        backend.rewrite(backend.rows(NOTES))
        for read in (lambda: rows.row(A), lambda: rows.page("default", before=0, limit=1, accepts=lambda _: True)):
            with pytest.raises(LogUnavailable, match="being made again"):
                read()


def test_one_process_alone_makes_rows_again(place: Place):
    """Another one is refused meanwhile; where a pooler let both begin, the last that began is the one that ends."""
    place.open().submit(append(event(1))).result(PATIENCE_S)
    place.run("UPDATE projections SET version = 0")
    backend = PostgresBackend(place.url)
    rows = backend.rows(NOTES)
    with closing(backend.open(rows, clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None).log):
        with pytest.raises(LogUnavailable, match="another process is making"):
            place.open()

        place.run("UPDATE projections SET complete = complete - 1")
        with pytest.raises(LogUnavailable, match="another process has begun"):
            rows.complete(left_out={})
        place.run("UPDATE projections SET complete = complete + 1")
        rows.complete(left_out={})
        assert (rows.is_complete, place.open().head()) == (True, 1)


def test_rows_that_are_there_for_now_are_made_again_at_the_next_start(place: Place):
    """The rows are read until then; a process that has not made them does not know what they lack, and is refused."""
    backend = PostgresBackend(place.url)
    before, rows, after = (backend.rows(NOTES) for _ in range(3))
    with closing(backend.open(before, clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None).log) as log:
        log.submit(append(event(1))).result(PATIENCE_S)
        place.run("UPDATE projections SET version = 0")
        with closing(backend.open(rows, clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None).log):
            rows.insert([Note(*A, 1, topic="tea")])
            place.run(f"UPDATE projections SET version = {NOTES.version}")
            rows.complete(left_out={}, for_now=True)

            assert (rows.values("topic"), rows.having("topic", *A[:1], "tea")) == ({A: "tea"}, [A])
            assert before.row(A) == rows.row(A)
            for read in (lambda: before.values("topic"), lambda: before.having("topic", "default", "tea")):
                with pytest.raises(LogUnavailable, match="restart this one"):
                    read()
            with closing(backend.open(after, clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None).log):
                assert not after.is_complete


def test_rows_are_nobody_elses_to_make_until_their_commit_is_there(alone: Place):
    """A process that looked in between would find them begun, and no process that makes them."""
    alone.open().submit(append(event(1))).result(PATIENCE_S)
    alone.run("UPDATE projections SET version = 0")
    backend = PostgresBackend(alone.url)
    rows = backend.rows(NOTES)
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    with closing(backend.open(rows, clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None).log):
        _configure(alone, "synchronous_standby_names = 'absent'")
        completing = threading.Thread(target=rows.complete, kwargs={"left_out": {}})
        completing.start()
        _until(lambda: alone.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == [(1,)])
        found = alone.ask(held)
        _configure(alone, "synchronous_standby_names = ''")
        completing.join()
        assert (found, alone.ask(held), rows.is_complete) == ([(1,)], [(0,)], True)


def test_a_snapshot_of_an_older_state_replaces_no_newer_one(place: Place):
    """The processes of a log write them in any order."""
    backend = PostgresBackend(place.url)
    opened = backend.open(backend.rows(NOTES), clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None)
    with closing(opened.log):
        assert opened.kept is not None
        for version in (2, 1):
            opened.kept.snapshots.put(StoredSnapshot(A, version, version, b"", "codec", b"state"))
        assert opened.kept.snapshots.version_of(A) == 2


def _listening(url: str, listen_url: str) -> Opened:
    backend = PostgresBackend(url, listen_url=listen_url)
    return backend.open(backend.rows(NOTES), clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None)


def _same(found: object, expected: object) -> None:
    assert found == expected


def _with(number: int) -> Callable[[EventLog], None]:
    def fill(log: EventLog) -> None:
        log.submit(append(event(number))).result(PATIENCE_S)

    return fill


def _wait_for(log: EventLog, head: int) -> None:
    reached = threading.Event()
    stop = log.on_commit(lambda at: reached.set() if at >= head else None)
    if log.head() < head:
        assert reached.wait(PATIENCE_S)
    stop()


def _lose(place: Place, *tables: str) -> None:
    """Have a server that has nothing of these tables in the place of the one that the logs are connected to."""
    for table in tables:
        place.run(f"DELETE FROM {table}")
    place.run(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


def _configure(place: Place, setting: str) -> None:
    name, _, value = setting.partition(" = ")
    place.run("SET synchronous_commit = 'local'")
    place.run(f"ALTER SYSTEM SET {name} = {value}")
    place.run("SELECT pg_reload_conf()")
    _until(lambda: place.ask(f"SELECT current_setting('{name}') = {value}") == [(True,)])
    # The checkpointer alone makes commits wait for standbys. It reads the setting at the checkpoint that follows the
    # server's signal, which may reach it after this session.
    for _ in range(3):
        place.run("CHECKPOINT")


def _cancel_wait(place: Place) -> None:
    """Cancel a commit's wait for a standby, as an operator does."""
    _until(lambda: place.ask("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != [])


_LISTENING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'"

_LEASES = "SELECT log, count(*) FROM leases GROUP BY log ORDER BY log"

_CANCEL_LOCK_WAIT = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if holds():
            return
    raise AssertionError("the server never came to this")
