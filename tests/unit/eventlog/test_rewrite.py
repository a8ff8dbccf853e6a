"""A log written anew has every event, whenever its process is killed; until then its file is as it was."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.errors import LogCorrupt, LogForeign, LogFull, LogLocked
from abridged.eventlog.sqlite.file import FileLock, volume_free_bytes
from abridged.eventlog.sqlite.rewrite import ROOM_SHARE, Rewrite, rewritten
from abridged.eventlog.sqlite.rows import SqliteRows
from abridged.eventlog.sqlite.verification import SqliteVerification
from abridged.service.conversations.row import READ_TABLE
from tests.support.read_tables import asked, changed, grown

FILE = "log.db"
LOCK = f"{FILE}.lock"
TABLES = ("log", "streams", "types", "events", "requests")
CONVERSATIONS, MESSAGES = 4, 1_500
"""More than SQLite copies between two looks at whether to go on."""


@pytest.fixture(scope="module")
def now(tmp_path_factory) -> Path:
    made = grown(tmp_path_factory.mktemp("now") / FILE, CONVERSATIONS, messages=MESSAGES)
    changed(made, "VACUUM")
    return made


@pytest.fixture
def path(tmp_path: Path, now: Path) -> Path:
    return Path(shutil.copy(now, tmp_path / FILE))


def rows(path: Path) -> list[list[Any]]:
    """All rows of the log's own tables."""
    return [sorted(asked(path, f"SELECT * FROM {table}")) for table in TABLES]


def test_a_log_is_written_anew_with_every_row(path: Path):
    """The new file has no read table, and is whole to SQLite and to the chains."""
    before = rows(path)
    assert _has_read_table(path)

    assert _written(path)

    assert rows(path) == before
    assert not _has_read_table(path)
    with SqliteVerification.opened(path, SqliteRows(READ_TABLE)) as verification:
        assert list(verification.structure()) == []
        assert all(sum(map(len, verification.pages(stream))) == n for stream, n in verification.streams().items())


def test_a_log_that_is_not_to_go_on_is_as_it_was(path: Path):
    """The stop may come before the copy or in its middle; nothing is left beside the log."""
    before = path.read_bytes()
    new = path.with_name(f"{FILE}.new")

    assert not _written(path, goes_on=lambda: not new.exists())
    assert not _written(path, goes_on=lambda: False)

    assert _files(path) == {FILE: before, LOCK: b""}


def test_a_check_that_takes_long_does_not_delay_a_stop(path: Path):
    """SQLite's own check of the file is asked in its middle too."""
    asks = count()

    assert not _written(path, free_bytes=_never_asked, goes_on=lambda: next(asks) < 1)


def test_a_log_without_room_beside_it_is_refused_with_what_is_needed_and_what_is_there(path: Path):
    """The refusal comes before anything is written."""
    before = path.read_bytes()
    needed = len(before) + len(before) // ROOM_SHARE

    with pytest.raises(LogFull, match=rf"needs {needed / (1 << 20):,.1f} MiB .* and 0.5 MiB are free"):
        _written(path, free_bytes=lambda _: 1 << 19)

    assert _files(path) == {FILE: before, LOCK: b""}
    assert _written(path, free_bytes=lambda _: needed)


def test_a_log_that_is_already_packed_fits_into_the_room_that_is_asked_for(tmp_path: Path, now: Path):
    """The log's indexes are filled in another order than SQLite's own packing fills them."""
    packed = tmp_path / FILE
    with closing(sqlite3.connect(now)) as database:
        database.execute("VACUUM INTO ?", (str(packed),))
    before = packed.stat().st_size

    _written(packed)

    assert packed.stat().st_size <= before + before // ROOM_SHARE


def test_what_a_killed_process_left_in_the_write_ahead_log_is_written_too(tmp_path: Path, now: Path):
    """The write-ahead log does not stay beside the new file, whose pages are others."""
    path = tmp_path / FILE
    with closing(sqlite3.connect(shutil.copy(now, tmp_path / "open.db"))) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("INSERT INTO streams VALUES (99, 'default', 'late')")
        database.commit()
        for suffix in ("", "-wal"):
            (tmp_path / f"{FILE}{suffix}").write_bytes((tmp_path / f"open.db{suffix}").read_bytes())
    assert (tmp_path / f"{FILE}-wal").stat().st_size

    _written(path)

    assert {LOCK, FILE} == {name for name in os.listdir(tmp_path) if name.startswith(FILE)}
    assert asked(path, "SELECT name FROM streams WHERE id = 99") == [("late",)]


