"""A purge leaves no byte of a blanked payload, of a changed row, or of a dropped snapshot, in the files of a log."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.errors import LogClosed
from abridged.eventlog.event import StreamId
from abridged.eventlog.log import Committed
from abridged.eventlog.sqlite.backend import SqliteBackend
from abridged.eventlog.sqlite.connection import CHECKPOINT_PAGES, readers_of
from abridged.eventlog.sqlite.file import wal_of
from abridged.eventlog.sqlite.reader import SqliteReader
from abridged.eventlog.sqlite.wal import pages_in
from tests.support.event_logs import NOTES, A, B, Clock, Note, append, event, verify_stream
from tests.support.patience import PATIENCE_S

SECRET = b"the word that nobody may read any more "


def _opened(path: Path):
    place = SqliteBackend(path)
    rows = place.rows(NOTES)
    return place.open(rows, clock_us=Clock(), hook=lambda *_: None, on_fatal=lambda _: None)


def _left(path: Path) -> int:
    return sum(each.read_bytes().count(SECRET) for each in path.parent.iterdir() if each.is_file())


def test_no_byte_of_a_blanked_payload_is_left(tmp_path):
    """Payloads of all sizes, on pages of their own too, are overwritten in the file and cut from its log."""
    path, sizes = tmp_path / "log.db", random.Random(1)
    with closing(_opened(path).log) as log:
        for number in range(300):
            log.submit(append(event(number, SECRET * sizes.choice((1, 3, 40, 200, 3_000))))).result()
        assert _left(path) > 300

        for first in range(1, 301, 100):
            log.blank(A, dict.fromkeys(range(first, first + 100), b""))
        assert log.purge()

        assert _left(path) == 0
    assert _left(path) == 0


def test_a_reader_that_is_in_the_way_is_said(tmp_path):
    """While a snapshot of the file is read, its write-ahead log stays."""
    path = tmp_path / "log.db"
    with closing(_opened(path).log) as log:
        log.submit(append(event(1, SECRET))).result()

        def blanked_meanwhile(connection):
            connection.execute("SELECT count(*) FROM events").fetchall()
            log.blank(A, {1: b""})
            return log.purge()

        assert not log.read(blanked_meanwhile)
        assert log.purge()
        assert _left(path) == 0


class Noted:
    """A log with a row for each stream, which has the newest payload too."""

    def __init__(self, path: Path) -> None:
        place = SqliteBackend(path)
        self._rows = place.rows(NOTES)
        self.log = place.open(self._rows, clock_us=Clock(), hook=self._project, on_fatal=lambda _: None).log
        self._events = 0

    def note(self, stream: StreamId, text: str) -> None:
        self._events += 1
        self.log.submit(append(event(self._events, text.encode()), to=stream, projected=text)).result()

    def erase(self, stream: StreamId) -> None:
        """Blank the stream's events and its row, and purge."""
        self.note(stream, "")
        self.log.blank(stream, dict.fromkeys(range(1, self.log.stream_version(stream)), b""))
        assert self.log.purge()

    def _project(self, transaction: Any, committed: Sequence[Committed]) -> None:
        self._rows.put(transaction, [Note(*c.stream, c.events[-1].position, c.projected) for c in committed])


LEAVING = (7, 108, 116, 117)
"""Seeds with which SQLite 3.40 leaves text in the gaps of pages, and so does a purge that writes nothing there."""


@pytest.mark.parametrize("seed", [*LEAVING, *(pytest.param(s, marks=pytest.mark.hostile) for s in range(200, 300))])
def test_no_text_is_left_where_pages_were_balanced(tmp_path, seed):
    """Rows that were written often, with texts of all lengths, and are erased one after the other."""
    chance, path = random.Random(seed), tmp_path / "log.db"
    streams = [StreamId("default", f"c{number:03d}") for number in range(24)]

    def text(stream: StreamId) -> str:
        return f"kestrelwing-{stream.name} " + "t" * chance.randint(0, 900)

    noted = Noted(path)
    with closing(noted.log):
        for stream in (*streams, *(chance.choice(streams) for _ in range(100))):
            noted.note(stream, text(stream))
        for stream in chance.sample(streams, 12):
            noted.erase(stream)

            word = f"kestrelwing-{stream.name} ".encode()
            assert not [each for each in path.parent.iterdir() if word in each.read_bytes()]


