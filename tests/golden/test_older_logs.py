"""A log whose seals are longer, as revision 0002 of the file has them, is read, verified, and goes on.

`log-0002.sql` has three conversations of that version, each appended by one request: one whole, one with a redacted
message, one erased.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.chain import HASH_BYTES, SALT_BYTES, SEAL_BYTES
from abridged.eventlog.sqlite.schema import HEAD_REVISION
from abridged.v1 import conversation_service_pb2 as api
from tests.support.command import abridged
from tests.support.damage import PAGE_BYTES
from tests.support.read_tables import asked, restored
from tests.support.refusal import refused
from tests.support.salvaging import SETTINGS
from tests.support.sidecar import Sidecar, said, sidecar

DUMP = "log-0002.sql"
EVENTS = 16
WHOLE, REDACTED, ERASED = "whole", "redacted", "erased"

REVISION = "SELECT version_num FROM eventlog_revision"
ROWS = "SELECT * FROM events ORDER BY position"
SIZES = "SELECT DISTINCT length(commitment), length(chain) FROM events WHERE position {} ?"
SALTS_OF_BLANKED = "SELECT position, length(salt) FROM events WHERE length(salt) > ?"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return restored(DUMP, tmp_path / "abridged.db")


def _settings(path: Path) -> dict[str, Any]:
    return SETTINGS | {"log.path": str(path)}


def _texts(name: str) -> list[Any]:
    return [said(number, f"{name} {number} saw a kestrelwing.", tokens=20) for number in range(1, 4)]


def _sizes(path: Path, places: str) -> list[tuple[int, int]]:
    return asked(path, SIZES.format(places), EVENTS)


def _verified(path: Path) -> None:
    ran = abridged("log", "verify", str(path))
    assert ran.code == 0, ran.out + ran.err


async def _window(s: Sidecar) -> list[str]:
    return [entry.message.content for entry in (await s.chat(WHOLE).context()).messages]


async def _gone_on(s: Sidecar) -> None:
    await s.chat(WHOLE).append(said(4, "And then?", tokens=5))
    await s.chat(REDACTED).append(said(4, "And then?", tokens=5))
    await s.chat("new").append(said(1, "Who saw it?", tokens=5))
    await s.idle()


async def _redacted(path: Path) -> None:
    """Go on, and take a message of each version away."""
    async with sidecar(path.parent, _settings(path)) as s:
        await _gone_on(s)
        await s.conversations.RedactMessages(api.RedactMessagesRequest(conversation_id=REDACTED, numbers=(3, 4)))
        await s.idle()


def test_the_dump_is_of_the_older_version(path: Path):
    """Revision and seals are those of that version alone."""
    assert asked(path, REVISION) == [("0002",)]
    assert _sizes(path, "<=") == [(HASH_BYTES, HASH_BYTES)]


def test_a_check_finds_it_in_order_and_changes_no_byte(path: Path):
    """The command ends with 0, and the file is as it was."""
    before = path.read_bytes()

    _verified(path)

    assert path.read_bytes() == before


async def test_it_is_not_refused_to_an_older_version_before_something_is_appended(path: Path):
    """A start with this version can be taken back."""
    rows = asked(path, ROWS)

    async with sidecar(path.parent, _settings(path)) as s:
        assert await _window(s) == [message.content for message in _texts(WHOLE)]

    assert (asked(path, REVISION), asked(path, ROWS)) == ([("0002",)], rows)


async def test_it_goes_on_with_shorter_seals_and_is_refused_to_an_older_version(path: Path):
    """Events that are there stay byte for byte, chains lead from the ones to the others, and all is in order."""
    rows = asked(path, ROWS)

    async with sidecar(path.parent, _settings(path)) as s:
        await _gone_on(s)
    async with sidecar(path.parent, _settings(path)) as s:
        assert await _window(s) == [*(message.content for message in _texts(WHOLE)), "And then?"]

    assert asked(path, ROWS)[:EVENTS] == rows
    assert _sizes(path, ">") == [(SEAL_BYTES, SEAL_BYTES)]
    assert asked(path, REVISION) == [(HEAD_REVISION,)]
    assert HEAD_REVISION > "0002", "which is how an older version tells"
    _verified(path)


async def test_a_repeat_across_the_upgrade_is_known(path: Path):
    """The request tells, or the messages do; another content is refused."""
    async with sidecar(path.parent, _settings(path)) as s:
        for request_id in (f"{WHOLE}-1", ""):
            again = await s.chat(WHOLE).append(*_texts(WHOLE), request_id=request_id)
            assert all(message.already_appended for message in again.messages)
        async with refused("ALREADY_EXISTS", "MESSAGE_ID_REUSED"):
            await s.chat(WHOLE).append(said(2, "Another text.", tokens=20))

    assert len(asked(path, ROWS)) == EVENTS


async def test_events_of_both_versions_are_redacted_and_erased(path: Path):
    """Each keeps its own commitment, and gets one of that size to what is left, so that its chain holds."""
    await _redacted(path)
    async with sidecar(path.parent, _settings(path)) as s:
        await s.conversations.EraseConversation(api.EraseConversationRequest(conversation_id=WHOLE))
        await s.idle()

    salts = dict(asked(path, SALTS_OF_BLANKED, SALT_BYTES))
    assert {size for position, size in salts.items() if position <= EVENTS} == {SALT_BYTES + HASH_BYTES}
    assert {size for position, size in salts.items() if position > EVENTS} == {SALT_BYTES + SEAL_BYTES}
    _verified(path)


def test_all_of_it_is_salvaged(path: Path, tmp_path: Path):
    """Events of both versions are found, blanked ones too, where no index is left."""
    asyncio.run(_redacted(path))
    rows = asked(path, ROWS)
    roots = asked(path, "SELECT rootpage FROM sqlite_schema WHERE type = 'index' AND rootpage > 0")
    content = bytearray(path.read_bytes())
    for (page,) in roots:
        content[(page - 1) * PAGE_BYTES : page * PAGE_BYTES] = bytes(PAGE_BYTES)
    path.write_bytes(content)
    new = tmp_path / "new.db"

    ran = abridged("log", "salvage", str(path), str(new))

    assert ran.code == 0, ran.out + ran.err
    seals = [row[9:12] for row in rows]
    assert [row[9:12] for row in asked(new, ROWS)] == seals
    _verified(new)


def test_a_copy_of_it_is_written_anew(path: Path):
    """A rebuild copies the events as they are, into a file of the newest revision."""
    rows = asked(path, ROWS)

    assert abridged("log", "rebuild", str(path)).code == 0

    assert (asked(path, ROWS), asked(path, REVISION)) == (rows, [(HEAD_REVISION,)])
    _verified(path)
