"""A data key that is damaged or gone takes its conversation alone, whatever is done with the log or with the keys."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.event import NUMBER_MAX
from abridged.eventlog.rows import seal_of
from abridged.eventlog.salvage import REMNANTS
from abridged.service.conversations.row import Row
from abridged.service.conversations.unchanged import first_since
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2
from tests.integration.test_encryption import FILE, GONE, INDEX, KEPT, KEYS, NEW, OLD, ON, gone, listed, run
from tests.integration.test_erasure import CANARY, erased, erased_by, found_in, sung
from tests.support.below_grpc import below_grpc
from tests.support.command import Ran
from tests.support.event_logs import Clock
from tests.support.read_tables import OLDER, changed
from tests.support.refusal import refused
from tests.support.searching import BOTH, WORDS, searched
from tests.support.sidecar import said, sidecar

OTHER = "other"
SPOILS = {
    "gone": "DELETE FROM data_keys WHERE id = ?",
    "flipped": "UPDATE data_keys SET wrapped = randomblob(60) WHERE id = ?",
    "cut": "UPDATE data_keys SET wrapped = substr(wrapped, 1, 20) WHERE id = ?",
    "empty": "UPDATE data_keys SET wrapped = x'' WHERE id = ?",
}
"""Statements that damage a data key, by kind."""


def key_id_of(log: Path, name: str) -> bytes:
    """The id of a conversation's data key."""
    query = "SELECT payload FROM events JOIN streams ON streams.id = stream WHERE version = 1 AND name = ?"
    with closing(sqlite3.connect(log)) as file:
        (payload,) = file.execute(query, (name,)).fetchone()
    return bytes(payload[1:9])


def spoiled(folder: Path, name: str, spoil: str) -> bytes:
    """Damage a conversation's data key, and return its id."""
    key_id = key_id_of(folder / FILE, name)
    with closing(sqlite3.connect(folder / KEYS)) as keys, keys:
        assert keys.execute(spoil, (key_id,)).rowcount == 1
    return key_id


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a log with three conversations, the last of which has its newest event."""
    folder = tmp_path_factory.mktemp("whole")

    async def build() -> None:
        async with sidecar(folder, ON) as s:
            for name in (KEPT, GONE, OTHER):
                await sung(s, name, turns=10)

    asyncio.run(build())
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    for name in (FILE, KEYS):
        shutil.copy(whole / name, tmp_path / name)
    return tmp_path


async def ran(*arguments: object, key: str = OLD) -> Ran:
    """Run a command in a thread that no sidecar has shut down."""
    with ThreadPoolExecutor(1) as threads:
        return await asyncio.get_running_loop().run_in_executor(threads, lambda: run(*arguments, key=key))


@pytest.mark.parametrize("kind", ["flipped", "cut", "empty"])
async def test_a_rotation_wraps_all_keys_but_those_that_are_damaged(folder: Path, kind: str):
    """The command names these, each time, and the old operator's key is needed no more."""
    key_id = spoiled(folder, GONE, SPOILS[kind])

    for expected in ("2 others", "0 others"):
        rotated = await ran("log", "rewrap", folder / FILE, key=f"{NEW} {OLD}")
        assert (rotated.code, f"damaged  data key {key_id.hex()}" in rotated.out) == (1, True), rotated.err
        assert "1 data keys are damaged" in rotated.err
        assert expected in rotated.err
        assert "operator's key of that time is needed" in rotated.err
    verified = await ran("log", "verify", folder / FILE, key=NEW)
    assert (verified.code, f"unread  default/{GONE} cannot be read" in verified.out) == (0, True), verified.out
    async with sidecar(folder, {"encryption.key": NEW}) as s:
        for name in (KEPT, OTHER):
            assert CANARY in str((await s.chat(name).context()).messages)
        async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
            await s.chat(GONE).context()
        await erased(s, GONE)
    assert (await ran("log", "rewrap", folder / FILE, key=NEW)).code == 0