def _dirtied(path: Path, text: bytes) -> None:
    """Put the text into the gap of each page, as SQLite may leave it."""
    data = bytearray(path.read_bytes())
    for begin in range(0, len(data), 4_096):
        at = begin + (0 if begin else 100)
        cells, content = (int.from_bytes(data[at + place : at + place + 2], "big") for place in (3, 5))
        gap = slice(at + 12 + 2 * cells, begin + content)
        if data[at] in (2, 5, 10, 13) and gap.stop - gap.start > len(text):
            data[gap.start : gap.start + len(text)] = text
    path.write_bytes(data)


def test_what_was_zeroed_is_not_written_back_from_memory(tmp_path):
    """The connection that writes has read the pages before the purge, and changes them after it."""
    path = tmp_path / "log.db"
    with closing(Noted(path).log) as log:
        for number in range(1, 40):
            log.submit(append(event(number), projected="short")).result()
    _dirtied(path, SECRET)
    noted = Noted(path)
    with closing(noted.log) as log:
        noted._events = 1_000
        noted.note(A, "reads the pages")
        assert _left(path)

        assert log.purge()

        assert _left(path) == 0
        noted.note(A, "writes them")
        assert _left(path) == 0
    assert _left(path) == 0


def test_appends_go_on_while_a_log_is_purged(tmp_path):
    """Pages that they write meanwhile have no old text when the purge returns, and no event is lost."""
    path, ended = tmp_path / "log.db", threading.Event()
    with closing(Noted(path).log) as log:
        for first in range(1, 4_001, 500):
            log.submit(append(*(event(n, b"t" * 1_000) for n in range(first, first + 500)), projected="short")).result()
    _dirtied(path, SECRET)
    noted = Noted(path)
    with closing(noted.log) as log, ThreadPoolExecutor(1) as pool:
        noted._events = 10_000
        noted.note(B, "reads the pages")

        def others() -> int:
            while not ended.is_set():
                noted.note(B, "t" * (noted._events % 900))
            return noted._events - 10_000

        going_on = pool.submit(others)
        while not log.purge():
            pass
        left, during = _left(path), noted._events
        ended.set()
        written = going_on.result(PATIENCE_S)

        assert left == 0
        assert during > 10_001
        assert verify_stream(log, A).version == 4_000
        assert verify_stream(log, B).version == written
    assert _left(path) == 0
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_pinned_file_stays_as_it_is(tmp_path):
    """However much is committed, it is all in the write-ahead log until the pin is taken out."""
    path = tmp_path / "log.db"
    with closing(_opened(path).log) as log, closing(SqliteReader(readers_of(path))) as reader:
        log.submit(append(event(1))).result()
        with reader.pinned() as pin:
            assert log.purge()
            pin()
            pinned = path.read_bytes()
            for number in range(2, 22):
                log.submit(append(event(number, bytes(1_000_000)))).result()
            assert path.read_bytes() == pinned
            assert len(pages_in(wal_of(path))) > 2 * CHECKPOINT_PAGES

        log.submit(append(event(22))).result()
        assert path.stat().st_size > len(pinned)


_SWITCHED = """
import sqlite3, sys
print(sqlite3.connect(sys.argv[1], timeout=0).execute("PRAGMA journal_mode = delete").fetchone())
"""


def test_sqlites_locks_stay_after_a_purge(tmp_path):
    """The locks keep another program from removing the write-ahead log when it closes the file."""
    path = tmp_path / "log.db"
    with closing(_opened(path).log) as log:
        log.submit(append(event(1, SECRET))).result()
        assert log.purge()

        other = subprocess.run([sys.executable, "-c", _SWITCHED, path], capture_output=True, text=True, check=False)

        assert "database is locked" in other.stderr


def test_a_log_that_is_closed_is_purged_no_further(tmp_path):
    """The file's descriptor is another file's by then."""
    log = _opened(tmp_path / "log.db").log
    log.close()

    with pytest.raises(LogClosed):
        log.purge()
