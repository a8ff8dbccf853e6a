"""`abridged log backup` and `restore`: a copy that is checked has its place, or everything is as it was."""

from __future__ import annotations

import asyncio
import fcntl
import shutil
from pathlib import Path

import pytest

from abridged.service.bootstrap.recall import index_path
from abridged.v1 import conversation_service_pb2 as api
from tests.support.command import PROGRAM, abridged, abridged_process
from tests.support.flipped_bits import FILE, built_log, flipped
from tests.support.refusal import refused
from tests.support.searching import WORDS, numbers, searched, snippets
from tests.support.sidecar import said, sidecar

KILLED_AT_STEP = f"""
import os, signal, sys
left, place = int(sys.argv.pop(1)), sys.argv.pop(1)
def step(event, arguments):
    global left
    if event in ("os.rename", "os.link", "os.remove") and str(arguments[0]).startswith(place):
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
sys.addaudithook(step)
{PROGRAM}
"""
"""The command, killed before it changes the name of a file of the log for the n-th time."""

ON_A_SMALL_DISK = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), -1))
{PROGRAM}
"""
"""The command under a limit on the size of its files, in bytes."""

WITHOUT_LINKS = f"""
import errno, sys
def link(event, arguments):
    if event == "os.link":
        raise OSError(errno.EPERM, "Operation not permitted")
sys.addaudithook(link)
{PROGRAM}
"""
"""The command, on a volume without hard links."""

BESIDE_ONE_THAT_ENDS = f"""
import os, sys
new, done = sys.argv.pop(1), sys.argv.pop(1)
def lock(event, arguments):
    if event == "fcntl.flock" and not os.path.exists(done):
        os.rename(new, done)
sys.addaudithook(lock)
{PROGRAM}
"""
"""The command, while another one gives its copy the name of a backup after this one has opened it."""

STEPS_MAX = 40


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose sidecar was killed: its last events are in the write-ahead log. The log went on beside it."""
    return asyncio.run(built_log(tmp_path_factory.mktemp("killed"), killed=True))


@pytest.fixture
def log(tmp_path: Path, killed: Path) -> Path:
    """A copy of that log."""
    flipped(killed, tmp_path / "log", None)
    return tmp_path / "log" / FILE


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory, killed: Path) -> Path:
    """A backup of the log as it went on."""
    file = tmp_path_factory.mktemp("backup") / "backup.db"
    ran = abridged("log", "backup", str(killed.parent.parent / FILE), str(file))
    assert ran.code == 0, ran
    return file


def lines_of(path: Path) -> str:
    ran = abridged("log", "export", str(path))
    assert ran.code == 0, ran
    return ran.out


def names_in(folder: Path) -> set[str]:
    """The files in a folder, but for locks, which stay, and indexes of write-ahead logs, which readers make."""
    return {path.name for path in folder.iterdir() if not path.name.endswith((".lock", "-shm"))}


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names_in(folder)}


def test_a_backup_has_what_a_killed_process_left(tmp_path, log):
    """Every event, also those in the write-ahead log, in one private file; no byte of the log has changed."""
    before = bytes_in(log.parent)

    ran = abridged("log", "backup", str(log), str(tmp_path / "backup.db"))

    assert (ran.code, ran.out[:4]) == (0, "ok: ")
    assert bytes_in(log.parent) == before
    assert names_in(tmp_path) == {"log", "backup.db"}
    assert (tmp_path / "backup.db").stat().st_mode & 0o777 == 0o600
    assert abridged("log", "verify", str(tmp_path / "backup.db")).out == ran.out
    assert lines_of(tmp_path / "backup.db") == lines_of(log)


