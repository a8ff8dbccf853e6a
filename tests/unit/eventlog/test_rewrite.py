"""A log written anew has every event, whenever its process is killed; until then its file is as it was."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from eventlog.errors import LogCorrupt, LogForeign, LogFull, LogLocked
from eventlog.sqlite.file import FileLock, volume_free_bytes
from eventlog.sqlite.rewrite import BATCH_EVENTS, ROOM_SHARE, Rewrite, Rewritten, is_older, rewritten
from eventlog.sqlite.verification import LogVerification
from tests.support.older_logs import older, older_and_long
from tests.support.read_tables import asked, changed, grown

FILE = "log.db"
LOCK = f"{FILE}.lock"
SEALED = (
    "SELECT position, stream, version, event_id, time_us, substr(content_hash, 1, 16), commitment, chain, salt, "
    "payload FROM events ORDER BY position"
)
REQUESTS = "SELECT stream, key, substr(content_hash, 1, 16), first_position, last_position, last_version FROM requests"
CONVERSATIONS, MESSAGES = 4, 1_500
"""More events than a batch has."""


@pytest.fixture(scope="module")
def now(tmp_path_factory) -> Path:
    return grown(tmp_path_factory.mktemp("now") / FILE, CONVERSATIONS, messages=MESSAGES)


@pytest.fixture
def of_0001(tmp_path: Path, now: Path) -> Path:
    return older(tmp_path / FILE, now)


def test_a_log_of_the_first_schema_is_written_anew_with_every_event_and_request(of_0001: Path):
    """In a file that is smaller, and whole to SQLite and to the chains."""
    before = [asked(of_0001, query) for query in (SEALED, REQUESTS)]
    walked: list[tuple[int, int]] = []

    done = _written(of_0001, walked=lambda *progress: walked.append(progress))

    assert [asked(of_0001, query) for query in (SEALED, REQUESTS)] == before
    total = CONVERSATIONS * (MESSAGES + 1)
    assert done is not None
    assert (done.events, walked) == (total, [(BATCH_EVENTS, total), (total, total)])
    assert done.bytes_after == of_0001.stat().st_size < done.bytes_before
    with LogVerification.opened(of_0001) as verification:
        assert list(verification.structure()) == []
        assert all(sum(map(len, verification.pages(stream))) == n for stream, n in verification.streams().items())


def test_a_log_that_is_not_to_go_on_is_as_it_was(of_0001: Path):
    """Before the copy or in its middle; nothing is left beside it."""
    before = of_0001.read_bytes()
    copied: list[int] = []

    assert _written(of_0001, walked=lambda done, _: copied.append(done), goes_on=lambda: not copied) is None
    assert copied == [BATCH_EVENTS]
    assert _written(of_0001, goes_on=lambda: False) is None

    assert _files(of_0001) == {FILE: before, LOCK: b""}


def test_a_check_that_takes_long_does_not_delay_a_stop(tmp_path: Path):
    """SQLite's own check of the file is asked in its middle too."""
    path = older_and_long(tmp_path / FILE, 20_000)
    asks = count()

    assert _written(path, free_bytes=_never_asked, goes_on=lambda: next(asks) < 2) is None


def test_a_log_without_room_beside_it_is_refused_with_what_is_needed_and_what_is_there(of_0001: Path):
    """Before anything is written."""
    before = of_0001.read_bytes()
    needed = len(before) + len(before) // ROOM_SHARE

    with pytest.raises(LogFull, match=rf"needs {needed / (1 << 20):,.1f} MiB .* and 0.5 MiB are free"):
        _written(of_0001, free_bytes=lambda _: 1 << 19)

    assert _files(of_0001) == {FILE: before, LOCK: b""}
    assert _written(of_0001, free_bytes=lambda _: needed) is not None


def test_a_log_that_is_already_packed_fits_into_the_room_that_is_asked_for(tmp_path: Path, now: Path):
    """Its indexes are filled in another order than SQLite's own packing fills them."""
    packed = tmp_path / FILE
    with closing(sqlite3.connect(now)) as database:
        database.execute("VACUUM INTO ?", (str(packed),))
    before = packed.stat().st_size

    _written(packed)

    assert packed.stat().st_size <= before + before // ROOM_SHARE


