"""`abridged log salvage`: the way out of a damaged log, as its operator meets it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import abridged
from tests.support.damage import KINDS, PAGE_BYTES
from tests.support.read_tables import asked
from tests.support.salvaging import CHATS, FILE, FORKS, SETTINGS, appended, built_log, chat_of, served, trials
from tests.support.sidecar import sidecar

NAMES = (*CHATS, *FORKS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(built_log(tmp_path_factory.mktemp("whole"), killed=False))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(built_log(tmp_path_factory.mktemp("killed"), killed=True))


def put(folder: Path, log: Path, *, file: bytes | None = None, wal: bytes | None = None) -> Path:
    """Put the log into a new folder, with one of its files as given."""
    folder.mkdir()
    (folder / FILE).write_bytes(log.read_bytes() if file is None else file)
    beside = log.with_name(f"{FILE}-wal")
    if wal is not None or beside.exists():
        (folder / f"{FILE}-wal").write_bytes(beside.read_bytes() if wal is None else wal)
    return folder / FILE


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def with_pages_lost(log: Path, *pages: int) -> bytes:
    content = bytearray(log.read_bytes())
    for page in pages:
        content[(page - 1) * PAGE_BYTES : page * PAGE_BYTES] = bytes(PAGE_BYTES)
    return bytes(content)


def test_each_kind_of_damage_once(tmp_path: Path, killed: Path):
    """The short form of tests/hostile/test_salvage.py."""
    wrong, _ = trials(tmp_path, killed, seed=1, count=len(KINDS), serve_each=7)

    assert not wrong, "\n".join(wrong)


def test_a_lost_index_costs_nothing(tmp_path: Path, whole: Path):
    """No conversation of the damaged log is called whole; of the new one each is served, and repeats are known."""
    (root,) = asked(whole, "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_events_1'")[0]
    damaged = put(tmp_path / "damaged", whole, file=with_pages_lost(whole, root))
    verified = abridged("log", "verify", str(damaged))
    assert verified.code == 1
    assert " conversations are whole" not in verified.err
    assert "`abridged log salvage`" in verified.err
    before = contents(damaged.parent)

    ran = abridged("log", "salvage", str(damaged), str(tmp_path / "new.db"))

    assert (ran.code, ran.out[:4]) == (0, "ok: ")
    assert contents(damaged.parent) == before
    assert abridged("log", "verify", str(tmp_path / "new.db")).code == 0
    answers = asyncio.run(served(tmp_path / "new.db", NAMES))
    assert answers == asyncio.run(served(put(tmp_path / "whole", whole), NAMES))
    assert all(place[2] for name in CHATS for place in answers[name][3:])


def test_a_write_ahead_log_with_a_flipped_bit_is_read_around_it(tmp_path: Path, killed: Path):
    """A start refuses the log for events that SQLite would drop; the new one has them."""
    wal = bytearray(killed.with_name(f"{FILE}-wal").read_bytes())
    wal[-PAGE_BYTES * 3] ^= 1
    damaged = put(tmp_path / "damaged", killed, wal=bytes(wal))
    refused = abridged("serve", "--set", f"log.path={damaged}")
    assert refused.code == 1
    assert "the write-ahead log is damaged" in refused.err
    assert "abridged log salvage" in refused.err
    before = contents(damaged.parent)

    ran = abridged("log", "salvage", str(damaged), str(tmp_path / "new.db"))

    assert ran.code == 0, (ran.out, ran.err)
    assert contents(damaged.parent) == before
    export = [
        abridged("log", "export", str(path)).out for path in (put(tmp_path / "whole", killed), tmp_path / "new.db")
    ]
    assert export[0] == export[1]


def test_what_is_missing_is_named_and_what_is_left_of_it_can_be_read(tmp_path: Path, whole: Path):
    """The command names conversation, event and position; the further events are lines with their texts."""
    position, version, payload = asked(
        whole,
        "SELECT e.position, e.version, e.payload FROM events AS e JOIN streams AS s ON s.id = e.stream "
        "WHERE s.name = 'chat-03' AND e.version = 3",
    )[0]
    content = whole.read_bytes()
    assert content.count(payload) == 1
    damaged = put(tmp_path / "damaged", whole, file=content.replace(payload, bytes(len(payload))))

    ran = abridged("log", "salvage", str(damaged), str(tmp_path / "new.db"))

    assert ran.code == 1
    (line,) = ran.out.splitlines()
    lines = (tmp_path / "new.db.lost.jsonl").read_text(encoding="utf-8").splitlines()
    assert line == (
        f"lost  default/chat-03: events {version} (positions {position}); its first 2 events are kept, "
        f"{len(lines)} others are in new.db.lost.jsonl"
    )
    assert f"and a sidecar starts on it; no byte of {damaged} was changed" in ran.err
    texts = [
        event["messageAppended"]["message"]["content"] for event in map(json.loads, lines) if "messageAppended" in event
    ]
    assert any("chat-03 reads table orders_12" in text for text in texts)
    assert abridged("log", "verify", str(tmp_path / "new.db")).code == 0
    exported = abridged("log", "export", str(tmp_path / "new.db")).out
    (tmp_path / "lines.jsonl").write_text(exported, encoding="utf-8")
    assert abridged("log", "import", str(tmp_path / "lines.jsonl"), str(tmp_path / "copy.db")).code == 0


def test_a_log_whose_end_is_cut_off_goes_on_at_the_next_position(tmp_path: Path, killed: Path):
    """No position that a client has received is given out again."""
    ((head,),) = asked(killed, "SELECT max(position) FROM events")
    damaged = put(tmp_path / "damaged", killed, file=b"")
    ran = abridged("log", "salvage", str(damaged), str(tmp_path / "new.db"))
    assert ran.code == 1

    answer = asyncio.run(_appended_again(tmp_path / "new.db", "chat-01"))

    assert not any(message.already_appended for message in answer.messages)
    assert min(message.position for message in answer.messages) > head


async def _appended_again(path: Path, name: str) -> Any:
    async with sidecar(path.parent, SETTINGS | {"log.path": str(path)}) as s:
        return await appended(chat_of(s, name), 1)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("missing.db", "new.db"), 2, "there is no log at"),
        (("log.db", "taken.db"), 2, "there is a file at"),
        (("log.db", "log.db"), 2, "there is a file at"),
        (("postgresql://u:secret@h/d", "new.db"), 2, "restore a database from its own backup"),
        (("log.db", "postgresql://u:secret@h/d"), 2, "restore a database from its own backup"),
        (("text.txt", "new.db"), 1, "proves to be an event of a log"),
    ],
)
def test_a_refusal_says_why_and_makes_nothing(
    tmp_path: Path, whole: Path, arguments: tuple[str, str], code: int, says: str
):
    """The refusal makes no log and no other file, and prints no password."""
    for name in ("log.db", "taken.db"):
        (tmp_path / name).write_bytes(whole.read_bytes())
    (tmp_path / "text.txt").write_text("no log " * 2_000)
    before = contents(tmp_path)

    ran = abridged("log", "salvage", *(name if "://" in name else str(tmp_path / name) for name in arguments))

    assert ran.code == code
    assert says in ran.err
    assert "secret" not in ran.err
    left = contents(tmp_path)
    assert {name: left[name] for name in left if not name.endswith(".lock")} == before
