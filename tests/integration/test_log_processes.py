"""Several processes write and follow one log in PostgreSQL, and one of them is killed: the judge of histories finds
nothing wrong with what each has seen.

SIDECAR_EVENTS says how many events four of them write; `make test-sidecars` has a million.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import Path
from time import monotonic, time_ns

import pytest

psycopg = pytest.importorskip("psycopg", reason="needs psycopg, of the extra abridged[postgres]")

from abridged.eventlog.event import StreamId  # noqa: E402 - skipped without its driver
from abridged.eventlog.postgres.connections import Address  # noqa: E402 - skipped without its driver
from abridged.eventlog.postgres.log import PostgresEventLog  # noqa: E402 - skipped without its driver
from tests.support.event_logs import verify_stream  # noqa: E402 - skipped without its driver
from tests.support.failover import until  # noqa: E402 - skipped without its driver
from tests.support.histories import Look, Place, contradictions  # noqa: E402 - skipped without its driver
from tests.support.log_processes import (  # noqa: E402 - skipped without its driver
    EVENTS_PER_S_MIN,
    LogProcess,
    PlainSequence,
    acks_of,
    looks_of,
)
from tests.support.postgres_server import schema_url  # noqa: E402 - skipped without its driver

LINES = 150

EVENTS = int(os.environ.get("SIDECAR_EVENTS", "16000"))
PROCESSES = 4
CLIENTS = 8
READERS = 3
BATCH = 25

PLAIN_EVENTS = 4_000
PLAIN_BATCH = 3
PLAIN_ROUNDS = 5


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

    places = _places(url)
    acks = [ack for writer in writers for ack in acks_of(writer.lines)]
    looks = [look for reader in readers for look in looks_of(reader.lines)]

    assert contradictions(places, acks, looks) == []
    assert len(places) > len(writers) * LINES
    assert all(sum(len(look.places) for look in looks_of(reader.lines)) > LINES for reader in readers)


@pytest.mark.timeout(300 + 4 * EVENTS // EVENTS_PER_S_MIN)
def test_tail_readers_get_every_event_of_four_processes_in_one_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Each reader has the whole log at its end, without a gap, and every acknowledged event is at its place."""
    url = schema_url(tmp_path)
    begun_s = monotonic()
    writers, readers = _run(url, EVENTS, "--batch", str(BATCH))
    seconds = monotonic() - begun_s

    places = _places(url)
    acks = [ack for writer in writers for ack in acks_of(writer.lines)]
    looks = [looks_of(reader.lines) for reader in readers]

    assert contradictions(places, acks, [look for each in looks for look in each]) == []
    assert [_seen(each) == places for each in looks] == [True] * READERS
    assert len(places) == sum(len(ack.places) for ack in acks) == _walked(url)
    assert len(places) >= EVENTS
    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps({'events': len(places), 'appends': len(acks), 'seconds': round(seconds)})}\n")


def test_a_cursor_over_a_plain_sequence_misses_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The control: the same writers and readers, and the judge finds the events that the readers missed."""
    for number in range(PLAIN_ROUNDS):
        url = schema_url(tmp_path / str(number))
        with closing(PlainSequence(url)) as plain:
            plain.create()
            _, readers = _run(url, PLAIN_EVENTS, "--plain", "--batch", str(PLAIN_BATCH))
            places = plain.places()
        looks = [looks_of(reader.lines) for reader in readers]
        missed = [len(places) - len(_seen(each)) for each in looks]
        if any(missed):
            break

    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps({'rows': len(places), 'missed': missed})}\n")
    found = contradictions(places, [], [look for each in looks for look in each])
    assert any(missed)
    assert "prefix" in {contradiction.partition(":")[0] for contradiction in found}


def _run(url: str, events: int, *options: str) -> tuple[list[LogProcess], list[LogProcess]]:
    """Have four processes of eight clients write the events while others follow; return them when all are read."""
    share = str(-(-events // PROCESSES))
    given = ("--clients", str(CLIENTS), "--events", share, *options)
    readers = [LogProcess("read", url, number, *options) for number in range(READERS)]
    writers = [LogProcess("write", url, number, *given) for number in range(PROCESSES)]
    for writer in writers:
        writer.finish(events=events)
    for reader in readers:
        reader.stop(events=events)
    return writers, readers


def _seen(looks: list[Look]) -> list[Place]:
    return [place for look in looks for place in look.places]


def _walked(url: str) -> int:
    """Return the number of events in the hash chains of all streams. Raises where one breaks."""
    streams = [StreamId("default", f"{number}-{client}") for number in range(PROCESSES) for client in range(CLIENTS)]
    with closing(PostgresEventLog.open(Address(url), clock_us=lambda: time_ns() // 1_000)) as log:
        return sum(verify_stream(log, stream).version for stream in streams)


def _places(url: str) -> list[Place]:
    """The places of all events."""
    with psycopg.connect(url) as connection:
        found: list[Place] = connection.execute("SELECT position, event_id FROM events ORDER BY position").fetchall()
        return found
