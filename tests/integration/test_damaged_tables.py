"""A damaged read table is named by `verify` and by a start, and `abridged log rebuild` makes it again."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from abridged.eventlog.errors import LogCorrupt
from abridged.service.cli.main import main
from abridged.service.conversations.table import ListQuery
from tests.support.read_tables import asked, changed, grown, opened
from tests.support.sidecar import said, sidecar

CONVERSATIONS = 200
"""Conversations enough that the table has a page that leads to others."""

OTHER_COLUMNS = (
    "ALTER TABLE projections RENAME TO was",
    "CREATE TABLE projections (name, version, log_id, complete)",
    "INSERT INTO projections SELECT * FROM was",
    "DROP TABLE was",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return grown(tmp_path / "log.db", CONVERSATIONS)


@pytest.mark.parametrize(
    "damage",
    [
        ("ALTER TABLE conversations RENAME COLUMN ratio TO ration",),
        ("ALTER TABLE conversations ADD COLUMN more",),
        OTHER_COLUMNS,
        (*OTHER_COLUMNS, "INSERT INTO projections SELECT * FROM projections"),
        ("DROP INDEX conversations_by_change", "CREATE INDEX conversations_by_change ON streams (namespace)"),
        ("DROP INDEX conversations_by_change", "CREATE INDEX conversations_by_change ON conversations (position)"),
        ("DROP INDEX conversations_by_change", "CREATE TABLE conversations_by_change (namespace)"),
        ("ALTER TABLE conversations RENAME TO was", "CREATE VIEW conversations AS SELECT * FROM was"),
        ("ALTER TABLE projections RENAME TO was", "CREATE VIEW projections AS SELECT * FROM was"),
    ],
)
def test_a_table_that_is_not_as_it_was_made_is_named_and_made_again(path: Path, damage: tuple[str, ...]):
    """Other columns, a second row about it, or something else by the name of an index: never a traceback."""
    changed(path, *damage)

    found = _run("verify", path)
    assert (found.exit_code, found.stdout) == (1, "damaged  log: the read table is not as it was made\n")
    assert found.stderr.endswith("  stop the sidecar and run `abridged log rebuild`\n")
    with pytest.raises(LogCorrupt, match="`abridged log rebuild` makes it again"), opened(path):
        pass

    _is_rebuilt(path)


@pytest.mark.parametrize(
    "other",
    [
        ("CREATE TABLE was (x)", "CREATE VIEW {} AS SELECT * FROM was"),
        ("CREATE INDEX {} ON streams (namespace)",),
        ("CREATE TRIGGER {} AFTER INSERT ON streams BEGIN SELECT 1; END",),
        ("CREATE TABLE {} (x)",),
    ],
)
async def test_a_start_replaces_whatever_has_the_name_of_the_snapshots(tmp_path: Path, other: tuple[str, ...]):
    """The snapshots are a cache: a start neither needs them nor fails for a thing in their place."""
    async with sidecar(tmp_path, {"log.backend": "sqlite"}) as s:
        await s.chat().append(said(1))
    changed(tmp_path / "abridged.db", "DROP TABLE snapshots", *(line.format("snapshots") for line in other))

    async with sidecar(tmp_path, {"log.backend": "sqlite"}) as s:
        await s.chat().append(said(2))

    assert asked(tmp_path / "abridged.db", "SELECT type FROM sqlite_schema WHERE name = 'snapshots'") == [("table",)]


def test_an_older_table_is_rebuilt_at_a_start_also_beside_a_view_in_its_place(path: Path):
    """A table by that name is replaced likewise."""
    changed(
        path,
        "UPDATE projections SET version = 0",
        "ALTER TABLE conversations RENAME TO was",
        "CREATE VIEW conversations AS SELECT * FROM was",
    )

    with opened(path):
        pass

    assert asked(path, "SELECT type FROM sqlite_schema WHERE name = 'conversations'") == [("table",)]


def test_an_older_table_is_rebuilt_at_a_start_also_beside_an_index_that_is_not_its_own(path: Path):
    """Lists read by the index of that name."""
    changed(
        path,
        "UPDATE projections SET version = 0",
        "DROP INDEX conversations_by_change",
        "CREATE INDEX conversations_by_change ON streams (namespace)",
    )

    with opened(path):
        pass

    assert asked(path, "SELECT tbl_name FROM sqlite_schema WHERE name = 'conversations_by_change'") == [
        ("conversations",)
    ]


def test_a_list_whose_index_is_gone_is_refused_as_damaged(path: Path):
    """The refusal is no bug; the next start makes the index."""
    with opened(path) as (log, table, _):
        log.write(lambda connection: connection.execute("DROP INDEX conversations_by_change"))
        with pytest.raises(LogCorrupt, match="no such index"):
            table.page(ListQuery("default", 10))

    with opened(path) as (_, table, _):
        assert len(table.page(ListQuery("default", 10))) == 10


@pytest.mark.parametrize(
    ("tree", "at"),
    [*(("conversations", at) for at in (0, 5, 8, 11, 15)), ("conversations_by_change", 0), ("projections", 0)],
)
def test_a_table_whose_pages_are_damaged_is_made_again(path: Path, tree: str, at: int):
    """The root page is another kind, or leads to pages that are not its own: those are never freed."""
    _flipped_in_root(path, tree, at)

    found = _run("verify", path)
    assert found.exit_code == 1
    assert found.stderr.endswith("  stop the sidecar and run `abridged log rebuild`\n")

    _is_rebuilt(path)


def test_a_log_that_is_itself_damaged_is_not_rebuilt(path: Path):
    """The command changes nothing of the log, and names a backup as the way."""
    ((root,),) = asked(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_streams_1'")
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(b"c000", (root - 1) * 4_096, root * 4_096)] ^= 1
    path.write_bytes(damaged)

    refused = _run("rebuild", path)

    assert refused.exit_code == 1
    assert "the log itself is damaged" in refused.stderr
    assert path.read_bytes() == damaged
    assert "restore a backup" in _run("verify", path).stderr


@pytest.mark.parametrize("command", ["verify", "rebuild"])
def test_what_is_no_regular_file_is_no_log(tmp_path: Path, command: str):
    """Nobody ever writes to the other end of a pipe."""
    os.mkfifo(tmp_path / "pipe")

    refused = _run(command, tmp_path / "pipe")

    assert refused.exit_code == 1
    assert "is not an abridged log (not a regular file)" in refused.stderr
    assert os.listdir(tmp_path) == ["pipe"]


def test_an_empty_file_is_not_made_a_log_by_a_rebuild(tmp_path: Path):
    """A name that is mistyped may be that of another program's new file."""
    (tmp_path / "empty.db").touch()

    refused = _run("rebuild", tmp_path / "empty.db")

    assert refused.exit_code == 1
    assert "is not an abridged log (it is empty)" in refused.stderr
    assert (tmp_path / "empty.db").stat().st_size == 0
    assert os.listdir(tmp_path) == ["empty.db"]


def _flipped_in_root(path: Path, tree: str, at: int) -> None:
    ((root,),) = asked(path, "SELECT rootpage FROM sqlite_schema WHERE name = ?", tree)
    damaged = bytearray(path.read_bytes())
    damaged[(root - 1) * 4_096 + at] ^= 2
    path.write_bytes(damaged)


def _is_rebuilt(path: Path) -> None:
    made = _run("rebuild", path)
    assert (made.exit_code, made.stdout) == (0, f"ok: {CONVERSATIONS} conversations from {2 * CONVERSATIONS} events\n")
    verified = _run("verify", path)
    assert (verified.exit_code, verified.stderr) == (0, "")
    with opened(path) as (_, table, _):
        assert len(table.page(ListQuery("default", CONVERSATIONS + 1))) == CONVERSATIONS
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _run(command: str, path: Path) -> Result:
    return CliRunner().invoke(main, ["log", command, str(path)])
