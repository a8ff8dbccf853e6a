"""One flipped bit in each kind of place that a log has: answers are as they were, or DATA_LOSS.

`make test-hostile` flips three thousand anywhere.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from abridged.eventlog.chain import commit_to, envelope
from abridged.eventlog.errors import LogCorrupt, LogFailed
from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.v1 import conversation_service_pb2 as api
from tests.support.flipped_bits import FILE, PENDING, Answers, answers_of, built_log, flipped, head_of, wrong_answers
from tests.support.log_places import lost_id, places_of
from tests.support.read_tables import asked
from tests.support.refusal import refused
from tests.support.sidecar import said, sidecar

DAMAGED = "chat-3"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A log, and its answers."""

    async def built() -> tuple[Path, Answers]:
        path = await built_log(tmp_path_factory.mktemp("whole"))
        flipped(path, path.parent / "asked", None)
        return path, await answers_of(path.parent / "asked", head=head_of(path))

    return asyncio.run(built())


async def test_no_answer_is_wrong_in_whichever_place_a_bit_is_flipped(tmp_path, whole):
    """Each kind of place once."""
    path, expected = whole
    wrong: dict[str, list[str]] = {}
    for number, (place, flip) in enumerate(places_of(path, DAMAGED).items()):
        folder = tmp_path / str(number)
        flipped(path, folder, flip)
        wrong[place] = wrong_answers(await answers_of(folder, head=head_of(path), over_grpc=False), expected)

    assert {place: found for place, found in wrong.items() if found} == {}


@pytest.mark.parametrize("tree", ["streams", "types", "conversations_attention"])
async def test_a_pass_that_cannot_be_committed_leaves_the_window_as_it_was(tmp_path, whole, tree):
    """A tree's page that is listed as free is written over by the first transaction that needs one."""
    path, expected = whole
    ((root,),) = asked(path, "SELECT rootpage FROM sqlite_schema WHERE name = ?", tree)
    flipped(path, tmp_path / "log", None)
    damaged = bytearray(path.read_bytes())
    free = (int.from_bytes(damaged[32:36], "big") - 1) * 4_096
    damaged[free + 8 : free + 12] = root.to_bytes(4, "big")
    (tmp_path / "log" / FILE).write_bytes(damaged)

    assert wrong_answers(await answers_of(tmp_path / "log", head=head_of(path), over_grpc=False), expected) == []


async def test_originals_are_never_fewer_than_were_written(tmp_path):
    """A page of the index that has lost its end ends the conversation for nobody."""
    path = await _flipped_at(tmp_path, "index of versions: cells")

    async with sidecar(path.parent) as s:
        async with refused("DATA_LOSS", "LOG_CORRUPT"):
            await s.chat(DAMAGED).context(view=api.CONTEXT_VIEW_ORIGINAL)
        async with refused("DATA_LOSS", "LOG_CORRUPT"):
            await s.chat(DAMAGED).events()


async def test_a_repeat_is_known_or_refused_though_a_snapshot_spares_the_reading_of_its_event(tmp_path):
    """The index has lost one message's id; the others pass for whole until that one is met."""
    whole = await _chat_of(tmp_path, messages=100)
    lost, flip = lost_id(whole, DAMAGED)
    path = tmp_path / "log" / FILE
    flipped(whole, path.parent, flip)
    assert asked(path, "SELECT id, event_version FROM snapshots") == [(DAMAGED, 101)]

    async with sidecar(path.parent, {"policy.enabled": False}) as s:
        assert (await s.chat(DAMAGED).append(said(101))).message_version == 101
        assert len((await s.chat(DAMAGED).context()).messages) == 101
        for number in (lost % 100 + 1, lost % 99 + 1, 101):
            (again,) = (await s.chat(DAMAGED).append(said(number))).messages
            assert again.already_appended
        async with refused("DATA_LOSS", "LOG_CORRUPT"):
            await s.chat(DAMAGED).append(said(lost))
        async with refused("DATA_LOSS", "LOG_CORRUPT"):
            await s.chat(DAMAGED).append(said(102))

    assert asked(path, "SELECT count(*) FROM events NOT INDEXED WHERE version > 101") == [(1,)]


async def test_a_name_that_cannot_be_found_any_more_opens_no_second_stream(tmp_path):
    """The read table knows that there is one."""
    path = await _flipped_at(tmp_path, "index of streams: a name")

    async with sidecar(path.parent) as s:
        async with refused("DATA_LOSS", "LOG_CORRUPT"):
            await s.chat(DAMAGED).append(said(99))
        async with refused("DATA_LOSS", "LOG_CORRUPT"):
            await s.chat(DAMAGED).context()

    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM streams NOT INDEXED WHERE name = ?", (DAMAGED,)).fetchone() == (
            1,
        )


async def test_a_pending_pass_that_the_start_cannot_find_is_not_forgotten(tmp_path, whole):
    """A read of its conversation takes up the pass; damage that its commit then meets stops the process, loudly."""
    flipped(whole[0], tmp_path / "log", places_of(whole[0], DAMAGED)["index of pending passes: an entry"])

    async def read() -> None:
        async with sidecar(tmp_path / "log") as s:
            await s.chat(PENDING).state()
            await s.idle()

    with pytest.raises(LogFailed) as stopped:
        await read()
    assert isinstance(stopped.value.__cause__, LogCorrupt)


async def test_a_change_that_carries_its_own_seal_is_found_by_the_comparison(tmp_path, whole):
    """The control: a change that no guard can see is a wrong answer, and is counted as one."""
    path, expected = whole
    flipped(path, tmp_path / "log", None)
    _forged(tmp_path / "log" / FILE, position=20)

    wrong = wrong_answers(await answers_of(tmp_path / "log", head=head_of(path)), expected)

    assert any("events" in found for found in wrong)


async def _flipped_at(folder: Path, place: str) -> Path:
    """A log of some messages of one conversation and one of another, without passes, with a bit flipped."""
    whole = await _chat_of(folder, messages=40)
    flipped(whole, folder / "log", places_of(whole, DAMAGED)[place])
    return folder / "log" / FILE


async def _chat_of(folder: Path, *, messages: int) -> Path:
    """The same log with each bit as it was written."""
    (folder / "whole").mkdir()
    async with sidecar(folder / "whole", {"policy.enabled": False}) as s:
        await s.chat("other").append(said(1))
        await s.chat(DAMAGED).append(*map(said, range(1, messages + 1)), request_id="first")
    return folder / "whole" / FILE


def _forged(path: Path, *, position: int) -> None:
    """Change an event's payload and commit to it anew."""
    with closing(sqlite3.connect(path)) as database:
        namespace, name, *columns, salt, payload = database.execute(
            "SELECT s.namespace, s.name, e.position, e.version, e.event_id, t.name, e.schema_version, e.time_us, "
            "e.trace_context, e.salt, e.payload FROM events AS e JOIN streams AS s ON s.id = e.stream "
            "JOIN types AS t ON t.id = e.type "
            "WHERE e.position = ?",
            (position,),
        ).fetchone()
        forged = payload.replace(b"orders_", b"0rders_")
        assert forged != payload
        first, *others = columns
        event = RecordedEvent._make([first, StreamId(namespace, name), *others, forged])
        commitment = commit_to(salt, envelope(event), forged)
        database.execute(
            "UPDATE events SET payload = ?, commitment = ? WHERE position = ?", (forged, commitment, position)
        )
        database.commit()
