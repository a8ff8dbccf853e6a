"""The schema is the sum of its migrations, and a file at the newest revision never loads them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from eventlog.chain import verify_stream
from eventlog.errors import EventIdConflict, LogOlder, RequestKeyConflict
from eventlog.event import NewEvent
from eventlog.log import RequestKey
from eventlog.migrations import config, upgrade
from eventlog.schema import HEAD_REVISION, METADATA, REVISION_TABLE
from eventlog.sqlite.engine import make_tables, writer_engine
from eventlog.sqlite.file import volume_free_bytes
from eventlog.sqlite.log import SqliteEventLog
from eventlog.sqlite.rewrite import Rewrite, is_older, rewritten
from eventlog.sqlite.verification import LogVerification
from tests.support.event_logs import Clock, append
from tests.support.older_logs import OF_0001

_SQL_OF_TABLES = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"


def _tables(engine, make) -> list[tuple[str, str, list[str]]]:
    with engine.connect() as connection:
        with connection.begin():
            make(connection)
        rows = connection.execute(text(_SQL_OF_TABLES)).all()
        assert connection.execute(text(f"SELECT version_num FROM {REVISION_TABLE}")).all() == [(HEAD_REVISION,)]
        differences = compare_metadata(
            MigrationContext.configure(connection, opts={"version_table": REVISION_TABLE}), METADATA
        )
    engine.dispose()
    assert differences == []
    return [(kind, name, _normal(sql)) for kind, name, sql in rows]


def _normal(sql: str | None) -> list[str]:
    """The definition's lines in any order: constraints may come in another one, and mean the same."""
    return sorted(line.strip(" ,\t") for line in (sql or "").splitlines() if line.strip(" ,\t"))


def test_the_schema_is_the_sum_of_the_migrations(tmp_path):
    """A file made by the migrations is the file that is made at once, constraint by constraint, revision included."""
    migrated = _tables(writer_engine(tmp_path / "migrated.db"), upgrade)
    made = _tables(writer_engine(tmp_path / "made.db"), make_tables)

    assert migrated == made
    tables = [name for kind, name, _ in migrated if kind == "table"]
    assert tables == ["eventlog_revision", "events", "log", "requests", "streams", "types"]


def test_the_head_revision_is_the_newest_migration():
    """The constant that spares loading the migrations names the last of them."""
    assert ScriptDirectory.from_config(config()).get_current_head() == HEAD_REVISION


def test_the_tables_are_strict(tmp_path):
    """A column holds what it says and nothing else."""
    rows = _tables(writer_engine(tmp_path / "log.db"), make_tables)

    ours = [sql for kind, name, sql in rows if kind == "table" and name != REVISION_TABLE]
    assert all("STRICT" in " ".join(sql) for sql in ours)


def test_the_migrations_keep_everything_that_seals_an_event(tmp_path):
    """Log id, namespace, salt, commitment and chain hash."""
    engine = writer_engine(tmp_path / "log.db")
    with engine.connect() as connection, connection.begin():
        upgrade(connection)
        columns = {row[1] for row in connection.exec_driver_sql("PRAGMA table_info(events)")}
        stream_columns = {row[1] for row in connection.exec_driver_sql("PRAGMA table_info(streams)")}
        log_columns = {row[1] for row in connection.exec_driver_sql("PRAGMA table_info(log)")}
    engine.dispose()

    assert {"salt", "commitment", "chain", "content_hash", "trace_context"} <= columns
    assert {"namespace", "name"} <= stream_columns
    assert {"log_id", "key"} <= log_columns


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path):
    """They are one transaction."""
    engine = writer_engine(tmp_path / "log.db")
    with engine.connect() as connection:
        transaction = connection.begin()
        upgrade(connection)
        transaction.rollback()
        left = connection.exec_driver_sql("SELECT count(*) FROM sqlite_schema").scalar()
    engine.dispose()

    assert left == 0


@pytest.mark.parametrize("is_there", [False, True])
def test_a_file_that_is_new_or_at_the_newest_revision_is_opened_without_alembic(tmp_path, is_there):
    """No start pays for migrations that there are not."""
    path = tmp_path / "log.db"
    if is_there:
        SqliteEventLog.open(path, clock_us=Clock()).close()
    program = (
        "import sys; from pathlib import Path; from eventlog.sqlite.log import SqliteEventLog;"
        f"SqliteEventLog.open(Path({str(path)!r}), clock_us=lambda: 1).close();"
        "sys.exit('alembic' in sys.modules)"
    )

    finished = subprocess.run([sys.executable, "-c", program], check=False)

    assert finished.returncode == 0