def test_a_backup_replaces_no_file(tmp_path, log):
    """Nor does it write where it cannot, or beside another one of the same name."""
    (tmp_path / "there").write_bytes(b"precious")

    refused = abridged("log", "backup", str(log), str(tmp_path / "there"))
    assert (refused.code, f"there is a file {tmp_path / 'there'}" in refused.err) == (1, True)
    assert (tmp_path / "there").read_bytes() == b"precious"

    refused = abridged("log", "backup", str(log), str(tmp_path / "no" / "backup.db"))
    assert (refused.code, f"there is no folder {tmp_path / 'no'}\n" in refused.err) == (1, True)
    refused = abridged("log", "backup", str(log), str(log))
    assert (refused.code, "there is a file" in refused.err) == (1, True)
    refused = abridged("log", "backup", str(tmp_path / "none.db"), str(tmp_path / "backup.db"))
    assert (refused.code, "there is no log" in refused.err) == (2, True)
    for places in ((str(log), str(log), "backup.db"), ("postgresql://db/a",)):
        refused = abridged("log", "backup", *places)
        assert (refused.code, "a backup is one file" in refused.err) == (2, True)

    (tmp_path / "backup.db.new").write_bytes(b"left by a killed one" * 50_000)
    (tmp_path / "backup.db.new-making").touch()
    with (tmp_path / "backup.db.new").open("rb") as new:
        fcntl.flock(new, fcntl.LOCK_EX)
        refused = abridged("log", "backup", str(log), str(tmp_path / "backup.db"))
    assert (refused.code, "another process makes the copy" in refused.err) == (1, True)
    assert names_in(tmp_path) == {"log", "there", "backup.db.new", "backup.db.new-making"}
    assert abridged("log", "backup", str(log), str(tmp_path / "backup.db")).code == 0
    assert names_in(tmp_path) == {"log", "there", "backup.db"}


def test_a_backup_that_another_process_completes_is_not_written_again(tmp_path, log):
    """The copy that was opened is another's backup by the time it is locked."""
    new, done = tmp_path / "backup.db.new", tmp_path / "done.db"
    new.write_bytes(b"precious")

    ran = abridged_process(
        str(new), str(done), "log", "backup", str(log), str(tmp_path / "backup.db"), program=BESIDE_ONE_THAT_ENDS
    )

    assert (ran.code, ran.out[:4]) == (0, "ok: "), ran
    assert done.read_bytes() == b"precious"
    assert names_in(tmp_path) == {"log", "done.db", "backup.db"}


def test_a_backup_needs_hard_links(tmp_path, log):
    """A volume without them is named; a rename would replace a file that comes meanwhile."""
    refused = abridged_process("log", "backup", str(log), str(tmp_path / "backup.db"), program=WITHOUT_LINKS)

    assert (refused.code, f"the volume of {tmp_path} has no hard links" in refused.err) == (1, True), refused
    assert names_in(tmp_path) == {"log"}


