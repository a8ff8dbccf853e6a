"""`abridged log verify`: damage is found and named, and nothing is written."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result

from abridged.eventlog.event import StreamId
from abridged.eventlog.rows import seal_of
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.service.cli.main import main
from abridged.service.conversations.row import Row
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from tests.support.flipped_bits import FILE, Flip, built_log, flipped
from tests.support.log_places import places_of
from tests.support.read_tables import asked
from tests.support.sidecar import ANY_DRAFT, Chat, said, sidecar

DAMAGED = "chat-3"

HARMLESS = {
    "header: change counter",
    "header: schema cookie",
    "header: text encoding",
    "header: write version",
    "projection: version",
    "request: key",
    "request: content hash",
}
"""Parts that a log can lose without anybody being able to tell from the rest, or without losing anything."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return asyncio.run(built_log(tmp_path_factory.mktemp("whole")))


def test_a_whole_log_is_in_order_and_is_not_written(whole):
    """One line, and the file as it was, with nothing but its lock beside it."""
    before = whole.read_bytes()
    files = {path.name for path in whole.parent.iterdir()}

    ran = _verified(whole)

    assert (ran.exit_code, ran.stdout[:4]) == (0, "ok: ")
    assert "in 5 conversations" in ran.stdout
    assert whole.read_bytes() == before
    assert {path.name for path in whole.parent.iterdir()} == files | {f"{FILE}.lock"}


def test_damage_is_found_in_whichever_place_a_bit_is_flipped(tmp_path, whole):
    """Exit code 1 and no traceback, whether it is an event, an index, or the file's own header."""
    unseen = set()
    for number, (place, flip) in enumerate(places_of(whole, DAMAGED).items()):
        flipped(whole, tmp_path / str(number), flip)
        ran = _verified(tmp_path / str(number) / FILE)
        assert isinstance(ran.exception, SystemExit | None), place
        if ran.exit_code == 0:
            unseen.add(place)

    assert unseen <= HARMLESS


def test_a_damaged_event_is_named_with_its_conversation(tmp_path, whole):
    """One line says where to look; the others are checked all the same."""
    flipped(whole, tmp_path / "log", places_of(whole, DAMAGED)["event: payload"])

    ran = _verified(tmp_path / "log" / FILE)

    assert ran.exit_code == 1
    (line,) = ran.stdout.splitlines()
    assert line.startswith(f"damaged  default/{DAMAGED}: position ")
    assert "1 finding" in ran.stderr
    assert "restore a backup" in ran.stderr


def test_a_row_that_is_not_the_fold_of_its_events_is_found(tmp_path, whole):
    """The row may even carry its own seal."""
    flipped(whole, tmp_path / "log", None)
    with closing(sqlite3.connect(tmp_path / "log" / FILE)) as database:
        *columns, _ = database.execute("SELECT * FROM conversations WHERE id = ?", (DAMAGED,)).fetchone()
        row = Row(*columns)
        forged = row._replace(ratio=row.ratio + 1)
        database.execute(
            "UPDATE conversations SET ratio = ?, seal = ? WHERE id = ?", (forged.ratio, seal_of(forged), DAMAGED)
        )
        database.commit()

    ran = _verified(tmp_path / "log" / FILE)

    assert ran.exit_code == 1
    assert f"default/{DAMAGED}: its row in the read table is not the fold of its events" in ran.stdout
    assert "stop the sidecar and run `abridged log rebuild`" in ran.stderr
    assert "backup" not in ran.stderr


def test_a_row_that_knows_of_events_that_are_gone_is_no_matter_of_the_table(tmp_path, whole):
    """A rebuild would refuse it."""
    flipped(whole, tmp_path / "log", None)
    with closing(sqlite3.connect(tmp_path / "log" / FILE)) as database:
        database.execute("DELETE FROM events WHERE position = (SELECT max(position) FROM events)")
        database.commit()

    ran = _verified(tmp_path / "log" / FILE)

    assert ran.exit_code == 1
    assert "restore a backup" in ran.stderr


def test_a_damaged_write_ahead_log_of_a_killed_process_is_found(tmp_path):
    """SQLite alone would read the log without it, as if nothing were missing."""
    (tmp_path / "built").mkdir()
    path = asyncio.run(built_log(tmp_path / "built", killed=True))
    flipped(path, tmp_path / "log", Flip(5_000, 3, "-wal"))

    ran = _verified(tmp_path / "log" / FILE)

    assert ran.exit_code == 1
    assert "damaged  log: the write-ahead log is damaged" in ran.stdout