_EVENTS_OF_0001 = (
    "SELECT e.position, s.namespace, s.name, e.version, e.event_id, e.type, e.schema_version, e.time_us, "
    "e.trace_context, e.payload FROM events AS e JOIN streams AS s ON s.id = e.stream ORDER BY e.position"
)


@pytest.fixture
def of_0001(tmp_path):
    """A file as the first schema's version left it."""
    path = tmp_path / "log.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OF_0001.read_text())
    return path


def _upgraded(path: Path) -> Path:
    assert rewritten(path, Rewrite(lambda _: None, volume_free_bytes)) is not None
    return path


def test_a_file_of_the_first_schema_is_upgraded_with_every_event_as_it_was(of_0001):
    """Field by field, with the chain of each stream; and it is written on as if it had always been of this schema."""
    with closing(sqlite3.connect(of_0001)) as connection:
        before = connection.execute(_EVENTS_OF_0001).fetchall()
    assert {row[1] for row in before} == {"default", "tenant-b"}

    log = SqliteEventLog.open(_upgraded(of_0001), clock_us=Clock())
    found = log.read_all()
    chains = {stream: verify_stream(log, stream).version for stream in {event.stream for event in found}}
    heads = {namespace: log.head_of(namespace) for namespace in ("default", "tenant-b", "nobody")}
    later = log.submit(append(NewEvent(b"of this version.", "MessageAppended", b"p"), to=found[0].stream)).result()
    log.close()

    assert [(e.position, *e.stream, *e[2:]) for e in found] == before
    assert chains == Counter(event.stream for event in found)
    assert heads == {name: max((row[0] for row in before if row[1] == name), default=0) for name in heads}
    assert later.first_position == len(before) + 1
    with LogVerification.opened(of_0001) as verification:
        assert list(verification.structure()) == []


def test_a_file_of_the_first_schema_still_knows_what_was_sent(of_0001):
    """Events by their ids and contents, requests by their keys: repeats are repeats, and other contents are refused."""
    log = SqliteEventLog.open(_upgraded(of_0001), clock_us=Clock())
    first = log.read_all(limit=1)[0]
    again = NewEvent(first.event_id, first.type, first.payload, first.schema_version)
    other = again._replace(payload=b"other")
    request = RequestKey("request-1", b"request 1")

    repeated = log.submit(append(again, to=first.stream)).result()
    refused = log.submit(append(other, to=first.stream)).exception()
    by_key = log.submit(append(other, to=first.stream, request=request)).result()
    wrong_key = log.submit(append(again, to=first.stream, request=request._replace(content=b"x"))).exception()
    log.close()

    assert (repeated.already_appended, repeated.first_position) == (True, 1)
    assert by_key.already_appended
    assert (type(refused), type(wrong_key)) == (EventIdConflict, RequestKeyConflict)


def test_an_upgraded_file_has_the_schema_of_a_new_one(of_0001, tmp_path):
    """Constraint by constraint."""
    upgraded = _tables(writer_engine(_upgraded(of_0001)), lambda _: None)
    made = _tables(writer_engine(tmp_path / "made.db"), make_tables)

    assert upgraded == made


def test_a_file_that_waits_for_its_upgrade_is_neither_opened_nor_called_damaged(of_0001):
    """Opening would upgrade it while nothing reports the progress; the error says what does."""
    before = of_0001.read_bytes()

    with pytest.raises(LogOlder, match="start a sidecar"), LogVerification.opened(of_0001):
        pass
    assert is_older(of_0001)
    assert of_0001.read_bytes() == before
    with pytest.raises(LogOlder, match="start a sidecar"):
        SqliteEventLog.open(of_0001, clock_us=Clock())


def test_a_file_of_this_schema_or_of_none_is_not_older(tmp_path):
    """A start looks at each; what is no log, opening explains."""
    SqliteEventLog.open(tmp_path / "log.db", clock_us=Clock()).close()
    (tmp_path / "empty.db").touch()
    (tmp_path / "junk.db").write_bytes(b"no log")

    assert not any(is_older(tmp_path / name) for name in ("log.db", "empty.db", "junk.db", "missing.db"))