def test_what_a_killed_process_left_in_the_write_ahead_log_is_written_too(tmp_path: Path, now: Path):
    """And none of it is left beside the new file, whose pages are others."""
    path = tmp_path / FILE
    with closing(sqlite3.connect(older(tmp_path / "open.db", now))) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("INSERT INTO streams VALUES (99, 'default', 'late')")
        database.commit()
        for suffix in ("", "-wal"):
            (tmp_path / f"{FILE}{suffix}").write_bytes((tmp_path / f"open.db{suffix}").read_bytes())
    assert (tmp_path / f"{FILE}-wal").stat().st_size

    _written(path)

    assert asked(path, "SELECT name FROM streams WHERE id = 99") == [("late",)]
    assert {LOCK, FILE} == {name for name in os.listdir(tmp_path) if name.startswith(FILE)}


@pytest.mark.parametrize("damage", ["sqlite_autoindex_streams_1", "events"])
def test_a_log_whose_own_tables_are_damaged_is_not_written_anew(of_0001: Path, damage: str):
    """A copy would agree with itself, and nothing would tell of the damage any longer."""
    ((root,),) = asked(of_0001, "SELECT rootpage FROM sqlite_schema WHERE name = ?", damage)
    damaged = bytearray(of_0001.read_bytes())
    damaged[(root - 1) * 4_096 + 8] ^= 1
    of_0001.write_bytes(damaged)
    before = _files(of_0001)

    with pytest.raises(LogCorrupt, match=r"damaged|malformed"):
        _written(of_0001)

    assert _files(of_0001) == before | {LOCK: b""}


def test_a_log_of_a_revision_that_never_was_is_refused(of_0001: Path):
    """Damaged, not older."""
    changed(of_0001, "UPDATE eventlog_revision SET version_num = '0000'")

    assert not is_older(of_0001)
    with pytest.raises(LogCorrupt, match="revision"):
        _written(of_0001)


def test_an_empty_file_is_made_no_log(tmp_path: Path):
    """Nor is it locked."""
    (tmp_path / FILE).touch()

    with pytest.raises(LogForeign, match="it is empty"):
        _written(tmp_path / FILE)

    assert os.listdir(tmp_path) == [FILE]


def test_the_log_of_another_process_is_left_alone(of_0001: Path):
    """It is its own."""
    lock = FileLock(of_0001.with_name(LOCK))
    try:
        with pytest.raises(LogLocked):
            _written(of_0001)
    finally:
        lock.release()


_KILLED = """
import os, signal, sys
from pathlib import Path
from eventlog.sqlite.rewrite import Rewrite, rewritten

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
rewritten(Path(sys.argv[1]), Rewrite(die, lambda _: 1 << 40, die))
"""
"""Ends itself before one of the steps that change files, or behind a batch, by their count."""


def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, now: Path):
    """The next process finds the old file or the new one, and writes the old one again."""
    path = older(tmp_path / FILE, now)
    before = asked(path, SEALED)
    found: list[bool] = []

    for step in count():
        ended = subprocess.run([sys.executable, "-c", _KILLED, str(path), str(step)], check=False).returncode
        assert asked(path, SEALED) == before
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        found.append(is_older(path))

    assert found.count(True) > 8
    assert not is_older(path)
    assert _names(path) == {FILE, LOCK}
    with LogVerification.opened(path) as verification:
        assert list(verification.structure()) == []


def _written(
    path: Path,
    *,
    free_bytes: Callable[[Path], int] = volume_free_bytes,
    walked: Callable[[int, int], None] = lambda _done, _total: None,
    goes_on: Callable[[], bool] = lambda: True,
) -> Rewritten | None:
    return rewritten(path, Rewrite(lambda _: None, free_bytes, walked, goes_on))


def _never_asked(_: Path) -> int:
    raise AssertionError("the check comes first")


def _names(path: Path) -> set[str]:
    return set(os.listdir(path.parent))


def _files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}
