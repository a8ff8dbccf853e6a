"""A conversation with a damaged event: from the first read that meets the damage on it is refused, in every process and
after a rebuild, and its state is kept in the file.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from abridged.eventlog.snapshots import SET_ASIDE
from abridged.eventlog.sqlite.snapshots import ASIDE
from abridged.service.cli.main import main
from abridged.service.codec.state import state_from_bytes
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2 as log
from tests.support.broken_log import Connections, connections, damaged
from tests.support.read_tables import asked, changed, grown
from tests.support.refusal import Refusal, refused
from tests.support.searching import WORDS, searched
from tests.support.sidecar import Sidecar, said, sidecar

FILE = "abridged.db"
MESSAGES = 300
DAMAGED_VERSION = 50
AHEAD = 7
"""Events of another conversation before the damaged one: its positions are that much more than its versions."""

KEPT = "SELECT event_version FROM snapshots_set_aside"
LIVE = "SELECT event_version FROM snapshots"


async def read_events(s: Sidecar) -> None:
    await s.event_log.ReadEvents(log.ReadEventsRequest(conversation_id="long", limit=1_000))


async def read_all_events(s: Sidecar) -> None:
    await s.event_log.ReadEvents(log.ReadEventsRequest(limit=1_000))


async def subscribe(s: Sidecar) -> None:
    async for _ in s.event_log.SubscribeEvents(log.SubscribeEventsRequest()):
        pass


async def watch(s: Sidecar) -> None:
    async for _ in s.conversations.WatchConversation(api.WatchConversationRequest(conversation_id="long")):
        pass


async def all_messages(s: Sidecar) -> None:
    await s.chat("long").context(view=api.CONTEXT_VIEW_ORIGINAL)


async def search(s: Sidecar) -> None:
    await searched(s, _text("long", DAMAGED_VERSION - 1))


READS = [read_events, read_all_events, subscribe, watch, all_messages, search]


@pytest.mark.parametrize("read", READS, ids=lambda read: read.__name__)
async def test_nothing_is_served_once_a_read_has_met_the_damage(
    tmp_path: Path, read: Callable[[Sidecar], Awaitable[None]]
) -> None:
    """Memory and the snapshot do not serve it either, before or after a restart; the snapshot is kept."""
    await _built(tmp_path)
    async with sidecar(tmp_path, WORDS) as s:
        assert len((await s.chat("long").context()).messages) == MESSAGES
        async with refused("DATA_LOSS", "LOG_CORRUPT"):
            await read(s)
        assert (asked(tmp_path / FILE, LIVE), asked(tmp_path / FILE, KEPT)[-1:]) == ([], [(MESSAGES + 1,)])
        await _is_refused(s)
    async with sidecar(tmp_path) as s:
        await _is_refused(s)


async def test_the_refusal_names_the_event_by_its_version_and_the_next_step(tmp_path: Path) -> None:
    """The event's position would tell how much others write."""
    await _built(tmp_path)
    async with sidecar(tmp_path) as s:
        async with refused("DATA_LOSS", "LOG_CORRUPT") as refusal:
            await read_events(s)
        (line,) = [line for line in s.logs if line["event"] == "rpc.failed"]

    assert refusal.text.startswith(f"event {DAMAGED_VERSION} of conversation long is damaged, so")
    assert "`abridged log verify`" in refusal.text
    assert "its events were not changed" in refusal.text
    assert refusal.metadata == {"conversation_id": "long", "version": str(DAMAGED_VERSION)}
    assert str(DAMAGED_VERSION + AHEAD) not in refusal.text
    assert (line["conversation_id"], line["event_version"]) == ("long", DAMAGED_VERSION)


