"""`abridged log salvage` of a log from which texts were taken: none comes back, whatever copy of it is left."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from abridged.eventlog.salvage import REMNANTS
from abridged.v1 import conversation_service_pb2 as api
from tests.support.command import abridged
from tests.support.damage import PAGE_BYTES
from tests.support.patience import PATIENCE_S
from tests.support.read_tables import asked, changed
from tests.support.refusal import refused
from tests.support.salvaging import FILE, NEW, SETTINGS
from tests.support.sidecar import Sidecar, said, sidecar

CANARY = "kestrelwing"
WHOLE, REDACTED, ERASED, FORK = "whole", "redacted", "erased", "fork"
_MESSAGES = 24
_TAKEN = (3, 4, 20)
"""The redacted messages, of which records were made."""

_TABLES = ("events", "streams", "types", "requests", "conversations", "sqlite_autoindex_events_1")


class Taken(NamedTuple):
    """A log from which texts were taken, its pages from before that, and its answers after it."""

    path: Path
    older: bytes
    answers: dict[str, list[bytes]]


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    return asyncio.run(_taken(tmp_path_factory.mktemp("taken")))


async def _taken(folder: Path) -> Taken:
    settings = SETTINGS | {"log.path": str(folder / FILE)}
    async with sidecar(folder, settings) as s:
        for name in (WHOLE, REDACTED, ERASED):
            for first in range(1, _MESSAGES, 8):
                messages = [_message(name, number) for number in range(first, first + 8)]
                await s.chat(name, context_length=1_200).append(*messages, request_id=f"{name}-{first}")
                await s.idle()
        await s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id=ERASED, fork_id=FORK))
        await s.chat(FORK).append(_message(FORK, 101))
        assert len(await s.chat(REDACTED).summaries()) > 1
    older = (folder / FILE).read_bytes()
    async with sidecar(folder, settings) as s:
        await s.conversations.RedactMessages(
            api.RedactMessagesRequest(conversation_id=REDACTED, numbers=_TAKEN), timeout=PATIENCE_S
        )
        await s.conversations.EraseConversation(
            api.EraseConversationRequest(conversation_id=ERASED, forks=True), timeout=PATIENCE_S
        )
        await s.idle()
    async with sidecar(folder, settings) as s:
        answers = await _answers(s)
    assert CANARY.encode() in older
    assert CANARY.encode() not in (folder / FILE).read_bytes()
    return Taken(folder / FILE, older, answers)


def _message(name: str, number: int) -> Any:
    word = "a heron" if name == WHOLE or (name == REDACTED and number not in _TAKEN) else CANARY
    return said(number, f"{name} {number} saw {word}. Always use port {4_000 + number} for it.", tokens=60)


async def _answers(s: Sidecar) -> dict[str, list[bytes]]:
    """The answers for the conversations that are not erased; those that are refuse a message."""
    for name in (ERASED, FORK):
        async with refused("NOT_FOUND", "CONVERSATION_ERASED"):
            await s.chat(name).append(said(1))
    found = {}
    for name in (WHOLE, REDACTED):
        chat = s.chat(name)
        views = [await chat.state(), await chat.context(), await chat.context(view=api.CONTEXT_VIEW_ORIGINAL)]
        found[name] = [view.SerializeToString(deterministic=True) for view in views]
    return found


def _undamaged(_log: Path, _older: bytes) -> None:
    pass


def _roots_lost(log: Path, _older: bytes) -> None:
    _overwrite(log, *_roots(log))


def _older_behind(log: Path, older: bytes) -> None:
    """Older pages lie behind the file's own, as free ones do."""
    _overwrite(log, *_roots(log))
    log.write_bytes(log.read_bytes() + older)


def _older_before(log: Path, older: bytes) -> None:
    log.write_bytes(older + log.read_bytes())