def test_a_copy_without_room_is_not_there(tmp_path, killed, log, backup):
    """The backup or the restored log is absent, wherever in the copy the disk is full; the old log stays."""
    source = killed.parent.parent / FILE
    size, before = source.stat().st_size, bytes_in(log.parent)
    for room in (size // 8, size - 4_096):
        refused = abridged_process(
            str(room), "log", "backup", str(source), str(tmp_path / "backup.db"), program=ON_A_SMALL_DISK
        )
        assert (refused.code, "has no room for the copy" in refused.err) == (1, True), refused
        refused = abridged_process(
            str(room), "log", "restore", str(backup), str(log), "--replace", program=ON_A_SMALL_DISK
        )
        assert (refused.code, "has no room for the copy" in refused.err) == (1, True), refused
    assert names_in(tmp_path) == {"log"}
    assert bytes_in(log.parent) == before


def damaged_copy(whole: Path, folder: Path) -> Path:
    """The log with a bit of a payload flipped, which SQLite does not notice."""
    content = bytearray(whole.read_bytes())
    content[content.rindex(b"importer")] ^= 2
    folder.mkdir()
    (folder / FILE).write_bytes(content)
    return folder / FILE


def test_a_damaged_log_is_not_backed_up(tmp_path, killed):
    """The damage is named, and no file says that there is a backup."""
    path = damaged_copy(killed.parent.parent / FILE, tmp_path / "damaged")

    refused = abridged("log", "backup", str(path), str(tmp_path / "backup.db"))

    assert (refused.code, "damaged  default/chat" in refused.out) == (1, True), refused
    assert (f"{path} is damaged" in refused.err, "no backup was made; restore a backup" in refused.err) == (True, True)
    assert names_in(tmp_path) == {"damaged"}


def test_a_restored_log_is_the_one_that_was_backed_up(tmp_path, backup):
    """The same lines, in a private file, and the backup is as it was."""
    before = backup.read_bytes()
    (tmp_path / "new").mkdir()

    ran = abridged("log", "restore", str(backup), str(tmp_path / "new" / FILE))

    assert (ran.code, ran.out[:4]) == (0, "ok: ")
    assert names_in(tmp_path / "new") == {FILE}
    assert (tmp_path / "new" / FILE).stat().st_mode & 0o777 == 0o600
    assert lines_of(tmp_path / "new" / FILE) == lines_of(backup)
    assert backup.read_bytes() == before


def test_a_log_is_replaced_on_demand_and_kept(log, backup):
    """The log stays without --replace; with it, it lies beside the restored one with all its events and stays."""
    before, old = bytes_in(log.parent), lines_of(log)

    refused = abridged("log", "restore", str(backup), str(log))
    assert (refused.code, "--replace moves it aside" in refused.err) == (1, True)
    assert bytes_in(log.parent) == before

    assert abridged("log", "restore", str(backup), str(log), "--replace").code == 0
    assert lines_of(log) == lines_of(backup) != old
    assert names_in(log.parent) == {FILE, f"{FILE}.replaced", f"{FILE}.replaced-wal"}
    assert lines_of(log.with_name(f"{FILE}.replaced")) == old

    before = bytes_in(log.parent)
    refused = abridged("log", "restore", str(backup), str(log), "--replace")
    assert (refused.code, "there is a log that was replaced before" in refused.err) == (1, True)
    assert bytes_in(log.parent) == before


def test_an_empty_file_does_not_take_the_place_of_the_log_that_was_kept(log, backup):
    """An empty file is no log to keep, so that nothing is in the way of a second restore."""
    assert abridged("log", "restore", str(backup), str(log), "--replace").code == 0
    kept = bytes_in(log.parent)

    for replace in ((), ("--replace",)):
        log.write_bytes(b"")
        assert abridged("log", "restore", str(backup), str(log), *replace).code == 0
        assert bytes_in(log.parent) == kept


def test_a_log_that_no_sidecar_starts_on_is_replaced(tmp_path, killed, backup):
    """The restore reads nothing of the damaged log, neither its file nor its write-ahead log."""
    shutil.copytree(killed.parent, tmp_path / "log")
    log = tmp_path / "log" / FILE
    with log.open("r+b") as file:
        file.write(bytes(4_096))
    before = bytes_in(log.parent)

    assert abridged("log", "restore", str(backup), str(log), "--replace").code == 0

    assert lines_of(log) == lines_of(backup)
    kept = {name.replace(".replaced", ""): found for name, found in bytes_in(log.parent).items() if "replaced" in name}
    assert kept == before


def test_what_is_no_whole_log_is_not_restored(tmp_path, log, backup):
    """The damage of the backup is named, and the log in its place is as it was."""
    before = bytes_in(log.parent)
    damaged = damaged_copy(backup, tmp_path / "damaged")
    (tmp_path / "lines").write_text(lines_of(log))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "cut").write_bytes(backup.read_bytes()[: backup.stat().st_size // 2])

    for file, why in (
        (damaged, f"{damaged} is damaged"),
        (tmp_path / "lines", "is not an abridged log"),
        (tmp_path / "empty", "is not an abridged log"),
        (tmp_path / "cut", "damaged"),
        (log, "another process owns the log"),
    ):
        refused = abridged("log", "restore", str(file), str(log), "--replace")
        assert (refused.code, why in refused.err) == (1, True), refused
        assert bytes_in(log.parent) == before


async def test_a_log_that_is_served_is_not_replaced(tmp_path, backup):
    """The sidecar goes on with its own file; it may be backed up meanwhile."""
    async with sidecar(tmp_path) as s:
        await s.chat().append(said(1, "The heron flies at dawn."))
        refused = await asyncio.to_thread(abridged, "log", "restore", str(backup), str(tmp_path / FILE), "--replace")
        assert (refused.code, "stop the sidecar" in refused.err) == (1, True), refused
        ran = await asyncio.to_thread(abridged, "log", "backup", str(tmp_path / FILE), str(tmp_path / "backup.db"))
        assert ran.code == 0, ran
        await s.chat().append(said(2, "And at dusk."))
    kept, whole = (lines_of(tmp_path / name).splitlines()[1:] for name in ("backup.db", FILE))
    assert "heron" in kept[-1]
    assert whole[: len(kept)] == kept != whole


MARK = f"{FILE}.new-making"
"""The mark of a copy in the making; a kill behind the last step leaves it, and a start removes it."""


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_restore_that_is_killed_leaves_the_old_log_or_the_new_one(tmp_path, killed, backup, how):
    """Or none that a start would make anew: it is refused, and the next restore goes on. The old one is never lost."""
    if how == "stopped":
        # Of the same events, and without a write-ahead log.
        assert abridged("log", "backup", str(killed), str(tmp_path / FILE)).code == 0
        killed = tmp_path / FILE
    old, new = lines_of(_copied(killed, tmp_path / "read")), lines_of(backup)
    refused = 0
    for step in range(STEPS_MAX):
        log = _copied(killed, tmp_path / str(step))
        restore = ("log", "restore", str(backup), str(log), "--replace")
        if abridged_process(str(step), str(log), *restore, program=KILLED_AT_STEP).code == 0:
            break
        there = abridged("log", "verify", str(log))
        if there.code:
            refused += 1
            assert "its write-ahead log is there" in there.err
        if there.code or lines_of(log) != new:
            assert there.code or lines_of(log) == old
            assert abridged(*restore).code == 0
        assert lines_of(log) == new
        assert lines_of(log.with_name(f"{FILE}.replaced")) == old
        assert names_in(log.parent) <= {FILE, f"{FILE}.replaced", f"{FILE}.replaced-wal", f"{FILE}-wal", MARK}
    assert 0 < refused < step < STEPS_MAX - 1


def _copied(killed: Path, folder: Path) -> Path:
    flipped(killed, folder, None)
    return folder / FILE


async def test_a_search_finds_nothing_of_the_log_that_was_replaced(tmp_path):
    """The index of the later events goes with them, so that those in their positions are found."""
    path, file = tmp_path / FILE, tmp_path / "backup.db"
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(said(1, "The heron flies at dawn."))
    assert abridged("log", "backup", str(path), str(file)).code == 0
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(said(2, "The zebra sleeps at noon."))
        assert numbers(await searched(s, "zebra")) == [2]

    assert abridged("log", "restore", str(file), str(path), "--replace").code == 0

    assert not index_path(path).exists()
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(said(2, "The otter swims at dusk."))
        assert [numbers(await searched(s, word)) for word in ("heron", "otter")] == [[1], [2]]
        assert snippets(await searched(s, "zebra")) == []


async def test_an_index_that_is_ahead_of_its_log_is_made_again(tmp_path):
    """A restore by hand causes it: the index would keep lost messages, and miss those that take their positions."""
    path = tmp_path / FILE
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(said(1, "The heron flies at dawn."))
    shutil.copyfile(path, tmp_path / "by-hand.db")
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(said(2, "The zebra sleeps at noon."))
        assert numbers(await searched(s, "zebra")) == [2]
    shutil.copyfile(tmp_path / "by-hand.db", path)

    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(said(2, "The otter swims at dusk."))
        assert snippets(await searched(s, "zebra")) == []
        assert numbers(await searched(s, "otter")) == [2]


async def test_a_backup_of_a_log_with_an_erased_conversation_is_restored(tmp_path):
    """The conversation is erased there too, and neither file has a word of its text."""
    path, copy, back = tmp_path / FILE, tmp_path / "copy.db", tmp_path / "back" / FILE
    back.parent.mkdir()
    async with sidecar(tmp_path) as s:
        for name in ("erased", "left"):
            await s.chat(name).append(*(said(n, f"{name} kestrelwing" if name == "erased" else "hi") for n in (1, 2)))
        await s.conversations.EraseConversation(api.EraseConversationRequest(conversation_id="erased"))
        ran = await asyncio.to_thread(abridged, "log", "backup", str(path), str(copy))
        assert ran.code == 0, ran

    assert abridged("log", "restore", str(copy), str(back)).code == 0

    assert abridged("log", "verify", str(back)).code == 0
    assert b"kestrelwing" not in copy.read_bytes() + back.read_bytes()
    async with sidecar(back.parent) as s:
        async with refused("NOT_FOUND", "CONVERSATION_ERASED"):
            await s.chat("erased").append(said(3))
        assert (await s.chat("left").append(said(3))).message_version == 3