async def test_a_key_that_comes_back_from_a_copy_is_wrapped_by_the_next_rotation(folder: Path):
    """The copy needs the operator's key of its time, which a rotation without it says, and then nothing is lost."""
    with closing(sqlite3.connect(folder / KEYS)) as keys:
        row = keys.execute("SELECT wrapper, wrapped, id FROM data_keys WHERE id = ?", (key_id_of(folder / FILE, GONE),))
        copy = row.fetchone()
    spoiled(folder, GONE, SPOILS["flipped"])
    assert (await ran("log", "rewrap", folder / FILE, key=f"{NEW} {OLD}")).code == 1
    with closing(sqlite3.connect(folder / KEYS)) as keys, keys:
        keys.execute("UPDATE data_keys SET wrapper = ?, wrapped = ? WHERE id = ?", copy)

    too_early = await ran("log", "rewrap", folder / FILE, key=NEW)
    assert (too_early.code, "operator's key of that time is needed" in too_early.err) == (1, True), too_early.err
    rotated = await ran("log", "rewrap", folder / FILE, key=f"{NEW} {OLD}")

    assert (rotated.code, rotated.out) == (0, "ok: 1 data key\n")
    async with sidecar(folder, {"encryption.key": NEW}) as s:
        assert CANARY in str((await s.chat(GONE).context()).messages)


async def test_a_damaged_name_of_the_operators_key_costs_nothing(folder: Path):
    """Whichever given key unwraps a data key is the one that wrapped it; a rotation writes its name anew."""
    spoiled(folder, GONE, "UPDATE data_keys SET wrapper = randomblob(8) WHERE id = ?")
    spoiled(folder, KEPT, "UPDATE data_keys SET wrapper = zeroblob(8) WHERE id = ?")

    async with sidecar(folder, ON) as s:
        for name in (KEPT, GONE, OTHER):
            assert CANARY in str((await s.chat(name).context()).messages)
    assert (await ran("log", "rewrap", folder / FILE)).out == "ok: 2 data keys\n"


@pytest.mark.parametrize(
    ("spoil", "lost"),
    [
        ("UPDATE data_keys SET wrapper = randomblob(8), wrapped = randomblob(60) WHERE id = ?", {GONE}),
        ("UPDATE data_keys SET wrapper = x'6f6e65' WHERE id = ?", set()),
    ],
    ids=["all of it", "the name of its wrapper"],
)
async def test_a_data_key_whose_wrapper_nobody_knows_takes_its_conversation_alone(
    folder: Path, spoil: str, lost: set[str]
):
    """A damaged page may spoil the name of the wrapper beside the secret: the start says so, and serves all others."""
    key_id = spoiled(folder, GONE, spoil)

    async with sidecar(folder, {**WORDS, **ON, "recall.path": str(folder / INDEX)}) as s:
        for name in {KEPT, GONE, OTHER} - lost:
            assert CANARY in str((await s.chat(name).context()).messages)
        for name in lost:
            async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
                await s.chat(name).context()
        assert lost.isdisjoint({hit.conversation_id for hit in (await searched(s, CANARY)).hits})
        told = [line["hint"] for line in s.logs if line["event"] == "log.notice" and line["code"] == "missing_keys"]
        assert ("which is missing, or damaged there" in str(told)) is bool(lost)
    doctor = await ran("doctor", "--no-speed", "--set", f"log.path={folder / FILE}")
    assert ("which is missing, or damaged there" in doctor.out) is bool(lost), doctor.out
    for _ in range(2):
        rotated = await ran("log", "rewrap", folder / FILE, key=f"{NEW} {OLD}")
        assert (rotated.code, key_id.hex() in rotated.out) == (len(lost), bool(lost)), rotated.err
        assert "meanwhile" not in rotated.err


