"""A purge leaves no byte of a blanked payload, or of a dropped snapshot, in the files of a log."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

from abridged.eventlog.sqlite.backend import SqliteBackend
from tests.support.event_logs import NOTES, A, Clock, append, event

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
            connection.exec_driver_sql("SELECT count(*) FROM events").all()
            log.blank(A, {1: b""})
            return log.purge()

        assert not log.read(blanked_meanwhile)
        assert log.purge()
        assert _left(path) == 0