@pytest.mark.parametrize("change", ["UPDATE events SET schema_version = -1", "DELETE FROM events"])
@pytest.mark.parametrize("position", [1, 5, 11])
async def test_a_state_that_was_in_memory_alone_is_kept(tmp_path: Path, position: int, change: str) -> None:
    """No snapshot had been written of it: it has the message that the log has lost, be it the newest."""
    async with sidecar(tmp_path) as s:
        await s.chat("long").append(*(said(n, tokens=1) for n in range(1, 11)))
        with closing(sqlite3.connect(tmp_path / FILE)) as database:
            database.execute(f"{change} WHERE position = {position}")
            database.commit()
        async with refused("DATA_LOSS", "LOG_CORRUPT"):
            await read_events(s)
        await _is_refused(s)

    ((data,),) = asked(tmp_path / FILE, "SELECT state FROM snapshots_set_aside WHERE event_version = 11")
    assert [m.message.id for m in state_from_bytes(data).window] == [f"m{n}" for n in range(1, 11)]


@pytest.mark.parametrize("pragma", ["max_page_count = 1", "query_only = 1"], ids=["full", "read-only"])
async def test_a_snapshot_that_cannot_be_set_aside_is_where_it_was_until_it_can(tmp_path: Path, pragma: str) -> None:
    """The conversation is refused all the same; the others are read, and written as soon as the file can be."""
    await _built(tmp_path)
    with connections() as opened:
        async with sidecar(tmp_path) as s:
            await s.chat("long").context()
            writer = _first_open(opened)
            writer.execute(f"PRAGMA {pragma}").fetchall()
            async with refused("DATA_LOSS", "LOG_CORRUPT"):
                await read_events(s)
            await _is_refused(s)
            assert "snapshot.not_set_aside" in {line["event"] for line in s.logs}
            assert asked(tmp_path / FILE, LIVE) == [(MESSAGES + 1,)]
            writer.execute("PRAGMA query_only = 0").fetchall()
            writer.execute("PRAGMA max_page_count = 1000000").fetchall()
            await s.chat("other").append(said(100))
            await _is_refused(s)
    assert (asked(tmp_path / FILE, LIVE), asked(tmp_path / FILE, KEPT)[-1:]) == ([], [(MESSAGES + 1,)])


@pytest.mark.parametrize("times", [1, 2])
def test_a_rebuild_keeps_the_snapshot_of_a_damaged_conversation_and_says_so(tmp_path: Path, times: int) -> None:
    """The next rebuild keeps it, too; a rebuild's words on the conversation are those of the refusal before."""
    asyncio.run(_built(tmp_path))
    before = asyncio.run(_read_once(tmp_path, read_events))

    for _ in range(times):
        ran = _rebuilt(tmp_path / FILE)

    assert ran.exit_code == 1
    assert f"left out  default/long: position {DAMAGED_VERSION + AHEAD} is not what was written" in ran.stdout
    assert f"kept      default/long: its snapshot at event {MESSAGES + 1}, in snapshots_set_aside" in ran.stdout
    assert (asked(tmp_path / FILE, LIVE), asked(tmp_path / FILE, KEPT)) == ([], [(MESSAGES + 1,)])
    after = asyncio.run(_read_once(tmp_path, lambda s: s.chat("long").context()))
    assert (after.text, after.metadata) == (before.text, before.metadata)


def test_a_rebuild_that_meets_the_damage_first_keeps_the_snapshot(tmp_path: Path) -> None:
    """The snapshot stays as it was written, seal and all."""
    asyncio.run(_built(tmp_path))
    before = asked(tmp_path / FILE, "SELECT * FROM snapshots")

    _rebuilt(tmp_path / FILE)

    assert asked(tmp_path / FILE, "SELECT * FROM snapshots_set_aside") == before
    assert asked(tmp_path / FILE, LIVE) == []


async def test_a_start_that_makes_the_read_table_again_keeps_the_snapshot(tmp_path: Path) -> None:
    """Another version of the program is no reason to lose it."""
    await _built(tmp_path)
    changed(tmp_path / FILE, "UPDATE projections SET version = 1")

    async with sidecar(tmp_path) as s:
        await _is_refused(s)

    assert (asked(tmp_path / FILE, LIVE), asked(tmp_path / FILE, KEPT)) == ([], [(MESSAGES + 1,)])


