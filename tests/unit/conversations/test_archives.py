"""Archives over a log in memory, while other calls come between their steps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.errors import StreamCorrupt
from abridged.eventlog.event import NewEvent, RecordedEvent, StreamId
from abridged.eventlog.log import Append, EventLog
from abridged.service.codec.events import ERASED, encode
from abridged.service.conversations.archive_folder import Archive, ArchiveFolder
from abridged.service.conversations.archives import Archived, Archives
from abridged.service.conversations.blanks import Blanks, archived_in
from abridged.service.conversations.erasures import Erased, Erasures
from abridged.service.conversations.purges import Purges
from abridged.service.conversations.replay import replayed
from abridged.service.conversations.table import Projected
from abridged.service.domain.commands import CloseConversation, EraseConversation
from abridged.service.domain.errors import ArchiveUnusable, ConversationIsArchived, ConversationIsErased
from abridged.service.domain.events import ConversationArchived, ConversationForked
from tests.unit.conversations.test_conversations import KEY, Bench

SECRET = "the launch code is tangerine"


class Archiving(Bench):
    """A closed conversation that can be archived. `purging` is called between blanking and the purge of files."""

    def __init__(self, folder: Path, *, is_shared: bool = False, beside: Bench | None = None) -> None:
        super().__init__(is_shared=is_shared, beside=beside)
        self.folder = ArchiveFolder(folder)
        self.path = folder
        self.purges = Purges(self.log, self.conversations, self.table, Blanks(self.log, self.table, self.folder))
        self.archives = Archives(self.log, self.conversations, self.table, self.purges)

    async def closed(self) -> None:
        await self.append(1, 2, text=SECRET)
        await self.conversations.execute(KEY, lambda _: CloseConversation())

    def contents(self) -> list[int]:
        """The versions of the events that have their contents."""
        return [event.version for event in self.log.read_stream(KEY) if event.payload != ERASED]


@pytest.mark.parametrize("is_changed", [False, True])
async def test_nothing_is_blanked_whose_file_is_not_what_was_written(tmp_path, is_changed: bool):
    """The file is looked at once more, after the event and before the first content goes."""
    bench = Archiving(tmp_path)
    await bench.closed()

    def change() -> None:
        # Once the event is decided on, the file is there.
        for file in tmp_path.iterdir():
            if is_changed:
                file.write_bytes(file.read_bytes().replace(b"tangerine", b"mandarine"))

    bench.rival = change
    if is_changed:
        with pytest.raises(ArchiveUnusable, match="its SHA-256"):
            await bench.archives.of(KEY, dry_run=False)
        assert bench.contents() == [1, 2, 3, 4, 5]
        assert (await bench.archives.unarchive(KEY)).message_version == 2, "the content is there all the same"
    else:
        assert await bench.archives.of(KEY, dry_run=False) == Archived(1, 2)
        assert bench.contents() == [5, 6]


async def test_a_conversation_that_changes_meanwhile_stays(tmp_path):
    """The file is older than the conversation; the next archiving writes a new one and removes the old one."""
    bench = Archiving(tmp_path)
    await bench.closed()
    state = await bench.conversations.state(KEY)

    def reopen() -> None:
        bench.rival = lambda: None
        bench.written_by_others(state, 3)

    bench.rival = reopen

    assert await bench.archives.of(KEY, dry_run=False) == Archived()
    assert SECRET.encode() in bench.log.read_stream(KEY)[1].payload
    assert await bench.archives.of(KEY, dry_run=False) == Archived(1, 3)
    assert len([*tmp_path.iterdir()]) == 1


async def test_a_conversation_comes_back_if_another_process_forks_it_meanwhile(tmp_path):
    """A fork is folded from it, so that it has to stay readable."""
    bench = Archiving(tmp_path)
    await bench.closed()
    state = await bench.conversations.state(KEY)
    fork = StreamId("default", "fork")

    def forks() -> None:
        bench.rival = lambda: None
        event = ConversationForked("fork", KEY.name, state.event_version, 2)
        name, schema_version, payload = encode(event)
        new = NewEvent(b"f" * 16, name, payload, schema_version)
        bench.log.submit(Append(fork, [new], projected=Projected(state, [event]))).result()

    bench.rival = forks

    assert await bench.archives.of(KEY, dry_run=False) == Archived()
    assert (await bench.conversations.state(KEY)).message_version == 2
    assert replayed(bench.log, fork).state.message_version == 2


async def test_what_a_slow_process_blanks_again_is_put_back_once_more(tmp_path):
    """The file stays until the content is back, even if another process blanks it in between."""
    bench = Archiving(tmp_path)
    await bench.closed()
    before = (await bench.conversations.state(KEY)).window
    await bench.archives.of(KEY, dry_run=False)

    def blank() -> None:
        bench.rival = lambda: None
        bench.log.blank(KEY, {2: ERASED})

    bench.rival = blank

    with pytest.raises(StreamCorrupt, match="position 2 is in an archive"):
        await bench.archives.unarchive(KEY)
    assert [*tmp_path.iterdir()]
    assert (await bench.archives.unarchive(KEY)).window == before
    assert not [*tmp_path.iterdir()]


async def test_content_that_was_put_back_before_a_kill_needs_no_file(tmp_path):
    """A process was killed before its event; the conversation is archived until a repeat appends the event."""
    bench = Archiving(tmp_path)
    await bench.closed()
    contents = {event.version: event.payload for event in bench.log.read_stream(KEY)}
    await bench.archives.of(KEY, dry_run=False)
    bench.log.blank(KEY, contents)
    for file in tmp_path.iterdir():
        file.unlink()

    with pytest.raises(ConversationIsArchived):
        await bench.conversations.state(KEY)
    assert (await bench.archives.unarchive(KEY)).message_version == 2


async def test_an_erasure_is_not_confirmed_where_the_folder_is_gone(tmp_path):
    """The setting was removed between the erasure and its purge: the file may still be there."""
    bench = Archiving(tmp_path)
    await bench.closed()
    await bench.archives.of(KEY, dry_run=False)

    async def nothing() -> None:
        return

    await bench.conversations.end(KEY, EraseConversation("e"), require=nothing)
    elsewhere = Purges(bench.log, bench.conversations, bench.table, Blanks(bench.log, bench.table, ArchiveFolder(None)))
    with pytest.raises(ArchiveUnusable, match=r"log\.archive_dir is not set"):
        await elsewhere.purged(KEY)
    row = bench.table.row(KEY)
    assert row is not None
    assert row.purge_due

    await bench.purges.purged(KEY)
    assert not [*tmp_path.iterdir()]


async def test_no_file_gives_way_to_one_of_blanked_content(tmp_path):
    """Another process archives the conversation while this one is about to write the same file."""
    bench = Archiving(tmp_path)
    await bench.closed()
    events = bench.log.stream_version(KEY)
    await bench.archives.of(KEY, dry_run=False)
    (file,) = tmp_path.iterdir()
    written = file.read_bytes()

    with pytest.raises(ArchiveUnusable, match="no content at position 1"):
        bench.folder.write(bench.log, KEY, events)

    assert ([*tmp_path.iterdir()], file.read_bytes()) == ([file], written)


@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to(path.with_name("outside"))])
async def test_a_file_takes_the_place_of_what_is_none(tmp_path, plant: Callable[[Path], None]):
    """Nobody waits for a pipe, and no link, even to the same bytes, passes for the file."""
    bench = Archiving(tmp_path)
    await bench.closed()
    written = bench.folder.write(bench.log, KEY, bench.log.stream_version(KEY))
    file = tmp_path / written.file
    file.rename(tmp_path / "outside")
    plant(file)

    (tmp_path / f"{written.file}.0.new").write_bytes(b"of a killed process")

    assert await bench.archives.of(KEY, dry_run=False) == Archived(1, 2)

    assert sorted(tmp_path.iterdir()) == sorted([file, tmp_path / "outside"])
    assert file.is_file()
    assert not file.is_symlink()


async def test_two_processes_remove_the_same_files(tmp_path):
    """Both leave none, whoever was faster."""
    bench = Archiving(tmp_path)
    await bench.closed()
    written = bench.folder.write(bench.log, KEY, 3)
    for number in range(400):
        (tmp_path / f"{written.file}.{number}.new").write_bytes(b"x")

    removals = [asyncio.to_thread(bench.folder.remove, bench.log.log_id, KEY) for _ in range(2)]
    await asyncio.gather(*removals)

    assert not [*tmp_path.iterdir()]


async def test_a_file_that_is_removed_while_it_is_read_is_unusable(tmp_path):
    """Another process overwrites it first, behind the look at its digest."""
    bench = Archiving(tmp_path)
    await bench.append(1, 2, text=SECRET * 1_000)
    await bench.conversations.execute(KEY, lambda _: CloseConversation())
    await bench.archives.of(KEY, dry_run=False)
    _, archived = archived_in(bench.log, KEY)
    reading = bench.folder.events(bench.log, KEY, archived)
    next(reading)

    bench.folder.remove(bench.log.log_id, KEY)

    with pytest.raises(ArchiveUnusable, match="is no event"):
        list(reading)


class Late(ArchiveFolder):
    """A folder that lets other calls end after each write."""

    def __init__(self, path: Path, others: Callable[[], Coroutine[Any, Any, object]]) -> None:
        super().__init__(path)
        self._others = others
        self._loop = asyncio.get_running_loop()

    def write(self, log: EventLog, key: StreamId, events: int) -> Archive:
        """Write the file, and let the others end."""
        archive = super().write(log, key, events)
        asyncio.run_coroutine_threadsafe(self._others(), self._loop).result()
        return archive


async def test_an_erasure_while_a_file_is_written_leaves_none(tmp_path):
    """The purge of the erasure may have looked for it before it was there."""
    bench = Archiving(tmp_path)
    await bench.closed()
    early = ArchiveFolder(tmp_path / "none yet")
    purges = Purges(bench.log, bench.conversations, bench.table, Blanks(bench.log, bench.table, early))
    erasures = Erasures(bench.log, bench.conversations, bench.table, purges, new_id=lambda: "e")
    bench.purges.blanks.archives = Late(tmp_path, lambda: erasures.of(KEY, forks=False, dry_run=False))
    archives = Archives(bench.log, bench.conversations, bench.table, bench.purges)

    with pytest.raises(ConversationIsErased):
        await archives.of(KEY, dry_run=False)

    assert not [*tmp_path.iterdir()]


class Slow(ArchiveFolder):
    """The folder of a slow process: others come once, behind its look at the state, the file, the row or the events, or
    before it removes files."""

    def __init__(self, path: Path, *, behind: str, others: Callable[[], Coroutine[Any, Any, object]]) -> None:
        super().__init__(path)
        self._behind = behind
        self._others = others
        self._loop = asyncio.get_running_loop()

    def write(self, log: EventLog, key: StreamId, events: int) -> Archive:
        """See ArchiveFolder."""
        self._come("state")
        return super().write(log, key, events)

    def require(self, archived: ConversationArchived) -> None:
        """See ArchiveFolder."""
        super().require(archived)
        self._come("require")

    def remove(self, log_id: str, key: StreamId, *, before: int | None = None, but: str = "") -> None:
        """See ArchiveFolder."""
        self._come("remove")
        super().remove(log_id, key, before=before, but=but)

    def events(self, log: EventLog, key: StreamId, archived: ConversationArchived) -> Iterator[RecordedEvent]:
        """See ArchiveFolder."""
        self._come("row")
        found = [*super().events(log, key, archived)]
        self._come("events")
        return iter(found)

    def _come(self, call: str) -> None:
        if call == self._behind:
            self._behind = ""
            asyncio.run_coroutine_threadsafe(self._others(), self._loop).result()


def two(tmp_path: Path) -> tuple[Archiving, Archiving]:
    """Two processes on one log and one folder."""
    slow = Archiving(tmp_path, is_shared=True)
    return slow, Archiving(tmp_path, is_shared=True, beside=slow)


async def test_a_slow_process_blanks_nothing_that_another_has_taken_back(tmp_path):
    """The slow process has found the file in its place, and lets go of the content when there is no file any more."""
    slow, quick = two(tmp_path)
    await slow.closed()
    before = (await slow.conversations.state(KEY)).window
    slow.purges.blanks.archives = Slow(tmp_path, behind="require", others=lambda: quick.archives.unarchive(KEY))

    await slow.archives.of(KEY, dry_run=False)

    assert (await quick.archives.unarchive(KEY)).window == before
    assert slow.contents() == list(range(1, slow.log.stream_version(KEY) + 1))
    assert not [*tmp_path.iterdir()]


async def test_a_slow_process_is_told_that_another_has_archived_the_conversation(tmp_path):
    """The content that it was to write is blanked; nothing is wrong with the file."""
    slow, quick = two(tmp_path)
    await slow.closed()
    slow.archives._folder = Slow(tmp_path, behind="state", others=lambda: quick.archives.of(KEY, dry_run=False))

    assert await slow.archives.of(KEY, dry_run=False) == Archived()


async def test_a_slow_process_removes_no_file_of_a_later_archive(tmp_path):
    """The slow process has found the content back, and removes files when it has been archived again."""
    slow, quick = two(tmp_path)
    await slow.closed()
    before = (await slow.conversations.state(KEY)).window
    await slow.archives.of(KEY, dry_run=False)
    slow.purges.blanks.archives = Slow(tmp_path, behind="remove", others=lambda: quick.archives.of(KEY, dry_run=False))

    with suppress(ConversationIsArchived):
        await slow.archives.unarchive(KEY)

    assert len([*tmp_path.iterdir()]) == 1
    assert (await quick.archives.unarchive(KEY)).window == before


@pytest.mark.parametrize("behind", ["row", "events"])
async def test_a_slow_process_puts_nothing_back_behind_an_erasure_by_another(tmp_path, behind: str):
    """The content that it has read from the file stays out of the log; without the file it looks again."""
    slow, quick = two(tmp_path)
    await slow.closed()
    await slow.archives.of(KEY, dry_run=False)
    erasures = Erasures(quick.log, quick.conversations, quick.table, quick.purges, new_id=lambda: "e")
    erase = lambda: erasures.of(KEY, forks=False, dry_run=False)  # noqa: E731 - as short as the others
    slow.archives = Archives(slow.log, slow.conversations, slow.table, slow.purges)
    slow.archives._folder = Slow(tmp_path, behind=behind, others=erase)

    with pytest.raises(ConversationIsErased):
        await slow.archives.unarchive(KEY)

    assert not any(SECRET.encode() in event.payload for event in slow.log.read_stream(KEY))
    assert not [*tmp_path.iterdir()]


class Interrupted(ArchiveFolder):
    """A folder whose reads let the event loop call `begin` and take `turns` turns first."""

    def __init__(self, path: Path, begin: Callable[[], object], turns: int) -> None:
        super().__init__(path)
        self._begin = begin
        self._turns = turns
        self._loop = asyncio.get_running_loop()

    def events(self, log: EventLog, key: StreamId, archived: ConversationArchived) -> Iterator[RecordedEvent]:
        """Yield the events once the turns are over."""
        self._loop.call_soon_threadsafe(self._begin)
        for _ in range(self._turns):
            asyncio.run_coroutine_threadsafe(asyncio.to_thread(int), self._loop).result()
        return super().events(log, key, archived)


async def test_an_erasure_beside_the_way_back_leaves_nothing(tmp_path):
    """The erasure waits until the content is back, so that no content is put back after it."""
    bench = Archiving(tmp_path)
    await bench.closed()
    await bench.archives.of(KEY, dry_run=False)
    erasures = Erasures(bench.log, bench.conversations, bench.table, bench.purges, new_id=lambda: "e")
    begun: list[asyncio.Task[Erased]] = []

    def erase() -> None:
        begun.append(asyncio.ensure_future(erasures.of(KEY, forks=False, dry_run=False)))

    bench.purges.blanks.archives = Interrupted(tmp_path, erase, turns=50)
    archives = Archives(bench.log, bench.conversations, bench.table, bench.purges)

    with suppress(ConversationIsErased):
        await archives.unarchive(KEY)

    assert await begun[0] == Erased(1, 2, "e")
    assert not any(SECRET.encode() in event.payload for event in bench.log.read_stream(KEY))
    assert not [*tmp_path.iterdir()]
