"""A fork that cannot be read is never taken for none: its text would outlive the erasure or redaction of it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from abridged.v1 import conversation_service_pb2 as api
from tests.integration.test_encryption import FILE, KEYS, ON
from tests.integration.test_erasure import erased
from tests.integration.test_lost_keys import SPOILS, spoiled
from tests.integration.test_redaction import redacted
from tests.support.read_tables import OLDER, changed
from tests.support.refusal import refused
from tests.support.sidecar import Sidecar, said, sidecar

OLD, PARENT, FORK, NEW = "before", "parent", "fork", "later"
WORD = "kestrelwing"
SETTINGS: dict[str, Any] = {"summarizer.models": ["extractive:default"], "policy.min_range_tokens": 20}
DAMAGED_ROW = f"UPDATE conversations SET window_messages = window_messages + 1 WHERE id = '{FORK}'"
_OF_FORK = f"stream = (SELECT id FROM streams WHERE name = '{FORK}')"
LAST_EVENT = f"UPDATE events SET payload = X'00' WHERE {_OF_FORK} AND version = 2"
FIRST_EVENT = f"UPDATE events SET payload = X'00' WHERE {_OF_FORK} AND version = 1"


async def forked(folder: Path, settings: dict[str, Any]) -> None:
    """A conversation before one that was forked, its fork, and one after it."""
    async with sidecar(folder, {**SETTINGS, **settings}) as s:
        await s.chat(OLD).talk(2)
        await s.chat(PARENT).append(*(said(n, f"We decided on {WORD}{n}.", tokens=40) for n in range(1, 5)))
        await s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id=PARENT, fork_id=FORK))
        await s.chat(FORK).append(said(5))
        await s.chat(NEW).talk(2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """The folders of such a log in clear, and of an encrypted one."""
    folders = {is_encrypted: tmp_path_factory.mktemp("forked") for is_encrypted in (False, True)}
    for is_encrypted, folder in folders.items():
        asyncio.run(forked(folder, ON if is_encrypted else {}))
    return folders


@asynccontextmanager
async def served(whole: dict[bool, Path], folder: Path, fault: str) -> AsyncIterator[Sidecar]:
    """A sidecar on a log in which the fork cannot be read."""
    is_encrypted = fault == "key"
    for name in (FILE, KEYS) if is_encrypted else (FILE,):
        shutil.copy(whole[is_encrypted] / name, folder / name)
    if is_encrypted:
        spoiled(folder, FORK, SPOILS["gone"])
        changed(folder / FILE, OLDER)
    else:
        changed(folder / FILE, *([fault] if "conversations" in fault else [fault, OLDER]))
    async with sidecar(folder, {**SETTINGS, **(ON if is_encrypted else {})}) as s:
        yield s


@pytest.mark.parametrize("forks", [False, True])
@pytest.mark.parametrize(
    ("fault", "code", "reason"),
    [
        (DAMAGED_ROW, "DATA_LOSS", "LOG_CORRUPT"),
        (LAST_EVENT, "DATA_LOSS", "LOG_CORRUPT"),
        (FIRST_EVENT, "DATA_LOSS", "LOG_CORRUPT"),
        ("key", "UNAVAILABLE", "LOG_UNAVAILABLE"),
    ],
    ids=["row", "event", "first event", "key"],
)
async def test_what_has_a_fork_that_cannot_be_read_is_neither_redacted_nor_erased(
    whole: dict[bool, Path], tmp_path: Path, fault: str, code: str, reason: str, forks: bool
):
    """The fork's row is damaged, or none was made when the read table was made again; nothing is changed."""
    async with served(whole, tmp_path, fault) as s:
        parent = s.chat(PARENT)
        for dry_run in (True, False):
            async with refused(code, reason):
                await redacted(parent, 2, forks=forks, dry_run=dry_run)
            if forks:
                async with refused(code, reason):
                    await erased(s, PARENT, forks=True, dry_run=dry_run)
        if not forks:
            known = fault in (DAMAGED_ROW, LAST_EVENT)
            async with refused(*(("FAILED_PRECONDITION", "CONVERSATION_HAS_FORKS") if known else (code, reason))):
                await erased(s, PARENT)

        assert f"{WORD}2" in str((await parent.context()).messages)


async def test_a_conversation_that_cannot_have_the_fork_is_erased(whole: dict[bool, Path], tmp_path: Path):
    """Nobody knows the parent of a fork whose key is lost: it may be any that began before it, and no later one."""
    async with served(whole, tmp_path, "key") as s:
        async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
            await erased(s, OLD)
        assert (await erased(s, NEW)).conversations == 1


async def test_a_fork_whose_parent_can_be_read_is_in_the_way_of_no_other(whole: dict[bool, Path], tmp_path: Path):
    """The first event of a fork that was left out names its parent."""
    async with served(whole, tmp_path, LAST_EVENT) as s:
        assert (await erased(s, OLD)).conversations == 1
        assert (await erased(s, NEW)).conversations == 1


async def test_an_index_that_names_another_parent_is_seen(whole: dict[bool, Path], tmp_path: Path):
    """The row, which is as it was written, names its own parent."""
    shutil.copy(whole[False] / FILE, tmp_path / FILE)
    path = tmp_path / FILE
    with closing(sqlite3.connect(path)) as file:
        (root,) = file.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'conversations_forked'").fetchone()
        (size,) = file.execute("PRAGMA page_size").fetchone()
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(PARENT.encode(), (root - 1) * size)] ^= 1
    path.write_bytes(damaged)

    async with sidecar(tmp_path, SETTINGS) as s, refused("DATA_LOSS", "LOG_CORRUPT"):
        await redacted(s.chat(PARENT), 2)


async def test_a_damaged_conversation_that_was_opened_is_in_the_way_of_no_other(tmp_path: Path):
    """The first event is damaged, and its row still says that it opened a conversation."""
    async with sidecar(tmp_path) as s:
        for name in ("before", "damaged", "after"):
            await s.chat(name).append(said(1))
    first = "stream = (SELECT id FROM streams WHERE name = 'damaged') AND version = 1"
    changed(tmp_path / "abridged.db", f"UPDATE events SET payload = X'00' WHERE {first}", OLDER)

    async with sidecar(tmp_path) as s:
        for name in ("before", "after"):
            assert (await erased(s, name)).conversations == 1