@pytest.mark.parametrize("damage", ["sqlite_autoindex_streams_1", "events"])
def test_a_log_whose_own_tables_are_damaged_is_not_written_anew(path: Path, damage: str):
    """A copy would agree with itself, and nothing would tell of the damage any longer."""
    ((root,),) = asked(path, "SELECT rootpage FROM sqlite_schema WHERE name = ?", damage)
    damaged = bytearray(path.read_bytes())
    damaged[(root - 1) * 4_096 + 8] ^= 1
    path.write_bytes(damaged)
    before = _files(path)

    with pytest.raises(LogCorrupt, match=r"damaged|malformed"):
        _written(path)

    assert _files(path) == before | {LOCK: b""}


def test_a_log_whose_revision_is_no_text_is_refused_as_damaged(path: Path):
    """The driver raises that error itself, and gives it no code of SQLite's."""
    changed(path, "UPDATE eventlog_revision SET version_num = CAST(x'ff' AS TEXT)")
    before = _files(path)

    with pytest.raises(LogCorrupt, match="a stored text is not UTF-8"):
        _written(path)

    assert _files(path) == before | {LOCK: b""}


def test_an_empty_file_is_made_no_log(tmp_path: Path):
    """Nor is it locked."""
    (tmp_path / FILE).touch()

    with pytest.raises(LogForeign, match="it is empty"):
        _written(tmp_path / FILE)

    assert os.listdir(tmp_path) == [FILE]


def test_a_copy_that_its_caller_cannot_fill_leaves_the_file_as_it_was(path: Path):
    """The copy is gone, too."""
    before = _files(path)

    def fill(new: Path) -> None:
        assert new.parent == path.parent
        raise LogCorrupt("a reason")

    with pytest.raises(LogCorrupt, match="a reason"):
        rewritten(path, Rewrite(lambda _: None, volume_free_bytes, fill=fill))

    assert _files(path) == {LOCK: b"", **before}


def test_the_log_of_another_process_is_left_alone(path: Path):
    """The other process owns the log."""
    lock = FileLock(path)
    try:
        with pytest.raises(LogLocked):
            _written(path)
    finally:
        lock.close()


_KILLED = """
import os, signal, sys
from pathlib import Path
from abridged.eventlog.sqlite.rewrite import Rewrite, rewritten

left = int(sys.argv[2])

def die(*_):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

def seen(event, arguments):
    if event in ("os.remove", "os.rename", "sqlite3.connect") or (event == "open" and sys.argv[1] in str(arguments[0])):
        die()

sys.addaudithook(seen)
rewritten(Path(sys.argv[1]), Rewrite(die, lambda _: 1 << 40, carry=die))
"""
"""Ends itself before one of the steps that change files, or after the copy, by their count."""


def test_a_kill_at_any_step_loses_nothing(path: Path):
    """The next process finds the old file or the new one, and writes the old one again."""
    before = rows(path)
    found: list[bool] = []

    for step in count():
        ended = subprocess.run([sys.executable, "-c", _KILLED, str(path), str(step)], check=False).returncode
        names = _names(path)  # before anybody reads the file
        assert rows(path) == before
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        found.append(_has_read_table(path))

    assert found.count(True) > 8
    assert not _has_read_table(path)
    assert names == {FILE, LOCK}
    with SqliteVerification.opened(path, SqliteRows(READ_TABLE)) as verification:
        assert list(verification.structure()) == []


def _written(
    path: Path,
    *,
    free_bytes: Callable[[Path], int] = volume_free_bytes,
    goes_on: Callable[[], bool] = lambda: True,
) -> bool:
    return rewritten(path, Rewrite(lambda _: None, free_bytes, goes_on))


def _has_read_table(path: Path) -> bool:
    return asked(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'conversations'") == [(1,)]


def _never_asked(_: Path) -> int:
    raise AssertionError("the check comes first")


def _names(path: Path) -> set[str]:
    return set(os.listdir(path.parent))


def _files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}