async def test_the_log_of_a_running_sidecar_is_left_alone(tmp_path):
    """The sidecar owns it; the way is a backup."""
    async with sidecar(tmp_path) as s:
        await s.chat().append(said(1))
        ran = await asyncio.to_thread(_verified, tmp_path / FILE)

    assert ran.exit_code == 1
    assert "is locked" in ran.stderr


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "it is empty"),
        (b"no log", "not an SQLite file"),
        (b"SQLite format 3\0" + bytes(5_000), "not an SQLite file"),
    ],
)
def test_a_file_that_is_no_log_is_said_to_be_none(tmp_path, content, what):
    """The command prints no traceback and none of the database's text, and makes nothing beside the file."""
    (tmp_path / FILE).write_bytes(content)

    ran = _verified(tmp_path / FILE)

    assert ran.exit_code == 1
    said_of_it = f"abridged: {tmp_path / FILE} is not an abridged log ({what})\n"
    assert ran.stderr == f"{said_of_it}  check the name of the file, or log.path\n"
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_another_programs_database_is_no_log(tmp_path):
    """The database is neither in order nor damaged."""
    with closing(sqlite3.connect(tmp_path / FILE)) as app:
        app.execute("CREATE TABLE log (line)")

    ran = _verified(tmp_path / FILE)

    assert ran.exit_code == 1
    assert "is an SQLite database of something else" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_log_that_does_not_exist_is_told_apart_from_a_damaged_one(tmp_path):
    """Exit code 2, whether its name comes from the settings or as an argument; no lock is made for it."""
    missing = str(tmp_path / FILE)

    ran = CliRunner().invoke(main, ["log", "verify", "--set", f"log.path={missing}"])

    assert (ran.exit_code, _verified(Path(missing)).exit_code) == (2, 2)
    assert "there is no log at" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def _verified(path: Path) -> Result:
    return CliRunner().invoke(main, ["log", "verify", str(path)])


@pytest.mark.parametrize("nth", range(4))
def test_an_overwritten_page_names_what_is_lost_and_the_rest_is_served(tmp_path, whole, nth):
    """Lines name conversations with positions, not the file; exactly the conversations called whole are served."""
    folder = tmp_path / "log"
    flipped(whole, folder, None)
    content = bytearray((folder / FILE).read_bytes())
    page = _pages_with(content, b"reads table orders_")[nth]
    content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    (folder / FILE).write_bytes(content)
    names = [name for (name,) in asked(whole, "SELECT name FROM streams ORDER BY name")]

    ran = _verified(folder / FILE)

    lost = {line.split(": ")[0].partition("default/")[2] for line in ran.stdout.splitlines() if "default/" in line}
    assert 0 < len(lost) < len(names)
    assert all("; damaged: " in line for line in ran.stdout.splitlines() if "default/" in line)
    assert f"{len(names) - len(lost)} of {len(names)} conversations are whole; no file was changed" in ran.stderr
    assert asyncio.run(_refused(folder, names)) == lost


def test_a_conversation_that_goes_on_from_its_snapshot_is_said_to(tmp_path):
    """The window is served until a read meets the damage, and never again; the position of the lost event is named."""

    async def build() -> None:
        async with sidecar(tmp_path) as s:
            chat = Chat(s, "long", conversation.ConversationSettings(context_length=10_000_000))
            for _ in range(3):
                await chat.talk(200)

    asyncio.run(build())
    ((position, payload),) = asked(tmp_path / FILE, "SELECT position, payload FROM events WHERE version = 40")
    content = bytearray((tmp_path / FILE).read_bytes())
    content[content.index(payload) + 20] ^= 1
    (tmp_path / FILE).write_bytes(content)

    ran = _verified(tmp_path / FILE)

    (line,) = ran.stdout.splitlines()
    assert f"default/long: position {position} is not what was written; served from its snapshot at position " in line
    assert line.endswith(" on, until a read meets the damage")
    assert asyncio.run(_refused(tmp_path, ["long"])) == set()
    assert asyncio.run(_refused(tmp_path, ["long"], after_events=True)) == {"long"}
    assert asyncio.run(_refused(tmp_path, ["long"])) == {"long"}


PAGE_BYTES = 4_096


def _pages_with(content: bytes | bytearray, text: bytes) -> list[int]:
    pages = range(len(content) // PAGE_BYTES)
    return [page for page in pages if text in content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]]


async def _refused(folder: Path, names: list[str], *, after_events: bool = False) -> set[str]:
    """The conversations whose windows a sidecar refuses as damaged, when it has been asked for their events or not."""
    codes: dict[str, str] = {}
    async with sidecar(folder, ANY_DRAFT) as s:
        for name in names:
            if after_events:
                with suppress(grpc.aio.AioRpcError):
                    await s.chat(name).events()
            try:
                await s.chat(name).context()
            except grpc.aio.AioRpcError as error:
                codes[name] = error.code().name
    assert set(codes.values()) <= {"DATA_LOSS"}
    return set(codes)


def test_content_that_no_erasure_has_taken_out_is_found(tmp_path, whole):
    """An event may be blanked only where a later event of its stream says so: else somebody changed the log."""
    path = tmp_path / FILE
    path.write_bytes(whole.read_bytes())
    stream = StreamId("default", DAMAGED)
    with closing(SqliteEventLog.open(path, clock_us=time.time_ns)) as log:
        log.blank(stream, {2: log.read_stream(stream)[2].payload})

    ran = _verified(path)

    assert ran.exit_code == 1
    assert f"damaged  default/{DAMAGED}: position " in ran.stdout
    assert "its content was taken out, and no later event says so" in ran.stdout


async def test_a_log_with_an_erased_conversation_is_in_order(tmp_path):
    """The process may have ended before all of it was blanked."""
    async with sidecar(tmp_path) as s:
        await s.chat("kept").talk(4)
        await s.chat("gone").talk(4)
        await s.conversations.EraseConversation(api.EraseConversationRequest(conversation_id="gone"))

    (path,) = tmp_path.glob("*.db")
    assert "in 2 conversations" in _verified(path).stdout
