"""Archiving conversations, over the whole path: their content in a file, and back in its place."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing as closing_database
from pathlib import Path
from typing import Any, cast

import pytest

from abridged.eventlog.event import StreamId
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.service.codec.events import ERASED
from abridged.v1 import conversation_service_pb2 as api
from tests.integration.test_erasure import CANARY, erased, erased_by, events_of, singing, sung
from tests.support.command import Ran, abridged
from tests.support.patience import PATIENCE_S
from tests.support.postgres_server import schema_url
from tests.support.refusal import refused
from tests.support.searching import WORDS, searched
from tests.support.sidecar import Sidecar, said, sidecar


def archiving(tmp_path: Path, **settings: Any) -> dict[str, Any]:
    return {"log.archive_dir": str(tmp_path / "archive"), **settings}


def telling(folder: Path) -> list[str]:
    """The files that have the text of a message of `singing`."""
    return sorted(each.name for each in folder.rglob("*") if each.is_file() and b"must never use" in each.read_bytes())


async def ran(*args: str) -> Ran:
    """Run a command, which has a loop of its own, in a thread that no sidecar has shut down."""
    with ThreadPoolExecutor(1) as threads:
        return await asyncio.get_running_loop().run_in_executor(threads, lambda: abridged(*args))


async def closed(s: Sidecar, conversation_id: str = "c1") -> None:
    request = api.CloseConversationRequest(conversation_id=conversation_id)
    await s.conversations.CloseConversation(request, timeout=PATIENCE_S, metadata=s.metadata)


async def archived(s: Sidecar, conversation_id: str = "c1", **fields: Any) -> api.ArchiveConversationsResponse:
    request = api.ArchiveConversationsRequest(conversation_id=conversation_id, **fields)
    answer = await s.conversations.ArchiveConversations(request, timeout=PATIENCE_S, metadata=s.metadata)
    return cast(api.ArchiveConversationsResponse, answer)


async def unarchived(s: Sidecar, conversation_id: str = "c1") -> Any:
    request = api.UnarchiveConversationRequest(conversation_id=conversation_id)
    answer = await s.conversations.UnarchiveConversation(request, timeout=PATIENCE_S, metadata=s.metadata)
    return answer.conversation


async def shown(s: Sidecar, conversation_id: str = "c1") -> Any:
    request = api.GetConversationRequest(conversation_id=conversation_id)
    return (await s.conversations.GetConversation(request, timeout=PATIENCE_S, metadata=s.metadata)).conversation


async def views(s: Sidecar, conversation_id: str = "c1") -> list[Any]:
    """The answers about a conversation, without the version and the time of its last event."""
    found = await shown(s, conversation_id)
    found.ClearField("event_version")
    found.ClearField("update_time")
    chat = s.chat(conversation_id)
    return [found, await chat.context(), list(await chat.summaries())]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_a_conversation_comes_back_from_its_archive_as_it_was(tmp_path, backend: str):
    """The content is in the file alone meanwhile; every view, id, position and version is the same after it."""
    folder = tmp_path / "archive"
    place = {"log.url": schema_url(tmp_path), "recall.path": str(tmp_path / "recall")} if backend == "postgres" else {}
    async with sidecar(tmp_path, archiving(tmp_path, **WORDS, **place)) as s:
        chat = await sung(s)
        await s.conversations.PinMessages(api.PinMessagesRequest(conversation_id="c1", numbers=[29]))
        await closed(s)
        before, events = await views(s), await events_of(s)
        hits = list((await searched(s, CANARY)).hits)

        counts = await archived(s)

        assert (counts.conversations, counts.messages) == (1, 30)
        (file,) = folder.iterdir()
        assert telling(tmp_path) == [file.name]
        assert file.stat().st_mode & 0o777 == 0o600
        now = await shown(s)
        assert (now.archive_file, now.closed, now.title) == (file.name, True, f"On {CANARY}")
        assert dict(now.settings.labels) == {"user": "ada"}
        assert list((await s.conversations.ListConversations(api.ListConversationsRequest())).conversations) == [now]
        assert not (await searched(s, CANARY)).hits
        async with refused("FAILED_PRECONDITION", "CONVERSATION_ARCHIVED"):
            await chat.context()
        async with refused("FAILED_PRECONDITION", "CONVERSATION_ARCHIVED"):
            await chat.append(singing(31))
        assert (await archived(s)).conversations == 0

        await unarchived(s)
        await unarchived(s)

        assert not list(folder.iterdir())
        assert await views(s) == before
        assert list((await searched(s, CANARY)).hits) == hits
        assert (await events_of(s))[: len(events)] == events
        assert [e.type for e in await events_of(s)][len(events) :] == [
            "ConversationArchived",
            "TextPurged",
            "ConversationUnarchived",
            "TextPurged",
        ]
        await s.conversations.ReopenConversation(api.ReopenConversationRequest(conversation_id="c1"))
        repeated = await chat.append(singing(30))
        assert repeated.message_version == 30


def missing(file: Path, _older: Path, _foreign: Path) -> None:
    file.unlink()


def cut(file: Path, _older: Path, _foreign: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])


def changed(file: Path, _older: Path, _foreign: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"hello 1", b"hullo 1"))


def older(file: Path, older_file: Path, _foreign: Path) -> None:
    shutil.copy(older_file, file)


def of_another_log(file: Path, _older: Path, foreign: Path) -> None:
    shutil.copy(foreign, file)


def linked(file: Path, older_file: Path, _foreign: Path) -> None:
    file.rename(older_file.with_name("away"))
    file.symlink_to(older_file.with_name("away"))


FAULTS: dict[Callable[[Path, Path, Path], None], str] = {
    missing: "it is not in",
    cut: "bytes; ",
    changed: "its SHA-256",
    older: "of this log",
    of_another_log: "of log ",
    linked: "is no regular file",
}


def copy_only_file(folder: Path, to: Path) -> None:
    (file,) = folder.iterdir()
    shutil.copy(file, to)


async def gone_and_kept(s: Sidecar, folder: Path, to: Path, *numbers: int) -> None:
    """Append, close and archive a conversation, and keep a copy of its file."""
    await s.chat().append(*(said(n, f"hello {n}") for n in numbers))
    await closed(s)
    await archived(s)
    copy_only_file(folder, to)


async def test_a_file_that_is_not_what_was_written_changes_nothing(tmp_path):
    """The sidecar refuses each file with a reason; the right one still comes back."""
    foreign, first, second = (tmp_path / name for name in ("foreign", "first", "second"))
    async with sidecar(tmp_path, {"log.path": str(tmp_path / "b.db"), "log.archive_dir": str(tmp_path / "b")}) as s:
        await gone_and_kept(s, tmp_path / "b", foreign, 1, 2)
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        await gone_and_kept(s, tmp_path / "archive", first, 1)
        await unarchived(s)
        await s.conversations.ReopenConversation(api.ReopenConversationRequest(conversation_id="c1"))
        await gone_and_kept(s, tmp_path / "archive", second, 2)
        (file,) = (tmp_path / "archive").iterdir()
        events = await events_of(s)

        for fault, reason in FAULTS.items():
            fault(file, first, foreign)
            async with refused("FAILED_PRECONDITION", "ARCHIVE_UNUSABLE") as refusal:
                await unarchived(s)
            assert reason in refusal.text
            assert await events_of(s) == events
            file.unlink(missing_ok=True)
            shutil.copy(second, file)

        assert (await unarchived(s)).message_version == 2


async def test_erasing_an_archived_conversation_takes_its_file_along(tmp_path):
    """An erasure by id, by label or by a user, whom only the file names, leaves not a byte. A file that cannot be
    reached, or is elsewhere behind a link, is named, and nothing is erased."""
    async with sidecar(tmp_path, archiving(tmp_path, **WORDS)) as s:
        for number, name in enumerate(("by-id", "by-label", "by-user", "kept")):
            labels = {"team": f"team-{number}"}
            await s.chat(name, labels=labels).append(singing(1, user_id=f"user-{number}"))
            await closed(s, name)
            await archived(s, name)
        file = tmp_path / "archive" / (await shown(s, "by-id")).archive_file
        file.rename(tmp_path / "away")
        async with refused("FAILED_PRECONDITION", "ARCHIVE_UNUSABLE") as refusal:
            await erased(s, "by-id")
        assert (refusal.metadata["file"], (await shown(s, "by-id")).archive_file) == (file.name, file.name)
        file.symlink_to(tmp_path / "away")
        async with refused("FAILED_PRECONDITION", "ARCHIVE_UNUSABLE"):
            await erased(s, "by-id")
        assert (await shown(s, "by-id")).archive_file
        (tmp_path / "away").rename(file)

        assert (await erased(s, "by-id")).conversations == 1
        assert (await erased_by(s, labels={"team": "team-1"})).conversations == 1
        assert (await erased_by(s, user_id="user-2")).conversations == 1

        (left,) = (tmp_path / "archive").iterdir()
        assert left.name == (await shown(s, "kept")).archive_file
        left.write_bytes(b"x")
        async with refused("FAILED_PRECONDITION", "ARCHIVE_UNUSABLE"):
            await erased_by(s, user_id="user-3")
        left.write_bytes(b"")
        assert (await erased_by(s, user_id="user-3")).conversations == 0
        await erased(s, "kept")
    assert not list((tmp_path / "archive").iterdir())
    assert telling(tmp_path) == []
    assert b"team-" not in (tmp_path / "abridged.db").read_bytes()


async def test_an_erasure_needs_the_folder_of_its_archive(tmp_path):
    """The sidecar erases nothing while the setting is gone, and its start says that it is; lists count nothing."""
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        await s.chat().append(singing(1))
        await closed(s)
        await archived(s)
        rows = (await ran("conversations", "--address", s.running.grpc_addresses[0])).out.splitlines()[1:]
        assert [row.split() for row in rows] == [["c1", "archived"]]
    async with sidecar(tmp_path) as s:
        async with refused("FAILED_PRECONDITION", "ARCHIVE_UNUSABLE"):
            await erased(s)
        assert (await shown(s)).archive_file
    assert "archives.out_of_reach" in {line["event"] for line in s.logs}


async def test_forks_keep_what_they_were_forked_from_in_the_log(tmp_path):
    """A fork is archived with its own events, and comes back; erasing its parent with it takes its file along."""
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        await sung(s, turns=10)
        await s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id="c1", fork_id="c2"))
        await s.chat("c2").append(singing(11))
        await closed(s)
        await closed(s, "c2")
        before = await views(s, "c2")

        async with refused("FAILED_PRECONDITION", "CONVERSATION_HAS_FORKS"):
            await archived(s)
        await archived(s, "c2")

        assert (await shown(s, "c2")).forked_from == "c1"
        async with refused("FAILED_PRECONDITION", "CONVERSATION_HAS_FORKS"):
            await archived(s)
        async with refused("FAILED_PRECONDITION", "CONVERSATION_ARCHIVED"):
            await s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id="c2", fork_id="c3"))
        await unarchived(s, "c2")
        assert await views(s, "c2") == before
        await archived(s, "c2")
        assert (await erased(s, forks=True)).conversations == 2
    assert not list((tmp_path / "archive").iterdir())
    assert telling(tmp_path) == []


async def test_a_fork_that_begins_while_its_parent_is_archived_stays_whole_or_is_refused(tmp_path):
    """The first call wins: no fork is left without its beginning."""
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        for number in range(8):
            parent, fork = f"parent-{number}", f"fork-{number}"
            await s.chat(parent).append(singing(1))
            await closed(s, parent)
            request = api.ForkConversationRequest(conversation_id=parent, fork_id=fork)
            calls = [s.conversations.ForkConversation(request, timeout=PATIENCE_S), archived(s, parent)]
            failed = [isinstance(each, Exception) for each in await asyncio.gather(*calls, return_exceptions=True)]
            assert failed[0] is not failed[1], "one of both was refused"
            if failed[1]:
                assert (await s.chat(fork).append(said(2))).message_version == 2


async def test_a_log_with_archives_is_whole_wherever_it_goes(tmp_path):
    """A verification, a rebuild of the read table, a copy by lines and a salvage cope with conversations that are
    archived, came back, or were archived twice; the file makes a log of its own."""
    log, folder = tmp_path / "abridged.db", tmp_path / "archive"
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        for name in ("away", "back", "twice"):
            await sung(s, name, turns=10)
            await closed(s, name)
    exported = (await ran("log", "export", str(log), "--conversation", "default/away")).out
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        for name in ("away", "back", "twice"):
            await archived(s, name)
        for name in ("back", "twice"):
            await unarchived(s, name)
        await archived(s, "twice")
        back, lists = await views(s, "back"), await s.conversations.ListConversations(api.ListConversationsRequest())
        file = folder / (await shown(s, "away")).archive_file

    assert file.read_text().splitlines()[1:] == exported.splitlines()[1:]
    new = tmp_path / "new.db"
    assert (await ran("log", "import", str(file), str(new))).code == 0
    assert (await ran("log", "verify", str(new))).code == 0
    assert (await ran("log", "verify", str(log))).code == 0
    assert (await ran("log", "rebuild", str(log))).code == 0
    assert (await ran("log", "verify", str(log))).code == 0
    lines, copy, saved = (tmp_path / name for name in ("lines.jsonl", "copy.db", "saved.db"))
    lines.write_text((await ran("log", "export", str(log))).out)
    assert (await ran("log", "import", str(lines), str(copy))).code == 0
    assert "back" in (await ran("log", "replay", str(lines))).out
    assert (await ran("log", "salvage", str(log), str(saved))).code == 0
    for each in (log, copy, saved):
        async with sidecar(tmp_path, archiving(tmp_path, **{"log.path": str(each)})) as s:
            assert await views(s, "back") == back
            assert await s.conversations.ListConversations(api.ListConversationsRequest()) == lists
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        assert (await unarchived(s, "away")).message_version == 10
        assert (await unarchived(s, "twice")).message_version == 10
        before = await views(s, "twice")
    assert (await ran("log", "verify", str(log))).code == 0
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        assert await views(s, "twice") == before


async def test_a_part_says_what_is_archived_and_leaves_the_files_to_their_log(tmp_path):
    """An erasure in the log that was made of a part is refused beside the files of the other log, whose conversation
    comes back from its own; a folder with an empty file under the name lets it go."""
    log, new, own = tmp_path / "abridged.db", tmp_path / "part.db", tmp_path / "own"
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        await sung(s, turns=10)
        await closed(s)
        await archived(s)
        name = (await shown(s)).archive_file
    part = await ran("log", "export", "--closed", str(log))
    assert f"archived  default/c1: the part has no content of it, {name} has" in part.err
    (tmp_path / "part.jsonl").write_text(part.out)
    assert (await ran("log", "import", str(tmp_path / "part.jsonl"), str(new))).code == 0

    async with sidecar(tmp_path, archiving(tmp_path, **{"log.path": str(new)})) as s:
        async with refused("FAILED_PRECONDITION", "ARCHIVE_UNUSABLE") as refusal:
            await erased(s)
        assert "the archive of another log" in refusal.text
        assert (await shown(s)).archive_file == name
    own.mkdir()
    (own / name).touch()
    async with sidecar(tmp_path, {"log.archive_dir": str(own), "log.path": str(new)}) as s:
        assert (await erased(s)).conversations == 1
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        assert (await unarchived(s)).message_version == 10


def blank_again(path: Path) -> None:
    """Take a content out of the first conversation of a log that nobody serves."""
    log = SqliteEventLog.open(path, clock_us=lambda: 1)
    try:
        log.blank(StreamId("default", "c1"), {2: ERASED})
    finally:
        log.close()


async def test_content_that_is_not_back_is_named(tmp_path):
    """A verification notices it, though an event says that it was archived once; so it does without an archive."""
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        await s.chat().append(said(1))
        await closed(s)
        await archived(s)
        await unarchived(s)
    assert (await ran("log", "verify", str(tmp_path / "abridged.db"))).code == 0

    blank_again(tmp_path / "abridged.db")

    found = await ran("log", "verify", str(tmp_path / "abridged.db"))
    assert (found.code, "position 2: its content was taken out" in found.out) == (1, True)


def lose(path: Path) -> None:
    with closing_database(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM events WHERE version = 3")


async def test_a_salvage_keeps_an_archived_conversation_of_which_events_are_lost(tmp_path):
    """The conversation stays in lists and names its file, which makes a log of its own."""
    async with sidecar(tmp_path, archiving(tmp_path)) as s:
        await s.chat().append(said(1), said(2), said(3))
        await closed(s)
        await archived(s)
        listed = await shown(s)
    lose(tmp_path / "abridged.db")

    assert (await ran("log", "salvage", str(tmp_path / "abridged.db"), str(tmp_path / "new.db"))).code == 1

    async with sidecar(tmp_path, archiving(tmp_path, **{"log.path": str(tmp_path / "new.db")})) as s:
        assert (await shown(s)).archive_file == listed.archive_file
        async with refused("FAILED_PRECONDITION", "ARCHIVE_UNUSABLE") as refusal:
            await unarchived(s)
        assert "has lost events" in refusal.text
    file = tmp_path / "archive" / listed.archive_file
    assert (await ran("log", "import", str(file), str(tmp_path / "own.db"))).code == 0


async def test_a_sidecar_archives_by_itself_what_is_closed(tmp_path):
    """The setting holds from its start on; an open conversation stays."""
    async with sidecar(tmp_path, archiving(tmp_path, **{"log.archive_after_s": 0.05})) as s:
        await s.chat("open").append(said(1))
        await s.chat("over").append(said(1))
        await closed(s, "over")
        async with asyncio.timeout(PATIENCE_S):
            while not (await shown(s, "over")).archive_file:
                continue
        assert not (await shown(s, "open")).archive_file


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_repeats_are_judged_after_the_archive_as_before_it(tmp_path, backend: str):
    """An equal content is a repeat, by message or by request, and a changed one is refused; while the conversation is
    archived every append is. What was redacted before stays known by its id, whatever it contains."""
    place = {"log.url": schema_url(tmp_path)} if backend == "postgres" else {}
    async with sidecar(tmp_path, archiving(tmp_path, **place)) as s:
        chat = s.chat()

        async def judged(redacted_reason: str = "MESSAGE_ID_REUSED") -> None:
            assert (await chat.append(said(1, "one"))).messages[0].already_appended
            assert (await chat.append(said(2, "two"), request_id="r")).messages[0].already_appended
            async with refused("ALREADY_EXISTS", "MESSAGE_ID_REUSED"):
                await chat.append(said(1, "changed"))
            async with refused("ALREADY_EXISTS", redacted_reason):
                await chat.append(said(2, "changed"), request_id="r")
            assert (await chat.append(said(3, "three"))).messages[0].already_appended
            assert (await chat.append(said(3, "whatever"))).messages[0].already_appended

        await chat.append(said(1, "one"))
        await chat.append(said(2, "two"), request_id="r")
        await chat.append(said(3, "three"))
        await s.conversations.RedactMessages(api.RedactMessagesRequest(conversation_id="c1", numbers=[3]))
        await judged("REQUEST_ID_REUSED")
        await closed(s)
        await archived(s)
        for message in (said(1, "one"), said(1, "changed"), said(4)):
            async with refused("FAILED_PRECONDITION", "CONVERSATION_ARCHIVED"):
                await chat.append(message)

        await unarchived(s)
        await s.conversations.ReopenConversation(api.ReopenConversationRequest(conversation_id="c1"))

        await judged()
        async with refused("ALREADY_EXISTS", "REQUEST_ID_REUSED"):
            await chat.append(said(4), request_id="r")
    if backend == "sqlite":
        assert (verified := await ran("log", "verify", str(tmp_path / "abridged.db"))).code == 0, verified.out
        salvaged = await ran("log", "salvage", str(tmp_path / "abridged.db"), str(tmp_path / "new.db"))
        assert salvaged.code == 0, salvaged.out + salvaged.err
        async with sidecar(tmp_path, archiving(tmp_path, **{"log.path": str(tmp_path / "new.db")})) as s:
            chat = s.chat()
            await judged()
