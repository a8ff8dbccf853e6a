"""An encrypted log over the whole path: no file has a word of it, and an erased conversation is in no copy."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from abridged.eventlog.encryption.key_file import KeyFile
from abridged.eventlog.errors import KeysUnusable
from abridged.eventlog.postgres.data_keys import PostgresKeyStore
from abridged.service.models.settings import SettingUnusable
from abridged.v1 import conversation_service_pb2 as api
from tests.integration.test_archive import archived, closed, unarchived
from tests.integration.test_erasure import CANARY, erased, events_of, found_in, sung
from tests.support.command import Ran, abridged
from tests.support.encryption import operator_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres_server import database_url, schema_url
from tests.support.read_tables import OLDER, changed
from tests.support.refusal import refused
from tests.support.searching import WORDS, searched
from tests.support.sidecar import Sidecar, duration, said, sidecar

FILE, KEYS = "abridged.db", "abridged.db.keys"
INDEX = "index"
OLD, NEW = operator_key(1), operator_key(2)
ON = {"encryption.key": OLD}
GONE, FORK, KEPT = "c1", "c2", "kept"


def run(*arguments: Any, key: str = OLD) -> Ran:
    """Run a command with the operator's key."""
    given = ("--set", f"encryption.key={key}") if key else ()
    return abridged(*map(str, arguments), *given)


async def in_a_thread(*arguments: Any, key: str = OLD) -> Ran:
    """Run a command that has an event loop of its own; the sidecar has shut down the threads of this one."""
    with ThreadPoolExecutor(1) as threads:
        return await asyncio.get_running_loop().run_in_executor(threads, lambda: run(*arguments, key=key))


async def talked(s: Sidecar) -> None:
    """Two conversations, and a fork of one of them, each with the canary in every text."""
    await sung(s, KEPT, turns=10)
    await sung(s, GONE, turns=20)
    await s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id=GONE, fork_id=FORK))
    await s.chat(FORK).append(said(21, f"And the {CANARY}?"))


async def listed(s: Sidecar, **fields: Any) -> list[Any]:
    """The conversations of a list."""
    return list((await s.conversations.ListConversations(api.ListConversationsRequest(**fields))).conversations)


async def gone(s: Sidecar, conversation_id: str) -> None:
    """The conversation is erased for every caller."""
    request = api.GetContextRequest(conversation_id=conversation_id)
    async with refused("NOT_FOUND", "CONVERSATION_ERASED"):
        await s.conversations.GetContext(request, timeout=PATIENCE_S, metadata=s.metadata)


async def test_no_file_has_a_word_of_a_conversation_that_lives(tmp_path):
    """Message, name, tool call, label, title, system prompt, summary, ledger and rule stay out of every file while they
    are written, read and listed, after a stop with its snapshots, and after a start."""
    async with sidecar(tmp_path, ON) as s:
        chat = await sung(s, KEPT, turns=60)
        assert await chat.summaries()
        assert [CANARY in each.settings.title for each in await listed(s, labels={"user": "ada"})] == [True]
        assert found_in(tmp_path) == []
    assert found_in(tmp_path) == []
    async with sidecar(tmp_path, ON) as s:
        events = await events_of(s, KEPT)
        assert CANARY.encode() in events[1].payload
        assert CANARY in str((await s.chat(KEPT).context()).messages)
    with closing(sqlite3.connect(tmp_path / FILE)) as file:
        assert file.execute("SELECT count(*) FROM snapshots").fetchone() == (1,)


async def test_a_backup_from_before_has_nothing_of_what_was_erased_since(tmp_path):
    """A log that is restored beside the data keys repeats later erasures; its other conversations are whole."""
    async with sidecar(tmp_path, ON) as s:
        await talked(s)
    assert run("log", "backup", tmp_path / FILE, tmp_path / "before.db").code == 0
    async with sidecar(tmp_path, ON) as s:
        await erased(s, GONE, forks=True)

    ran = run("log", "restore", tmp_path / "before.db", tmp_path / FILE, "--replace")
    assert ran.code == 0, ran.err
    assert "contents of 2 were not read" in ran.out
    async with sidecar(tmp_path, ON) as s:
        await gone(s, GONE)
        await gone(s, FORK)
        assert [each.id for each in await listed(s)] == [KEPT]
        assert CANARY in str((await s.chat(KEPT).context()).messages)
        await s.chat(KEPT).append(said(11, "It goes on."))
        await erased(s, GONE)  # it has been, and returns when it is purged
    assert "3 conversations" in (ran := run("log", "verify", tmp_path / FILE)).out, ran.err
    assert "not read" not in ran.out