async def test_a_rotation_that_was_cut_short_loses_nothing_without_the_old_key(folder: Path):
    """The log with the new key alone says which one is missing, and serves what the new one wraps; with the old key
    alone, or before the first data key was wrapped anew, it is refused. A rotation goes on with both."""
    with closing(sqlite3.connect(folder / KEYS)) as keys:
        query = "SELECT wrapper, wrapped, id FROM data_keys WHERE id IN (?, ?)"
        old = keys.execute(query, [key_id_of(folder / FILE, name) for name in (GONE, OTHER)]).fetchall()
        every = keys.execute("SELECT wrapper, wrapped, id FROM data_keys").fetchall()
    assert (await ran("log", "rewrap", folder / FILE, key=f"{NEW} {OLD}")).code == 0

    def put_back(rows: list[Any]) -> None:
        with closing(sqlite3.connect(folder / KEYS)) as keys, keys:
            keys.executemany("UPDATE data_keys SET wrapper = ?, wrapped = ? WHERE id = ?", rows)

    put_back(every)
    assert "is not among those given" in (await ran("log", "verify", folder / FILE, key=NEW)).err
    assert (await ran("log", "rewrap", folder / FILE, key=f"{NEW} {OLD}")).code == 0

    put_back(old)
    async with sidecar(folder, {"encryption.key": NEW}) as s:
        assert CANARY in str((await s.chat(KEPT).context()).messages)
        for name in (GONE, OTHER):
            async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
                await s.chat(name).context()
        await s.chat("begun").append(said(1, CANARY))
    rotated = await ran("log", "rewrap", folder / FILE, key=NEW)
    assert (rotated.code, "2 data keys are damaged, or of an operator's key" in rotated.err) == (1, True), rotated.err
    assert "is not among those given" in (await ran("log", "verify", folder / FILE, key=OLD)).err
    assert (await ran("log", "rewrap", folder / FILE, key=f"{NEW} {OLD}")).code == 0
    async with sidecar(folder, {"encryption.key": NEW}) as s:
        for name in (KEPT, GONE, OTHER):
            assert CANARY in str((await s.chat(name).context()).messages)


@pytest.mark.parametrize("kind", SPOILS)
def test_an_export_says_whose_key_is_lost_and_a_part_of_the_others_is_whole(folder: Path, kind: str):
    """A whole export ends there, as at a damaged event; one of other conversations does not need the key."""
    spoiled(folder, GONE, SPOILS[kind])

    whole = run("log", "export", folder / FILE)
    assert (whole.code, f"default/{GONE} cannot be read" in whole.err) == (1, True), whole.err
    assert "abridged log salvage" in whole.err
    part = run(
        "log", "export", folder / FILE, "--conversation", f"default/{KEPT}", "--conversation", f"default/{OTHER}"
    )
    assert part.code == 0, part.err
    (folder / "lines").write_text(part.out, encoding="utf-8")
    assert "2 conversations" in run("log", "import", folder / "lines", folder / "new.db").out
    assert run("log", "export", folder / FILE, "--conversation", f"default/{GONE}").code == 1


@pytest.mark.parametrize("kind", SPOILS)
async def test_a_salvage_keeps_what_has_a_key_and_names_the_rest(folder: Path, kind: str):
    """Events without a key count as missing: their positions stay vacant, and the others are served."""
    spoiled(folder, GONE, SPOILS[kind])
    new, place = folder / "new.db", ("--set", f"encryption.keys_path={folder / KEYS}")

    salvaged = await ran("log", "salvage", folder / FILE, new, *place)

    assert salvaged.code == 1
    (line,) = salvaged.out.splitlines()
    assert line.startswith(f"lost  default/{GONE}: events 1 to ")
    assert line.endswith("; its data key is lost; none of its events is kept")
    assert not new.with_name(f"{new.name}{REMNANTS}").exists()
    assert (await ran("log", "verify", new, *place)).code == 0
    assert (await ran("log", "export", new, *place)).code == 0
    async with sidecar(folder, {**ON, "log.path": str(new), "encryption.keys_path": str(folder / KEYS)}) as s:
        assert [each.id for each in await listed(s)] == [OTHER, KEPT]
        for name in (KEPT, OTHER):
            assert CANARY in str((await s.chat(name).context()).messages)
        await s.chat(GONE).append(said(1, "It begins anew."))


