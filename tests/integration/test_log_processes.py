"""Several processes write and follow one log in PostgreSQL, and one of them is killed: the judge of histories finds
nothing wrong with what each has seen."""

from __future__ import annotations

from pathlib import Path

import pytest

psycopg = pytest.importorskip("psycopg", reason="needs psycopg, of the extra abridged[postgres]")

from tests.support.failover import until  # noqa: E402 - skipped without its driver
from tests.support.histories import contradictions  # noqa: E402 - skipped without its driver
from tests.support.log_processes import LogProcess, acks_of, looks_of  # noqa: E402 - skipped without its driver
from tests.support.postgres_server import schema_url  # noqa: E402 - skipped without its driver

LINES = 150


def test_what_several_processes_see_of_a_log_agrees(tmp_path: Path):
    """Acknowledged events are at their places without a gap, in the order of their calls, and readers follow."""
    url = schema_url(tmp_path)
    writers = [LogProcess("write", url, number) for number in range(3)]
    readers = [LogProcess("read", url, number) for number in range(2)]
    until(lambda: all(len(process.lines) > LINES for process in writers))
    writers[0].kill()
    known = len(writers[1].lines)
    until(lambda: len(writers[1].lines) > known + LINES)
    for process in (*writers[1:], *readers):
        process.stop()

    with psycopg.connect(url) as connection:
        places = connection.execute("SELECT position, event_id FROM events ORDER BY position").fetchall()
    acks = [ack for writer in writers for ack in acks_of(writer.lines)]
    looks = [look for reader in readers for look in looks_of(reader.lines)]

    assert contradictions(places, acks, looks) == []
    assert len(places) > len(writers) * LINES
    assert all(sum(len(look.places) for look in looks_of(reader.lines)) > LINES for reader in readers)