async def test_whichever_backup_is_restored_after_another_one_what_was_erased_is_gone(tmp_path):
    """Callers are told so of a later backup, too. A conversation that is begun again under an erased name lives."""
    log, copies = tmp_path / FILE, [tmp_path / "first.db", tmp_path / "second.db"]
    for name, copy in zip((KEPT, GONE), copies, strict=True):
        async with sidecar(tmp_path, ON) as s:
            await s.chat(name).append(said(1, CANARY))
        assert run("log", "backup", log, copy).code == 0
    async with sidecar(tmp_path, ON) as s:
        await erased(s, GONE)
        await s.chat(KEPT).append(said(2, CANARY))

    assert run("log", "restore", copies[0], log, "--replace").code == 0
    for number in (1, 2):
        async with sidecar(tmp_path, ON) as s:
            await s.chat(GONE).append(said(number, f"Another {CANARY}."))
    log.with_name(f"{FILE}.replaced").unlink()
    assert run("log", "restore", copies[1], log, "--replace").code == 0
    async with sidecar(tmp_path, ON) as s:
        await gone(s, GONE)
        assert [each.id for each in await listed(s)] == [KEPT]


@pytest.mark.parametrize("by", ["a start", "hand"])
async def test_a_backup_from_before_an_erasure_has_its_table_made_again(tmp_path, by: str):
    """The rebuild meets contents whose keys are erased, and no event that says so; the start repeats the erasure."""
    log, copy = tmp_path / FILE, tmp_path / "copy.db"
    async with sidecar(tmp_path, ON) as s:
        await talked(s)
    assert run("log", "backup", log, copy).code == 0
    async with sidecar(tmp_path, ON) as s:
        await erased(s, GONE, forks=True)
    assert run("log", "restore", copy, log, "--replace").code == 0
    exported = await in_a_thread("log", "export", log)
    assert (exported.code, f"2 conversations, such as default/{GONE}, have no contents" in exported.err) == (1, True)
    changed(log, OLDER)
    if by == "hand":
        ran = await in_a_thread("log", "rebuild", log)
        assert (ran.code, f"left out  default/{GONE}" in ran.out) == (1, True), ran.err

    for _ in range(2):
        async with sidecar(tmp_path, ON) as s:
            await gone(s, GONE)
            await gone(s, FORK)
            assert [each.id for each in await listed(s)] == [KEPT]
            assert CANARY in str((await s.chat(KEPT).context()).messages)
    assert "not read" not in (ran := await in_a_thread("log", "verify", log)).out
    assert ran.code == 0, ran.err
    assert (await in_a_thread("log", "export", log)).code == 0


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a log that nobody has open, with an erased conversation beside the others."""
    folder = tmp_path_factory.mktemp("encrypted")

    async def build() -> None:
        async with sidecar(folder, ON) as s:
            await talked(s)
            await sung(s, "erased", turns=10)
            await erased(s, "erased")

    asyncio.run(build())
    return folder


@pytest.fixture
def folder(encrypted: Path, tmp_path: Path) -> Path:
    for name in (FILE, KEYS):
        shutil.copy(encrypted / name, tmp_path / name)
    return tmp_path


def test_a_log_is_checked_without_its_keys_as_far_as_it_can_be(folder: Path):
    """The check covers chains, positions and indexes, and with the keys every content; both find the same damage."""
    without = run("log", "verify", folder / FILE, key="")
    assert (without.code, "contents of 3 were not read" in without.out) == (0, True), without.err
    whole = run("log", "verify", folder / FILE)
    assert (whole.code, "not read" in whole.out) == (0, False), whole.err
    with closing(sqlite3.connect(folder / FILE)) as file:
        rows = file.execute("SELECT id FROM conversations WHERE substr(settings, 1, 1) = x'00' ORDER BY id").fetchall()
        assert [name for (name,) in rows] == [GONE, FORK, KEPT]  # what is erased has no key, in its row neither
    with closing(sqlite3.connect(folder / FILE)) as file, file:
        file.execute("UPDATE events SET payload = zeroblob(length(payload)) WHERE position = 3")

    for key in ("", OLD):
        ran = run("log", "verify", folder / FILE, key=key)
        assert (ran.code, "position 3 is not what was written" in ran.out) == (1, True)


def test_a_log_goes_by_its_lines_to_another_one_with_keys_of_its_own(folder: Path):
    """An export is in clear and needs the keys, an import encrypts; erased events stay erased, and stats count them."""
    refusal = run("log", "export", folder / FILE, key="")
    assert (refusal.code, "the log is encrypted" in refusal.err) == (1, True)
    lines, new = folder / "lines", folder / "new" / FILE
    new.parent.mkdir()
    lines.write_text(run("log", "export", folder / FILE).out, encoding="utf-8")
    assert CANARY in lines.read_text(encoding="utf-8")

    assert run("log", "import", lines, new).code == 0
    assert found_in(new.parent) == []
    ran = run("log", "verify", new)
    assert (ran.code, "not read" in ran.out) == (0, False), ran.err
    assert run("log", "rebuild", new).code == 0
    assert found_in(new.parent) == []
    counted = json.loads(run("log", "stats", new, "--json", key="").out)
    assert 0 < counted["encrypted"] < counted["events"]


def test_a_damaged_log_is_salvaged_with_its_keys_alone(folder: Path):
    """The salvage names the lost positions, keeps erasures and knows repeats; it is refused without the keys."""
    with closing(sqlite3.connect(folder / FILE)) as file, file:
        last, payload = file.execute("SELECT max(position), payload FROM events AS e WHERE stream = 1").fetchone()
    damaged, at = folder / FILE, (folder / FILE).read_bytes().index(payload[-32:])
    damaged.write_bytes(damaged.read_bytes()[:at] + bytes(8) + damaged.read_bytes()[at + 8 :])
    new, keys = folder / "salvaged.db", ("--set", f"encryption.keys_path={folder / KEYS}")

    refusal = run("log", "salvage", damaged, new, key="")
    assert (refusal.code, "the log is encrypted" in refusal.err, new.exists()) == (1, True, False)
    refusal = run("log", "salvage", damaged, new)
    assert (refusal.code, "encryption.keys_path" in refusal.err, new.exists()) == (1, True, False)
    ran = run("log", "salvage", damaged, new, *keys)
    assert (ran.code, f"positions {last}" in ran.out) == (1, True), ran.out + ran.err
    assert ran.out.count("lost") == 1, ran.out
    assert run("log", "verify", new, *keys).code == 0
    assert CANARY.encode() not in new.read_bytes()


@pytest.mark.parametrize(
    ("spoil", "key", "what"),
    [
        (lambda _: None, "", "the log is encrypted, and encryption is off"),
        (lambda _: None, NEW, "is not among those given"),
        (lambda _: None, OLD[:-5], "encryption.key"),
        (lambda folder: (folder / KEYS).unlink(), OLD, "there are no data keys at"),
        (lambda folder: (folder / KEYS).write_bytes(b"no keys" * 100), OLD, KEYS),
    ],
    ids=["no key", "another key", "malformed key", "no data keys", "other data keys"],
)
def test_a_start_without_the_keys_says_which_setting_it_needs(folder: Path, spoil: Any, key: str, what: str):
    """The refused start changes no file, nor does a refused rebuild."""
    spoil(folder)
    before = {each.name: each.read_bytes() for each in folder.iterdir()}

    for command in (("serve", "--set", f"log.path={folder / FILE}"), ("log", "rebuild", folder / FILE)):
        ran = run(*command, key=key)

        assert ran.code in (1, 2)
        assert what in ran.err, ran.err
        assert "encryption.key" in ran.err
        assert {name: (folder / name).read_bytes() for name in before} == before


@pytest.mark.parametrize(
    "spoil", ["DELETE FROM data_keys WHERE id = ?", "UPDATE data_keys SET wrapped = randomblob(60) WHERE id = ?"]
)
async def test_a_key_that_is_lost_takes_its_conversation_alone(folder: Path, spoil: str):
    """A check counts it, and a rebuild leaves it out and names it."""
    with closing(sqlite3.connect(folder / FILE)) as file:
        first = "SELECT payload FROM events JOIN streams ON streams.id = stream WHERE version = 1 AND name = ?"
        (payload,) = file.execute(first, (KEPT,)).fetchone()
    with closing(sqlite3.connect(folder / KEYS)) as keys, keys:
        assert keys.execute(spoil, (payload[1:9],)).rowcount == 1

    verified = run("log", "verify", folder / FILE)
    assert (verified.code, "contents of 1 were not read" in verified.out) == (0, True), verified.err
    rebuilt = await asyncio.to_thread(run, "log", "rebuild", folder / FILE)
    assert (rebuilt.code, f"left out  default/{KEPT}" in rebuilt.out) == (1, True), rebuilt.err
    assert "1 of 4 conversations cannot be read" in rebuilt.err


async def test_a_conversation_whose_key_is_lost_is_listed_and_erased(folder: Path):
    """Callers see it without title and labels, cannot go on with it, and read the others."""
    with closing(sqlite3.connect(folder / FILE)) as file:
        first = "SELECT payload FROM events JOIN streams ON streams.id = stream WHERE version = 1 AND name = ?"
        (payload,) = file.execute(first, (KEPT,)).fetchone()
    with closing(sqlite3.connect(folder / KEYS)) as keys, keys:
        keys.execute("DELETE FROM data_keys WHERE id = ?", (payload[1:9],))

    async with sidecar(folder, ON) as s:
        assert [each.id for each in await listed(s)] == [FORK, GONE, KEPT]
        async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
            await s.chat(KEPT).append(said(11, CANARY))
        await erased(s, KEPT)
        await gone(s, KEPT)
        assert CANARY in str((await s.chat(FORK).context()).messages)
    assert found_in(folder) == []


async def test_the_operators_key_is_replaced_under_load_and_no_call_fails(tmp_path):
    """Calls begin conversations, go on with them and read them while all data keys are wrapped anew, twice."""
    file = tmp_path / "operator.key"
    file.write_text(OLD)
    rotated = asyncio.Event()
    done = 0

    async def call(s: Sidecar, name: str) -> None:
        nonlocal done
        chat = s.chat(name)
        await chat.append(said(1, CANARY))
        await chat.append(said(2, CANARY))
        assert len((await chat.context()).messages) == 2
        done += 1

    async def calls(s: Sidecar, worker: int) -> None:
        while not rotated.is_set():
            await call(s, f"c{worker}-{done}")

    async with sidecar(tmp_path, {"encryption.key_file": str(file)}) as s:
        working = [asyncio.create_task(calls(s, worker)) for worker in range(4)]
        for turn, text in enumerate((f"{NEW}\n{OLD}\n", f"{OLD}\n{NEW}\n")):
            file.write_text(text)
            place = ("--set", f"encryption.key_file={file}")
            ran = await asyncio.to_thread(abridged, "log", "rewrap", str(tmp_path / FILE), *place)
            assert ran.code == 0, ran.err
            for number in range(20):
                await call(s, f"turn{turn}-{number}")
        rotated.set()
        await asyncio.gather(*working)
    with closing(KeyFile(tmp_path / KEYS)) as store:
        assert len(store.wrappers()) == 1
    async with sidecar(tmp_path, ON) as s:
        assert len(await listed(s, page_size=500)) == done


async def test_a_search_index_is_made_only_where_its_file_is_named(tmp_path):
    """The index has the words in clear, and doctor says so; an erasure reaches it."""
    async with sidecar(tmp_path, {**WORDS, **ON}) as s:
        await sung(s, turns=10)
        assert found_in(tmp_path) == []
    async with sidecar(tmp_path, {**WORDS, **ON, "recall.path": str(tmp_path / INDEX)}) as s:
        assert (await searched(s, CANARY)).hits
        assert {name.removesuffix("-wal") for name in found_in(tmp_path)} == {INDEX}
        places = (f"log.path={tmp_path / FILE}", f"recall.path={tmp_path / INDEX}")
        flags = [flag for place in places for flag in ("--set", place)]
        ran = await asyncio.to_thread(run, "doctor", "--no-speed", *flags)
        assert "has the words in clear" in ran.out
        assert "wrapped with the first operator's key" in ran.out
        await erased(s)
        assert found_in(tmp_path) == []


async def test_a_redaction_reaches_the_log_and_no_backup(tmp_path):
    """The conversation goes on with its key: what is left is encrypted, and an old backup is read as before."""
    backup, text = tmp_path / "backup.db", "turn 1 must"
    async with sidecar(tmp_path, ON) as s:
        await sung(s, KEPT, turns=10)
    assert run("log", "backup", tmp_path / FILE, backup).code == 0
    async with sidecar(tmp_path, ON) as s:
        chat = s.chat(KEPT)
        request = api.RedactMessagesRequest(conversation_id=KEPT, numbers=[1])
        await s.conversations.RedactMessages(request, timeout=PATIENCE_S, metadata=s.metadata)
        assert len((await chat.context()).messages) >= 1
        await chat.append(said(11, f"After it {CANARY}."))
    assert found_in(tmp_path) == []
    ran = run("log", "verify", tmp_path / FILE)
    assert (ran.code, "not read" in ran.out) == (0, False), ran.out
    assert text not in run("log", "export", tmp_path / FILE).out
    assert text in run("log", "export", backup, "--set", f"encryption.keys_path={tmp_path / KEYS}").out


async def test_sidecars_that_share_a_log_share_its_keys(tmp_path):
    """One sidecar reads and continues conversations that the other encrypted, and an erasure by one holds for both. A
    start refuses a missing place for the keys, and a database that has a log."""
    log, keys = schema_url(tmp_path), database_url(tmp_path)
    shared = {"log.url": log, "encryption.keys_url": keys, **ON}
    async with sidecar(tmp_path, shared) as one, sidecar(tmp_path, shared) as two:
        await one.chat(KEPT).append(said(1, CANARY))
        await one.chat(GONE).append(said(1, CANARY))
        await two.chat(KEPT).append(said(2, CANARY))
        assert str((await one.chat(KEPT).context()).messages).count(CANARY) == 2
        with psycopg.connect(log) as database:
            rows = database.execute("SELECT payload FROM events").fetchall()
        assert not [row for row in rows if CANARY.encode() in bytes(row[0])]
        await erased(two, GONE)
        await gone(one, GONE)
    with psycopg.connect(keys) as database:
        zeros = "SELECT count(*) FROM data_keys WHERE wrapper = decode(repeat('00', 8), 'hex')"
        assert database.execute(zeros.encode()).fetchone() == (1,)

    for given, key in (((), ""), (("--set", f"encryption.keys_url={keys}"), NEW)):
        refusal = await in_a_thread("log", "rebuild", log, *given, key=key)
        assert (refusal.code, "encryption.key" in refusal.err) == (1, True), refusal.err
    with psycopg.connect(log) as database:
        assert database.execute("SELECT count(*) FROM conversations").fetchone() == (2,)
    flags = ("--set", f"encryption.keys_url={keys}")
    ran = run("log", "verify", log, *flags)
    assert (ran.code, "not read" in ran.out) == (0, False), ran.err
    ran = run("log", "backup", log, tmp_path / "backup.db", *flags)
    assert (ran.code, "the server's own tools" in ran.err) == (1, True)
    assert "encryption.keys_url" in run("log", "verify", log, "--set", f"log.url={log}").err
    ran = run("serve", "--set", f"log.url={log}", "--set", f"encryption.keys_url={log}")
    assert (ran.code, "name another database" in ran.err) == (2, True), ran.err
    with pytest.raises(KeysUnusable, match="name another database"):
        PostgresKeyStore(schema_url(tmp_path / "other"))


async def test_encryption_is_not_switched_on_over_archives(tmp_path):
    """An encrypted log could not take them back, so the start and doctor name one; without the key it comes back."""
    folder = {"log.archive_dir": str(tmp_path / "archive")}
    async with sidecar(tmp_path, folder) as s:
        await sung(s, turns=10)
        await closed(s)
        await archived(s)

    with pytest.raises(SettingUnusable, match="archived conversations, such as c1"):
        async with sidecar(tmp_path, ON):
            pass
    ran = await in_a_thread("doctor", "--no-speed", "--set", f"log.path={tmp_path / FILE}")
    before = (tmp_path / FILE).read_bytes()
    rebuilt = await in_a_thread("log", "rebuild", tmp_path / FILE)
    assert (ran.code, "FAIL  encryption" in ran.out, "such as c1" in ran.out) == (1, True, True), ran.out
    assert (rebuilt.code, "such as c1" in rebuilt.err, (tmp_path / FILE).read_bytes()) == (2, True, before), rebuilt.err

    async with sidecar(tmp_path, folder) as s:
        await unarchived(s)
    async with sidecar(tmp_path, ON) as s:
        assert CANARY in str((await s.chat().context()).messages)


async def test_an_encrypted_log_says_at_once_that_it_keeps_no_archives(tmp_path):
    """A count says it, too, for one conversation or for all that are due, so that nobody sets a folder in vain."""
    async with sidecar(tmp_path, ON) as s:
        await s.chat().append(said(1, CANARY))
        assert (await archived(s, "", closed_for=duration(0), dry_run=True)).conversations == 0
        await closed(s)
        asked: list[dict[str, Any]] = [{}, {"conversation_id": "", "closed_for": duration(0)}]
        for fields in asked:
            for dry_run in (True, False):
                async with refused("FAILED_PRECONDITION", "ARCHIVE_UNUSABLE") as refusal:
                    await archived(s, **fields, dry_run=dry_run)
                assert "the log is encrypted, and an archive is text in clear" in refusal.text


async def test_missing_data_keys_are_named_by_whoever_looks_at_the_log(tmp_path):
    """A nightly check notices them, and a copy of the log is read with those of the log."""
    async with sidecar(tmp_path, ON) as s:
        await s.chat().append(said(1, CANARY))
    with ThreadPoolExecutor(1) as threads:  # the sidecar has shut the loop's own down
        await asyncio.get_running_loop().run_in_executor(threads, missing_keys_are_named, tmp_path)


def missing_keys_are_named(folder: Path) -> None:
    log, backup = ("--set", f"log.path={folder / FILE}"), folder / "backup.db"
    assert run("log", "backup", folder / FILE, backup).code == 0
    assert "ok    encryption: data keys at" in run("doctor", "--no-speed", *log).out
    assert "encryption.keys_path" in run("log", "export", backup).err
    assert run("log", "export", backup, "--set", f"encryption.keys_path={folder / KEYS}").code == 0
    (folder / "operator.key").write_text(OLD)
    (folder / "operator.key").chmod(0o644)
    ran = run("doctor", "--no-speed", *log, "--set", f"encryption.key_file={folder / 'operator.key'}", key="")
    assert "mode 0644 lets others read the key" in ran.out
    assert "FAIL  encryption: off, and the log is encrypted" in run("doctor", "--no-speed", *log, key="").out
    (folder / KEYS).rename(folder / "moved.keys")

    ran = run("doctor", "--no-speed", *log)
    assert "FAIL  encryption: there are no data keys at" in ran.out
    ran = run("log", "verify", folder / FILE)
    assert (ran.code, "there are no data keys at" in ran.err, "were not read" in ran.err) == (1, True, True), ran.err
    with closing(KeyFile(folder / KEYS)):
        ran = run("doctor", "--no-speed", *log)
    assert "does not have data key" in ran.out, ran.out


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("log.archive_dir=archive", "log.archive_dir"),
        ("encryption.keys_path=/nowhere/keys", "encryption.keys_path"),
        ("encryption.keys_url=mysql://database", "encryption.keys_url"),
    ],
)
def test_settings_that_do_not_go_with_a_key_are_refused_by_name(tmp_path: Path, setting: str, what: str):
    """Archives are in clear, and a place that cannot keep the keys would lose them."""
    ran = run("serve", "--set", f"log.path={tmp_path / FILE}", "--set", setting)

    assert (ran.code, what in ran.err, (tmp_path / FILE).exists()) == (2, True, False), ran.err
