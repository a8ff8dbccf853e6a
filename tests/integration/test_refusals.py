"""A refusal changes no byte of a log: a second start is refused as the first was, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import pytest
from click.testing import CliRunner, Result

from abridged.eventlog.errors import (
    EventLogError,
    LogCorrupt,
    LogForeign,
    LogFull,
    LogGone,
    LogLocked,
    LogNewer,
    LogOlder,
)
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.eventlog.sqlite.rewrite import Rewrite, rewritten
from abridged.service.cli.main import main
from tests.support.read_tables import grown, opened
from tests.support.sidecar import said, sidecar

FILE = "abridged.db"
WAL = f"{FILE}-wal"
INDEX = f"{FILE}-shm"
LOCK = f"{FILE}.lock"
MESSAGES = 40
PLACES = 20

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Files:
    """The files of a log of MESSAGES acknowledged messages whose sidecar was killed."""
    folder: Path = tmp_path_factory.mktemp("killed")

    async def append() -> Files:
        async with sidecar(folder) as s:
            for number in range(1, MESSAGES + 1):
                await s.chat().append(said(number))
            return _files(folder)

    files = asyncio.run(append())
    assert {FILE, WAL, INDEX, LOCK} <= set(files)
    return {name: content for name, content in files.items() if name.startswith(FILE)}


@pytest.mark.parametrize("place", range(PLACES))
def test_a_damaged_write_ahead_log_is_refused_as_often_as_it_is_opened(killed, tmp_path, place):
    """Starts refuse it, and so does a rebuild between them; the log with its bytes put back serves every message."""
    damaged = _flipped(killed[WAL], place)
    _put(killed | {WAL: damaged}, tmp_path)

    for attempt in (_start, _start, _verify, _rebuild, _verify, _start):
        refusal = attempt(tmp_path)
        assert "the write-ahead log is damaged" in refusal
        assert str(tmp_path / WAL) in refusal
        assert "No file was changed. Restore a backup, make a log of what both have" in refusal
        assert _files(tmp_path) == killed | {WAL: damaged}

    (tmp_path / WAL).write_bytes(killed[WAL])
    assert _served(tmp_path) == MESSAGES


def test_a_damaged_write_ahead_log_can_be_moved_aside(killed, tmp_path):
    """The refusal names another way: the sidecar starts, without the events that only that file has."""
    _put(killed | {WAL: _flipped(killed[WAL], PLACES // 2)}, tmp_path)
    assert "move that file aside" in _start(tmp_path)

    (tmp_path / WAL).rename(tmp_path / "aside")

    async def go_on() -> int:
        async with sidecar(tmp_path) as s:
            await s.chat().append(said(MESSAGES + 1))
            return len((await s.chat().context()).messages)

    assert asyncio.run(go_on()) <= MESSAGES


@pytest.mark.parametrize("index", [None, b"", bytes(32_768), b"\xa5" * 32_768])
def test_a_damaged_index_of_the_write_ahead_log_costs_nothing(killed, tmp_path, index):
    """SQLite makes it from that log; beside a damaged one it is left as it is, or is empty where it was missing."""
    files = {name: content for name, content in killed.items() if name != INDEX}
    files |= {} if index is None else {INDEX: index}
    _put(files | {WAL: _flipped(killed[WAL], 7)}, tmp_path)

    for attempt in (_start, _verify, _rebuild, _start):
        assert "the write-ahead log is damaged" in attempt(tmp_path)
        assert _files(tmp_path) == {INDEX: b""} | files | {WAL: _flipped(killed[WAL], 7)}

    (tmp_path / WAL).write_bytes(killed[WAL])
    assert _served(tmp_path) == MESSAGES


def _of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as app:
        app.execute("PRAGMA journal_mode = wal")
        app.execute("CREATE TABLE users (name)")
        app.commit()
        app.execute("INSERT INTO users VALUES ('a')")
        app.commit()
        _copy_of_killed(path, path.with_name("killed.db"))
    _copy_of_killed(path.with_name("killed.db"), path)


def _of_a_newer_version(path: Path) -> None:
    _killed(path, "UPDATE eventlog_revision SET version_num = '9999'")


def _with_a_newer_table(path: Path) -> None:
    _killed(path, "UPDATE projections SET version = version + 1")


def _with_a_damaged_table(path: Path) -> None:
    _killed(path, "ALTER TABLE conversations ADD COLUMN other")


def _with_another_schema(path: Path) -> None:
    _killed(path, "ALTER TABLE events ADD COLUMN other INTEGER")


def _without_its_end(path: Path) -> None:
    _killed(path, "DELETE FROM events WHERE position = (SELECT max(position) FROM events)")


def _with_another_id(path: Path) -> None:
    _killed(path, "UPDATE log SET log_id = replace(log_id, substr(log_id, 1, 1), 'x')")


def _with_a_damaged_page(path: Path) -> None:
    _killed(path, "UPDATE log SET created_us = created_us + 1")
    content = bytearray(path.read_bytes())
    content[4_096:] = b"\xa5" * (len(content) - 4_096)
    path.write_bytes(content)


def _without_its_file(path: Path) -> None:
    _killed(path, "UPDATE log SET created_us = created_us + 1")
    path.unlink()


def _with_an_empty_file(path: Path) -> None:
    _killed(path, "UPDATE log SET created_us = created_us + 1")
    path.write_bytes(b"")


def _with_anothers_write_ahead_log(path: Path) -> None:
    other = grown(path.with_name("other.db"), 3)
    _killed(other, "UPDATE log SET created_us = created_us + 1")
    grown(path, 2)
    for side in ("-wal", "-shm"):
        other.with_name(other.name + side).rename(path.with_name(path.name + side))
    other.unlink()


def _of_an_older_version(path: Path) -> None:
    _killed(grown(path, 2), "UPDATE eventlog_revision SET version_num = '0001'")


REASONS: Mapping[Callable[[Path], None], type[EventLogError]] = MappingProxyType(
    {
        _of_another_program: LogForeign,
        _of_a_newer_version: LogNewer,
        _of_an_older_version: LogOlder,
        _with_a_newer_table: LogNewer,
        _with_a_damaged_table: LogCorrupt,
        _with_another_schema: LogCorrupt,
        _without_its_end: LogCorrupt,
        _with_another_id: LogCorrupt,
        _with_a_damaged_page: LogCorrupt,
        _without_its_file: LogGone,
        _with_an_empty_file: LogGone,
        _with_anothers_write_ahead_log: LogCorrupt,
    }
)


@pytest.mark.parametrize("damage", REASONS, ids=lambda damage: damage.__name__[1:])
def test_no_reason_of_refusal_changes_a_byte(tmp_path, damage):
    """Each time with a write-ahead log beside the file, which the last connection to close would copy into it."""
    path = tmp_path / FILE
    damage(path)
    before = _files(tmp_path)
    assert len(before[WAL]) > 32

    for _ in range(2):
        with pytest.raises(REASONS[damage]), opened(path):
            pass
        _require_unchanged(tmp_path, before)


def test_verify_says_that_a_file_is_gone_and_its_write_ahead_log_is_there(tmp_path):
    """A start says it, too: a user who took it for a new log would lose what that has."""
    _without_its_file(tmp_path / FILE)
    before = _files(tmp_path)

    assert f"{FILE} is missing, and its write-ahead log is there" in _verify(tmp_path)
    _require_unchanged(tmp_path, before)


def test_another_logs_write_ahead_log_is_refused_by_every_command(tmp_path):
    """SQLite would copy it over the file; moved aside, as the refusal says, it takes nothing with it."""
    path = tmp_path / FILE
    _with_anothers_write_ahead_log(path)
    before = _files(tmp_path)

    for attempt in (_start, _verify, _rebuild, _verify, _start):
        assert "is the write-ahead log of another log" in attempt(tmp_path)
        _require_unchanged(tmp_path, before)

    (tmp_path / WAL).rename(tmp_path / "aside")
    with opened(path) as (log, *_):
        assert log.head() == 4


def test_an_owned_log_is_refused_and_is_unchanged(tmp_path):
    """A second process looks at the lock before it looks at anything else."""
    with opened(tmp_path / FILE):
        before = _files(tmp_path)
        for _ in range(2):
            with pytest.raises(LogLocked):
                SqliteEventLog.open(tmp_path / FILE, clock_us=lambda: 1)
            assert _files(tmp_path) == before


def test_a_rewrite_without_room_leaves_the_write_ahead_log_where_it_is(tmp_path):
    """A copy that cannot be made is no reason to write to the original."""
    path = tmp_path / FILE
    _killed(grown(path, 2), "UPDATE log SET created_us = created_us + 1")
    before = _files(tmp_path)

    for _ in range(2):
        with pytest.raises(LogFull, match="needs"):
            rewritten(path, Rewrite(lambda _: None, lambda _: 0))
        _require_unchanged(tmp_path, before)

    assert rewritten(path, Rewrite(lambda _: None, lambda _: 1 << 40))
    assert WAL not in _files(tmp_path)


def test_a_start_that_fails_in_its_transaction_leaves_the_write_ahead_log_where_it_is(tmp_path):
    """The writing connection does not close last, whatever the reason."""
    path = tmp_path / FILE
    _killed(grown(path, 2), "UPDATE log SET created_us = created_us + 1")
    before = {name: content for name, content in _files(tmp_path).items() if name != INDEX}

    def refuse(_: object) -> None:
        raise LogCorrupt("found while preparing")

    for _ in range(2):
        with pytest.raises(LogCorrupt, match="found while preparing"):
            SqliteEventLog.open(path, clock_us=lambda: 1, prepare=refuse)
        _require_unchanged(tmp_path, before)


def _killed(path: Path, change: str) -> None:
    """Leave the file as a process does that is killed after `change`, which only the write-ahead log has."""
    if not path.exists():
        grown(path, 2)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute(change)
        database.commit()
        _copy_of_killed(path, path.with_name("killed.db"))
    _copy_of_killed(path.with_name("killed.db"), path)


def _copy_of_killed(source: Path, target: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        shutil.copyfile(f"{source}{suffix}", f"{target}{suffix}")


def _require_unchanged(folder: Path, before: Files) -> None:
    found = _files(folder)
    assert {name: found.get(name) for name in before} == before
    assert set(found) - set(before) <= {LOCK, INDEX}


def _flipped(content: bytes, place: int) -> bytes:
    """The content with one bit changed, at one of PLACES from its beginning to its end."""
    changed_content = bytearray(content)
    changed_content[(2 * place + 1) * len(content) // (2 * PLACES)] ^= 1 << (place % 8)
    return bytes(changed_content)


def _put(files: Files, folder: Path) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _files(folder: Path) -> Files:
    return {name: (folder / name).read_bytes() for name in os.listdir(folder)}


def _start(folder: Path) -> str:
    async def start() -> None:
        async with sidecar(folder):
            pass

    with pytest.raises(LogCorrupt) as refusal:
        asyncio.run(start())
    return str(refusal.value)


def _served(folder: Path) -> int:
    async def served() -> int:
        async with sidecar(folder) as s:
            return len((await s.chat().context()).messages)

    return asyncio.run(served())


def _verify(folder: Path) -> str:
    return _refused(folder, "verify")


def _rebuild(folder: Path) -> str:
    return _refused(folder, "rebuild")


def _refused(folder: Path, command: str) -> str:
    ran: Result = CliRunner().invoke(main, ["log", command, str(folder / FILE)])
    assert ran.exit_code == 1
    return ran.output
