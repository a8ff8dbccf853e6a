"""The schema is the sum of its migrations, and a file at the newest revision never loads them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from eventlog.migrations import config, upgrade
from eventlog.schema import HEAD_REVISION, METADATA, REVISION_TABLE
from eventlog.sqlite.engine import migrate, writer_engine
from eventlog.sqlite.log import SqliteEventLog
from tests.support.event_logs import Clock

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
    made = _tables(writer_engine(tmp_path / "made.db"), migrate)

    assert migrated == made
    tables = [name for kind, name, _ in migrated if kind == "table"]
    assert tables == ["eventlog_revision", "events", "log", "requests", "streams"]


def test_the_head_revision_is_the_newest_migration():
    """The constant that spares loading the migrations names the last of them."""
    assert ScriptDirectory.from_config(config()).get_current_head() == HEAD_REVISION


def test_the_tables_are_strict(tmp_path):
    """A column holds what it says and nothing else."""
    rows = _tables(writer_engine(tmp_path / "log.db"), migrate)

    ours = [sql for kind, name, sql in rows if kind == "table" and name != REVISION_TABLE]
    assert all("STRICT" in " ".join(sql) for sql in ours)


def test_the_first_migration_has_everything_that_seals_an_event(tmp_path):
    """Log id, namespace, salt, commitment and chain hash are there from the first file on."""
    engine = writer_engine(tmp_path / "log.db")
    with engine.connect() as connection, connection.begin():
        upgrade(connection)
        columns = {row[1] for row in connection.exec_driver_sql("PRAGMA table_info(events)")}
        log_columns = {row[1] for row in connection.exec_driver_sql("PRAGMA table_info(log)")}
    engine.dispose()

    assert {"namespace", "salt", "commitment", "chain", "content_hash", "trace_context"} <= columns
    assert {"log_id", "key"} <= log_columns


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path):
    """Migrations are one transaction: a file is old or new, never between."""
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