async def test_what_is_left_in_clear_of_a_conversation_is_kept(tmp_path: Path):
    """A salvage keeps the first events of a conversation that was begun in clear."""
    async with sidecar(tmp_path) as s:
        await s.chat(KEPT).append(said(1, CANARY))
    async with sidecar(tmp_path, ON) as s:
        await s.chat(KEPT).append(said(2, CANARY))
        await s.chat(OTHER).append(said(1, CANARY))
    with closing(sqlite3.connect(tmp_path / FILE)) as log:
        (payload,) = log.execute("SELECT payload FROM events WHERE version = 3").fetchone()
    with closing(sqlite3.connect(tmp_path / KEYS)) as keys, keys:
        keys.execute(SPOILS["gone"], (payload[1:9],))
    new, place = tmp_path / "new.db", ("--set", f"encryption.keys_path={tmp_path / KEYS}")

    salvaged = await ran("log", "salvage", tmp_path / FILE, new, *place)

    lost = f"lost  default/{KEPT}: events 3 (positions 3); its data key is lost; its first 2 events are kept"
    assert (salvaged.code, salvaged.out.strip()) == (1, lost)
    async with sidecar(tmp_path, {**ON, "log.path": str(new), "encryption.keys_path": str(tmp_path / KEYS)}) as s:
        assert len((await s.chat(KEPT).context()).messages) == 1


def test_a_salvage_with_the_keys_of_another_log_is_refused(folder: Path):
    """The damaged log is not taken for one that has lost all of its keys."""
    with closing(sqlite3.connect(folder / KEYS)) as keys, keys:
        keys.execute("DELETE FROM data_keys")
    new = folder / "new.db"

    salvaged = run("log", "salvage", folder / FILE, new, "--set", f"encryption.keys_path={folder / KEYS}")

    assert (salvaged.code, "has no key of this log" in salvaged.err, new.exists()) == (1, True, False), salvaged.err


@pytest.mark.parametrize("kind", SPOILS)
async def test_a_log_starts_without_the_key_of_its_newest_event(folder: Path, kind: str):
    """The conversation is refused with its reason, and erased on demand; all others are served."""
    spoiled(folder, OTHER, SPOILS[kind])

    async with sidecar(folder, ON) as s:
        for name in (KEPT, GONE):
            assert CANARY in str((await s.chat(name).context()).messages)
            await s.chat(name).append(said(11, CANARY))
        async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
            await s.chat(OTHER).context()
        await erased(s, OTHER)
        await gone(s, OTHER)
    assert found_in(folder) == []


@pytest.mark.parametrize("index", [WORDS, BOTH])
async def test_readers_of_all_conversations_pass_by_a_lost_key(folder: Path, index: dict[str, Any]):
    """A search index and a subscription get its events like erased ones; a reader of the conversation is refused.
    So others are found and erased, and an erasure by user ends at the one whose users nobody can tell."""
    spoiled(folder, GONE, SPOILS["gone"])

    async with sidecar(folder, {**index, **ON, "recall.path": str(folder / INDEX)}) as s:
        assert {hit.conversation_id for hit in (await searched(s, CANARY)).hits} == {KEPT, OTHER}
        items = s.event_log.SubscribeEvents(event_log_service_pb2.SubscribeEventsRequest())
        assert [item async for item in until_caught_up(items)]
        items = s.event_log.SubscribeEvents(event_log_service_pb2.SubscribeEventsRequest(conversation_id=GONE))
        async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
            assert [item async for item in until_caught_up(items)]
        async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
            await erased_by(s, user_id="nobody")
        await erased(s, KEPT)
        await erased(s, GONE)
        assert (await erased_by(s, user_id="nobody")).conversations == 0
        assert {hit.conversation_id for hit in (await searched(s, CANARY)).hits} == {OTHER}


async def test_a_search_passes_by_a_conversation_whose_key_was_lost_since_it_was_indexed(folder: Path):
    """A search of that conversation alone is refused."""
    settings = {**WORDS, **ON, "recall.path": str(folder / INDEX)}
    async with sidecar(folder, settings) as s:
        assert {hit.conversation_id for hit in (await searched(s, CANARY, page_size=100)).hits} == {KEPT, GONE, OTHER}
    spoiled(folder, GONE, SPOILS["gone"])

    async with sidecar(folder, settings) as s:
        assert {hit.conversation_id for hit in (await searched(s, CANARY, page_size=100)).hits} == {KEPT, OTHER}
        async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
            await searched(s, CANARY, conversation_id=GONE)