def test_a_rebuild_keeps_what_is_set_aside(tmp_path: Path) -> None:
    """The rebuild writes the file anew."""
    path = grown(tmp_path / FILE, 1)
    row = ("default", "gone", 301, 308, b"chain", "codec", b"state", b"seal")
    with closing(sqlite3.connect(path)) as database:
        database.execute(ASIDE.creation())
        database.execute(f"INSERT INTO {SET_ASIDE} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        database.commit()

    _rebuilt(path)

    assert asked(path, f"SELECT * FROM {SET_ASIDE}") == [row]


def test_a_rebuild_keeps_what_it_can_read_of_damaged_snapshots(tmp_path: Path) -> None:
    """A page that is lost takes one of them along, and neither the others nor the rebuild."""
    asyncio.run(_built(tmp_path, "another"))
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as database:
        database.execute("VACUUM")  # no page has bytes of another one that was there before
    content = bytearray((tmp_path / FILE).read_bytes())
    ((state,),) = asked(tmp_path / FILE, "SELECT state FROM snapshots WHERE id = 'another'")
    page = content.index(state[6_000:6_100]) // 4_096
    content[page * 4_096 : page * 4_096 + 4] = b"\xff" * 4
    (tmp_path / FILE).write_bytes(content)
    with closing(sqlite3.connect(tmp_path / FILE)) as database, pytest.raises(sqlite3.DatabaseError):
        database.execute("SELECT * FROM snapshots").fetchall()

    ran = _rebuilt(tmp_path / FILE)

    assert f"kept      default/long: its snapshot at event {MESSAGES + 1}" in ran.stdout
    assert asked(tmp_path / FILE, "SELECT id FROM snapshots_set_aside") == [("long",)]


async def _built(folder: Path, *others: str) -> None:
    """A conversation that has a snapshot, damaged before it; and another one, without damage."""
    async with sidecar(folder, WORDS) as s:
        await s.chat("other").append(*(said(n, tokens=1) for n in range(1, AHEAD)))
        for name in ("long", *others):
            chat = s.chat(name, context_length=1_000_000)
            await chat.append(*(said(n, _text(name, n), tokens=1) for n in range(1, MESSAGES + 1)))
    async with sidecar(folder, WORDS) as s:
        for name in ("long", *others):
            await s.chat(name).context()
        await searched(s, "anything")  # so that the index has all of it
    damaged(folder / FILE, position=DAMAGED_VERSION + AHEAD)


def _text(name: str, number: int) -> str:
    """A text that no compression shortens, so that a snapshot of many takes pages of its own."""
    return Random(f"{name} {number}").randbytes(64).hex()


async def _read_once(folder: Path, read: Callable[[Sidecar], Awaitable[Any]]) -> Refusal:
    """Return the refusal of the read; later reads are refused as well."""
    async with sidecar(folder) as s:
        async with refused("DATA_LOSS", "LOG_CORRUPT") as refusal:
            await read(s)
        await _is_refused(s)
    return refusal


async def _is_refused(s: Sidecar) -> None:
    """The damaged conversation, and no other."""
    async with refused("DATA_LOSS", "LOG_CORRUPT"):
        await s.chat("long").context()
    async with refused("DATA_LOSS", "LOG_CORRUPT"):
        await s.chat("long").append(said(5_000, tokens=1))
    assert await _outcome(s.chat("other").context()) in {"OK", "NOT_FOUND"}


def _first_open(opened: Connections) -> sqlite3.Connection:
    """The writer's connection: those before it have looked at the file, and are closed."""
    for connection in opened.opened:
        try:
            connection.execute("SELECT 1").fetchall()
        except sqlite3.ProgrammingError:
            continue
        return connection
    raise AssertionError("the log is open")


async def _outcome(call: Awaitable[Any]) -> str:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


def _rebuilt(path: Path) -> Result:
    return CliRunner().invoke(main, ["log", "rebuild", str(path)])
