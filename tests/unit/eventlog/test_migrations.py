"""The schema is the sum of its migrations, and a file at the newest revision never loads them."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import combinations
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from abridged.eventlog.errors import LogOlder
from abridged.eventlog.migrations import config, upgrade
from abridged.eventlog.sqlite.database import make_file, require_current
from abridged.eventlog.sqlite.file import volume_free_bytes
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.eventlog.sqlite.rewrite import Rewrite, rewritten
from abridged.eventlog.sqlite.rows import SqliteRows
from abridged.eventlog.sqlite.schema import HEAD_REVISION, READ_REVISIONS, REVISION_TABLE
from abridged.eventlog.sqlite.verification import SqliteVerification
from abridged.eventlog.sqlite.wal import is_near
from abridged.service.conversations.row import READ_TABLE
from tests.support.event_logs import Clock
from tests.support.read_tables import changed

_SQL_OF_TABLES = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"


def _migrated(path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        upgrade(connection)
    engine.dispose()


def _tables(path: Path) -> list[tuple[str, str, list[str]]]:
    with closing(sqlite3.connect(path)) as connection:
        require_current(connection)
        rows = connection.execute(_SQL_OF_TABLES).fetchall()
        assert connection.execute(f"SELECT version_num FROM {REVISION_TABLE}").fetchall() == [(HEAD_REVISION,)]
    return [(kind, name, _normal(sql)) for kind, name, sql in rows]


def _normal(sql: str | None) -> list[str]:
    """The definition's lines in any order: constraints may come in another one, and mean the same."""
    lines = (line.strip(" ,\t").replace('"', "") for line in (sql or "").splitlines())
    return sorted(filter(None, lines))


def test_the_schema_is_the_sum_of_the_migrations(tmp_path):
    """A file made by the migrations is the file that is made at once, constraint by constraint, revision included."""
    _migrated(tmp_path / "migrated.db")
    make_file(tmp_path / "made.db")
    migrated, made = _tables(tmp_path / "migrated.db"), _tables(tmp_path / "made.db")

    assert migrated == made
    tables = [name for kind, name, _ in migrated if kind == "table"]
    assert tables == ["eventlog_revision", "events", "log", "requests", "streams", "types"]


def test_the_head_revision_is_the_newest_migration():
    """The constant that spares loading the migrations names the last of them."""
    assert ScriptDirectory.from_config(config()).get_current_head() == HEAD_REVISION


def test_no_flipped_bit_makes_one_revision_another_that_is_read():
    """A version that takes one for the other would misread events."""
    pairs = combinations(sorted(READ_REVISIONS), 2)

    assert not any(is_near(one.encode(), other.encode()) for one, other in pairs)


def test_the_tables_are_strict(tmp_path):
    """A column holds its own type and nothing else."""
    make_file(tmp_path / "log.db")

    ours = [sql for kind, name, sql in _tables(tmp_path / "log.db") if kind == "table" and name != REVISION_TABLE]
    assert all("STRICT" in " ".join(sql) for sql in ours)


def test_the_migrations_keep_everything_that_seals_an_event(tmp_path):
    """Log id, namespace, salt, commitment and chain hash."""
    _migrated(tmp_path / "log.db")
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection:
        columns, stream_columns, log_columns = (
            {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            for table in ("events", "streams", "log")
        )

    assert {"salt", "commitment", "chain", "content_hash", "trace_context"} <= columns
    assert {"namespace", "name"} <= stream_columns
    assert {"log_id", "key"} <= log_columns


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path):
    """They are one transaction."""
    engine = create_engine(f"sqlite:///{tmp_path / 'log.db'}")
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        upgrade(connection)
        connection.rollback()
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
        "import sys; from pathlib import Path; from abridged.eventlog.sqlite.log import SqliteEventLog;"
        f"SqliteEventLog.open(Path({str(path)!r}), clock_us=lambda: 1).close();"
        "sys.exit('alembic' in sys.modules)"
    )

    finished = subprocess.run([sys.executable, "-c", program], check=False)

    assert finished.returncode == 0


def _opened(path: Path) -> None:
    SqliteEventLog.open(path, clock_us=Clock()).close()


def _verified(path: Path) -> None:
    with SqliteVerification.opened(path, SqliteRows(READ_TABLE)):
        pass


def _rewritten(path: Path) -> None:
    rewritten(path, Rewrite(lambda _: None, volume_free_bytes))


@pytest.mark.parametrize("read", [_opened, _verified, _rewritten])
def test_a_file_from_before_the_first_release_is_refused_and_unchanged(tmp_path, read):
    """The error says so, and how to go on."""
    path = tmp_path / "log.db"
    _opened(path)
    changed(path, "UPDATE eventlog_revision SET version_num = '0001'")
    before = path.read_bytes()

    with pytest.raises(LogOlder, match=r"before the first release.*set log\.path"):
        read(path)

    assert path.read_bytes() == before