async def until_caught_up(items: Any) -> AsyncIterator[Any]:
    async for item in items:
        if item.HasField("caught_up"):
            return
        yield item


async def test_erasing_by_age_does_not_need_a_key(folder: Path):
    """The conversation whose key is lost is erased with all others that have not changed."""
    spoiled(folder, GONE, SPOILS["gone"])

    async with below_grpc(folder, ON, now_us=Clock()) as s:
        done = await s.core.erasures.unchanged_since(NUMBER_MAX)

        assert done.conversations == 3


async def test_a_table_that_is_made_again_takes_the_conversation_of_a_lost_key_alone(folder: Path):
    """The row has the figures, by which the conversation is listed and erased; others are listed and exported as ever,
    and erased by label once the one whose labels nobody knows is gone."""
    spoiled(folder, GONE, SPOILS["gone"])
    changed(folder / FILE, OLDER)

    for _ in range(2):
        async with sidecar(folder, ON) as s:
            found = {each.id: (each.message_version, each.settings.title) for each in await listed(s)}
            assert found == {KEPT: (10, f"On {CANARY}"), GONE: (10, ""), OTHER: (10, f"On {CANARY}")}
            assert CANARY in str((await s.chat(KEPT).context()).messages)
            for call in (s.chat(GONE).context(), s.chat(GONE).append(said(11))):
                async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
                    await call
    part = await ran("log", "export", folder / FILE, "--conversation", f"default/{KEPT}")
    assert part.code == 0, part.err
    verified = await ran("log", "verify", folder / FILE)
    assert (verified.code, f"unread  default/{GONE} cannot be read" in verified.out) == (0, True), verified.out

    async with sidecar(folder, ON) as s:
        erasure = await erased(s, GONE)
        assert (erasure.conversations, erasure.messages) == (1, 10)
        await gone(s, GONE)
        assert (await erased_by(s, labels={"user": "ada"})).conversations == 2
        assert await listed(s) == []


@pytest.mark.parametrize("fault", ["UPDATE projections SET version = version", OLDER], ids=["as written", "made again"])
async def test_no_erasure_and_no_export_by_label_passes_by_a_lost_key(folder: Path, fault: str):
    """The conversation may have the label: nothing is erased before it is, by its id, and no part lacks it."""
    spoiled(folder, GONE, SPOILS["gone"])
    changed(folder / FILE, fault)

    async with sidecar(folder, ON) as s:
        assert {each.id for each in await listed(s, labels={"user": "ada"})} == {KEPT, OTHER}
        for dry_run in (True, False):
            async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
                await erased_by(s, labels={"user": "ada"}, dry_run=dry_run)
        assert len(await listed(s)) == 3
    part = await ran("log", "export", folder / FILE, "--label", "user=ada")
    assert (part.code, f"default/{GONE} cannot be read" in part.err) == (1, True), part.err
    assert part.out == ""
    part = await ran("log", "export", folder / FILE, "--label", "user=ada", "--until", "2020-01-01")
    assert "no conversation meets the conditions" in part.err

    async with sidecar(folder, ON) as s:
        await erased(s, GONE)
        assert (await erased_by(s, labels={"user": "ada"})).conversations == 2


async def test_a_purge_that_a_lost_key_ends_is_not_in_the_way_of_others(folder: Path):
    """A process was killed after a redaction in the conversation, and before its purge."""
    spoiled(folder, GONE, SPOILS["gone"])
    with closing(sqlite3.connect(folder / FILE)) as log, log:
        *stored, _ = log.execute("SELECT * FROM conversations WHERE id = ?", (GONE,)).fetchone()
        row = Row(*stored)._replace(purge_due=3)
        log.execute("UPDATE conversations SET purge_due = ?, seal = ? WHERE id = ?", (3, seal_of(row), GONE))

    async with sidecar(folder, ON) as s:
        assert (await erased(s, KEPT)).conversations == 1
        (told,) = [line for line in s.logs if line["event"] == "purge.stopped"]
        assert (told["conversation_id"], "cannot be read" in told["hint"]) == (GONE, True)