def _older_in_wal(log: Path, older: bytes) -> None:
    """Older pages lie in the write-ahead log, behind whose frames nothing is asked."""
    frames = b"".join(
        (begin // PAGE_BYTES + 1).to_bytes(4, "big") + bytes(20) + older[begin : begin + PAGE_BYTES]
        for begin in range(0, len(older), PAGE_BYTES)
    )
    log.with_name(f"{FILE}-wal").write_bytes(bytes(32) + frames)


def _older_alone(log: Path, older: bytes) -> None:
    """Write the older log, and add the newer events that took the texts away."""
    log.write_bytes(older)
    last = asked(log, "SELECT max(position) FROM events")[0][0]
    changed(
        log,
        f"ATTACH '{log.with_name('taken.db')}' AS taken",
        f"INSERT INTO events SELECT * FROM taken.events WHERE position > {last}",
        "INSERT OR IGNORE INTO types SELECT * FROM taken.types",
        "INSERT OR REPLACE INTO conversations SELECT * FROM taken.conversations",
    )


def _roots(log: Path) -> Iterator[int]:
    for name in _TABLES:
        yield from (page for (page,) in asked(log, "SELECT rootpage FROM sqlite_schema WHERE name = ?", name))


def _overwrite(log: Path, *pages: int) -> None:
    content = bytearray(log.read_bytes())
    for page in pages:
        content[(page - 1) * PAGE_BYTES : page * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    log.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [_undamaged, _roots_lost, _older_behind, _older_before, _older_in_wal, _older_alone],
    ids=lambda d: d.__name__,
)
def test_what_was_taken_stays_away(tmp_path: Path, taken: Taken, damage: Callable[[Path, bytes], None]):
    """The new log verifies; erased conversations are erased, a redacted one is as it was, and so is every other one."""
    damaged = tmp_path / "damaged" / FILE
    damaged.parent.mkdir()
    for name in (FILE, "taken.db"):
        shutil.copyfile(taken.path, damaged.with_name(name))
    damage(damaged, taken.older)
    new = tmp_path / NEW

    ran = abridged("log", "salvage", str(damaged), str(new))

    assert ran.code == 0, ran
    verified = abridged("log", "verify", str(new))
    assert verified.code == 0, verified
    assert _canaries(tmp_path) == 0
    assert asyncio.run(_served(new)) == taken.answers
    assert abridged("log", "verify", str(new)).code == 0
    assert _canaries(tmp_path) == 0


async def _served(new: Path) -> dict[str, list[bytes]]:
    async with sidecar(new.parent, SETTINGS | {"log.path": str(new)}) as s:
        return await _answers(s)


@pytest.mark.parametrize("position", [1, 30, -1, -2])
def test_an_erased_conversation_that_is_cut_stays_erased(tmp_path: Path, taken: Taken, position: int):
    """Whichever of its events is lost, also with the text of all others still there."""
    damaged = tmp_path / "damaged" / FILE
    damaged.parent.mkdir()
    for name in (FILE, "taken.db"):
        shutil.copyfile(taken.path, damaged.with_name(name))
    _older_alone(damaged, taken.older)
    of_erased = "SELECT position FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?) ORDER BY position"
    positions = [found for (found,) in asked(damaged, of_erased, ERASED)]
    lost = positions[position - 1 if position > 0 else position]
    changed(damaged, "PRAGMA secure_delete = on", f"UPDATE events SET payload = x'ff' WHERE position = {lost}")
    new = tmp_path / NEW

    ran = abridged("log", "salvage", str(damaged), str(new))

    assert ran.code == 1
    assert "it was erased, and stays so" in ran.out
    assert abridged("log", "verify", str(new)).code == 0
    assert _canaries(tmp_path) == 0
    assert asyncio.run(_served(new)) == taken.answers
    assert abridged("log", "verify", str(new)).code == 0


def test_blanked_events_alone_say_that_a_conversation_was_erased(tmp_path: Path, taken: Taken):
    """The row and the event that says so are both lost."""
    damaged = tmp_path / "damaged" / FILE
    damaged.parent.mkdir()
    shutil.copyfile(taken.path, damaged)
    changed(
        damaged,
        "PRAGMA secure_delete = on",
        "DELETE FROM conversations",
        "UPDATE events SET payload = x'ff' WHERE type = (SELECT id FROM types WHERE name = 'ConversationErased')",
    )
    new = tmp_path / NEW

    ran = abridged("log", "salvage", str(damaged), str(new))

    assert (ran.code, ran.out.count("it was erased, and stays so")) == (1, 2)
    assert abridged("log", "verify", str(new)).code == 0
    assert asyncio.run(_served(new)) == taken.answers
    assert abridged("log", "verify", str(new)).code == 0


def test_remnants_of_a_redacted_conversation_do_not_have_the_text(tmp_path: Path, taken: Taken):
    """The conversation's first message is lost, and the first redacted one: the rest has nothing of the others."""
    for lost in (2, 4):
        damaged = tmp_path / f"{lost}" / "damaged" / FILE
        damaged.parent.mkdir(parents=True)
        for name in (FILE, "taken.db"):
            shutil.copyfile(taken.path, damaged.with_name(name))
        _older_alone(damaged, taken.older)
        where = f"stream = (SELECT id FROM streams WHERE name = '{REDACTED}') AND version = {lost}"
        changed(damaged, "PRAGMA secure_delete = on", f"UPDATE events SET payload = x'ff' WHERE {where}")
        new = damaged.parents[1] / NEW

        assert abridged("log", "salvage", str(damaged), str(new)).code == 1

        assert "MessagesRedacted" in new.with_name(NEW + REMNANTS).read_text()
        assert _canaries(new.parent) == 0
        assert abridged("log", "verify", str(new)).code == 0


def _canaries(folder: Path) -> int:
    files = [path for path in folder.iterdir() if path.is_file()]
    return sum(path.read_bytes().count(CANARY.encode()) for path in files)
