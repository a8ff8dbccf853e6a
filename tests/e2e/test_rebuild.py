"""A read table made again by real processes: killed in the middle, stopped in the middle, and by hand."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from abridged.service.cli.main import main
from abridged.service.conversations.row import READ_TABLE
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import conversation_service_pb2_grpc
from tests.support.command import FREE_PORTS
from tests.support.crash_process import SidecarProcess, until_answered
from tests.support.read_tables import asked, changed, grown
from tests.support.sidecar import said, sidecar

CONVERSATIONS = 5_000
"""Conversations whose rebuild takes a second: long enough to be met in the middle."""

OLDER = f"UPDATE projections SET version = {READ_TABLE.version - 1}"
NEWER = f"UPDATE projections SET version = {READ_TABLE.version + 1}"


@pytest.fixture
def process(tmp_path: Path) -> SidecarProcess:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = SidecarProcess(tmp_path, http_listen=f"127.0.0.1:{port}", log_level="info")
    grown(made.log_path, CONVERSATIONS)
    changed(made.log_path, OLDER)
    return made


async def test_a_kill_in_the_middle_of_a_rebuild_loses_nothing(process: SidecarProcess):
    """While it runs the sidecar says why it is not ready, and is alive; the next process begins again and serves."""
    try:
        process.start()
        said = await process.until_check("read_table", lambda ready: "made again" in ready and ": 0 of" not in ready)
        assert f" of {2 * CONVERSATIONS:,} events" in said
        assert [(await process.http(path))[0] for path in ("/livez", "/startupz", "/readyz")] == [200, 200, 503]
        await process.kill()
        ((complete, rows),) = asked(
            process.log_path, "SELECT complete, (SELECT count(*) FROM conversations) FROM projections"
        )
        assert (complete, rows < CONVERSATIONS) == (0, True)

        process.start()
        async with process.channel() as channel:
            stub = conversation_service_pb2_grpc.ConversationServiceStub(channel)
            page = await until_answered(lambda: stub.ListConversations(api.ListConversationsRequest(page_size=2)))
        assert [c.id for c in page.conversations] == [f"c{CONVERSATIONS - 1:06}", f"c{CONVERSATIONS - 2:06}"]
        assert await process.until_check("read_table", lambda ready: ready == "ok")
        assert asked(process.log_path, "SELECT count(*) FROM conversations") == [(CONVERSATIONS,)]
        assert await process.stop() == 0
    finally:
        process.abandon()


async def test_a_stop_in_the_middle_of_a_rebuild_is_a_stop_in_good_order(process: SidecarProcess):
    """SIGTERM does not wait for the rest of the log."""
    try:
        process.start()
        await process.until_check("read_table", lambda ready: "made again" in ready and ": 0 of" not in ready)

        assert await process.stop() == 0, process.errors()
        assert asked(process.log_path, "SELECT complete FROM projections") == [(0,)]
    finally:
        process.abandon()


def test_the_table_of_a_newer_version_is_made_again_by_hand(tmp_path):
    """`serve` refuses it and names the command; after that the log opens."""
    path = grown(tmp_path / "log.db", 3)
    changed(path, NEWER)

    refused = _run("serve", "--set", f"log.path={path}", "--set", "summarizer.models=extractive:")
    assert refused.exit_code == 1
    assert "`abridged log rebuild` makes it again" in refused.stderr
    assert (
        "not checked: the read table, because it was made by a newer version" in _run("log", "verify", str(path)).stderr
    )

    made = _run("log", "rebuild", str(path))
    assert (made.exit_code, made.stdout) == (0, "ok: 3 conversations from 6 events\n")
    verified = _run("log", "verify", str(path))
    assert (verified.exit_code, verified.stderr) == (0, "")


def test_a_rebuild_by_hand_drops_the_snapshots_of_a_long_conversation(tmp_path):
    """The conversation is read from its events then."""
    path = tmp_path / "abridged.db"
    asyncio.run(_long_conversation(tmp_path))
    before = _snapshots(path)

    made = _run("log", "rebuild", str(path))

    assert made.exit_code == 0
    assert (before, _snapshots(path)) == (1, 0)


async def _long_conversation(folder: Path) -> None:
    """One that is long enough for a snapshot, closed and opened again."""
    async with sidecar(folder) as s:
        await s.chat(context_length=1_000_000).append(*(said(n, tokens=1) for n in range(1, 301)))
    async with sidecar(folder) as s:
        assert len((await s.chat().context()).messages) == 300


def _snapshots(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        there = database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'snapshots'").fetchone()
        return int(database.execute("SELECT count(*) FROM snapshots").fetchone()[0]) if there else 0


def test_a_rebuild_by_hand_says_what_it_had_to_leave_out(tmp_path):
    """The rebuild is no success."""
    path = grown(tmp_path / "log.db", 3)
    changed(path, "UPDATE events SET payload = X'00' WHERE stream = 2 AND version = 2")

    made = _run("log", "rebuild", str(path))

    assert made.exit_code == 1
    assert made.stdout == "left out  default/c000001: position 4 is not what was written\n"
    assert "1 of 3 conversations cannot be read" in made.stderr


@pytest.mark.parametrize("command", [("serve", "--set", "summarizer.models=extractive:"), ("log", "rebuild")])
def test_another_programs_file_is_named_as_such_and_left_as_it_was(tmp_path, command):
    """The command writes no table, mode or file beside it; it prints one line and its advice, not database text."""
    (tmp_path / "junk.db").write_bytes(b"name,amount\n" * 100)
    with closing(sqlite3.connect(tmp_path / "app.db")) as app:
        app.execute("CREATE TABLE users (name)")
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    before = _files(tmp_path)

    for name, what in (
        ("junk.db", "junk.db is not an abridged log (not an SQLite file)\n"),
        ("app.db", "app.db is an SQLite database of something else, not an abridged log (no eventlog_revision)\n"),
    ):
        ran = _run(*command, "--set", f"log.path={tmp_path / name}")
        assert ran.exit_code == 1
        first, rest = ran.stderr.split(what)
        assert (first, "log.path" in rest, rest.count("\n")) == (f"abridged: {tmp_path}/", True, 1)

    assert _files(tmp_path) == before


def test_a_rebuild_by_hand_makes_no_log(tmp_path):
    """The command names a mistyped file, and leaves no empty one under it."""
    made = _run("log", "rebuild", "--set", f"log.path={tmp_path / 'typo.db'}")

    assert made.exit_code == 2
    assert "there is no log at" in made.stderr
    assert not (tmp_path / "typo.db").exists()


async def test_the_table_of_a_running_sidecar_is_left_alone(tmp_path):
    """The sidecar owns the table."""
    async with sidecar(tmp_path):
        made = await asyncio.to_thread(_run, "log", "rebuild", str(tmp_path / "abridged.db"))

    assert made.exit_code == 1
    assert "stop the sidecar, then run this again" in made.stderr


def _files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mode, path.read_bytes()) for path in folder.iterdir()}


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env=FREE_PORTS)