async def test_a_table_has_the_conversation_whole_when_its_key_is_back(folder: Path):
    """The start with the key makes the table again, and `verify` finds nothing before it either."""
    keys = (folder / KEYS).read_bytes()
    async with sidecar(folder, ON) as s:
        before = await listed(s)
    spoiled(folder, GONE, SPOILS["gone"])
    changed(folder / FILE, OLDER)
    assert (await ran("log", "rebuild", folder / FILE)).code == 1
    (folder / KEYS).write_bytes(keys)

    verified = await ran("log", "verify", folder / FILE)
    assert (verified.code, "unread" in verified.out) == (0, False), verified.out
    async with sidecar(folder, ON) as s:
        assert await listed(s) == before
        assert CANARY in str((await s.chat(GONE).context()).messages)
    assert (await ran("log", "verify", folder / FILE)).code == 0


async def test_erasing_by_age_does_not_need_a_key_after_the_table_was_made_again(folder: Path):
    """The conversations whose keys are lost are erased with all others, forks of nobody knows which among them."""
    async with sidecar(folder, ON) as s:
        for parent, fork in ((KEPT, "fork"), (KEPT, "another"), ("fork", "third")):
            await s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id=parent, fork_id=fork))
    for name in (GONE, "fork", "third"):
        spoiled(folder, name, SPOILS["gone"])
    changed(folder / FILE, OLDER)

    async with below_grpc(folder, ON, now_us=Clock()) as s:
        done = 0
        for _ in range(2):
            done += (await s.core.erasures.unchanged_since(NUMBER_MAX)).conversations

        assert done == 6


async def test_the_bound_of_a_look_by_age_does_not_move_with_a_lost_key(folder: Path):
    """Times of events are in clear, so that the look for the first event since a time reads no contents."""
    spoiled(folder, GONE, SPOILS["gone"])

    async with below_grpc(folder, ON, now_us=Clock()) as s:
        log = s.core.log
        for event in (events := log.scan(after=0).events):
            first = next(each for each in events if each.time_us >= event.time_us)
            assert first_since(log, event.time_us) == first.position
        assert first_since(log, NUMBER_MAX) == log.head() + 1


async def test_an_erasure_that_a_lost_key_does_not_let_repeat_keeps_no_log_from_starting(folder: Path):
    """A log is restored from before the erasure, and the erased key is no longer there either."""
    before, key_id = (folder / FILE).read_bytes(), key_id_of(folder / FILE, GONE)
    async with sidecar(folder, ON) as s:
        await erased(s, GONE)
    (folder / FILE).write_bytes(before)
    with closing(sqlite3.connect(folder / KEYS)) as keys, keys:
        assert keys.execute(SPOILS["gone"], (key_id,)).rowcount == 1

    for _ in range(2):
        async with sidecar(folder, ON) as s:
            assert CANARY in str((await s.chat(KEPT).context()).messages)
            async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
                await s.chat(GONE).context()


async def test_a_log_starts_with_a_copy_of_its_keys_from_before_its_newest_conversations(tmp_path: Path):
    """Doctor agrees. Keys of another log are refused, also where that has a conversation of the same name."""
    async with sidecar(tmp_path, ON) as s:
        await s.chat(KEPT).append(said(1, CANARY))
    copy = (tmp_path / KEYS).read_bytes()
    async with sidecar(tmp_path, ON) as s:
        await s.chat(GONE).append(said(1, CANARY))
    (tmp_path / KEYS).write_bytes(copy)

    doctor = await ran("doctor", "--no-speed", "--set", f"log.path={tmp_path / FILE}")
    assert "ok    encryption: data keys at" in doctor.out, doctor.out
    async with sidecar(tmp_path, ON) as s:
        assert CANARY in str((await s.chat(KEPT).context()).messages)
        async with refused("UNAVAILABLE", "LOG_UNAVAILABLE"):
            await s.chat(GONE).context()
        await s.chat(OTHER).append(said(1, CANARY))
