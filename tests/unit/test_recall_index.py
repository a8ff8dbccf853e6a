"""The index against the log: it has all of it, once, whatever ends it midway; and a forgotten text is gone."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abridged.eventlog.errors import KeyLost, LogClosed, LogUnavailable
from abridged.eventlog.event import NewEvent, RecordedEvent, StreamId
from abridged.eventlog.log import Append, EventLog, Page
from abridged.eventlog.memory import MemoryEventLog
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.service.bootstrap.recall import forgotten
from abridged.service.codec.events import EVENT_TYPES, UnknownEvent, decode, encode
from abridged.service.config.settings import Settings
from abridged.service.domain.conversation import Ancestor, Conversation
from abridged.service.domain.errors import ConversationIsErased, ConversationNotFound
from abridged.service.domain.events import (
    ConversationArchived,
    ConversationErased,
    ConversationRewound,
    ConversationUnarchived,
    Event,
    MessageAppended,
    MessagesRedacted,
    RulesDropped,
    SummarizationCompleted,
    SummaryRevoked,
)
from abridged.service.domain.message import Message, Role
from abridged.service.domain.record import EpisodeFigures, MessageRange, Provenance, RecordContext, SummaryRecord
from abridged.service.domain.redaction import Redaction
from abridged.service.domain.rules import RuleName
from abridged.service.domain.tokens import TokenSource
from abridged.service.recall.embedders import WordLlamaEmbedder
from abridged.service.recall.errors import EmbedderAway, EmbedderChanged, RecallStopped
from abridged.service.recall.file import Kind, connected, opened
from abridged.service.recall.filters import scope_of
from abridged.service.recall.index import _INDEXED, _UNINDEXED, Index
from abridged.service.recall.orders import by_words
from abridged.service.recall.passages import PIECES_MAX
from abridged.service.recall.pieces import BLOCK_BYTES, Wanted, nearest, row_bytes
from abridged.service.recall.projection import Pace, Projection
from abridged.service.recall.query import parsed, spelled
from abridged.service.recall.recall import Hits, Recall
from abridged.service.recall.search import Asked, Mode, Search
from abridged.service.recall.searcher import Searcher
from abridged.service.recall.standing import STANDING
from abridged.service.recall.vectors import quantized
from tests.support.patience import PATIENCE_S
from tests.support.recall import AT_ONCE, append, indexed, untouched

WORDS = ("red", "green", "blue", "yellow", "stone", "river")


def message(number: int, content: str, **fields: Any) -> MessageAppended:
    """A message of the user, as the log has it."""
    return MessageAppended(
        number, Message(f"m{number}", Role.USER, content, **fields), 5, TokenSource.ESTIMATE, "estimate"
    )


def chat(log: EventLog, *contents: str, name: str = "c1", namespace: str = "default") -> int:
    """Append messages to a conversation; returns the position of the last one."""
    stream = StreamId(namespace, name)
    first = log.stream_version(stream) + 1
    return append(log, stream, [message(n, content) for n, content in enumerate(contents, start=first)])


@pytest.fixture
def log() -> MemoryEventLog:
    """An empty log."""
    return MemoryEventLog(clock_us=lambda: 1_000_000)


async def find(
    recall: Recall, query: str, *, mode: Mode = Mode.WORDS, conversation: str = "", tokens_max: int = 0
) -> Hits:
    """A search in the namespace `default`."""
    return await recall.search(Search("default", conversation, parsed(query), mode, 100, tokens_max=tokens_max))


def positions(hits: Hits) -> list[int]:
    """The positions of the hits, best first."""
    return [hit.entry.id for hit in hits.hits]


names = st.sampled_from(["c1", "c2"])
namespaces = st.sampled_from(["default", "other"])
contents = st.lists(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join), min_size=1, max_size=12)


@settings(max_examples=40)
@given(
    chats=st.lists(
        st.tuples(st.sampled_from(["c1", "c2"]), st.sampled_from(["default", "other"]), contents), max_size=6
    ),
    wanted=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True),
    phrase=st.lists(st.sampled_from(WORDS), max_size=2),
    conversation=st.sampled_from(["", "c1", "c2", "c3"]),
)
def test_the_index_finds_what_a_search_of_the_whole_log_finds(tmp_path_factory, chats, wanted, phrase, conversation):
    """Every message of the scope that has one of the words, and all of the phrase, and no other."""
    log = MemoryEventLog(clock_us=lambda: 1)
    for name, namespace, texts in chats:
        chat(log, *texts, name=name, namespace=namespace)
    query = " ".join([*wanted, *([f'"{" ".join(phrase)}"'] if phrase else [])])
    expected = set()
    for event in log.read_all():
        if event.stream.namespace != "default" or (conversation and event.stream.name != conversation):
            continue
        words = f" {spelled(text_at(log, event.position))} "
        has_phrase = f" {' '.join(phrase)} " in words
        if has_phrase if phrase else any(f" {word} " in words for word in wanted):
            expected.add(event.position)

    async def found() -> set[int]:
        async with indexed(log, tmp_path_factory.mktemp("recall") / "index") as recall:
            return set(positions(await find(recall, query, conversation=conversation)))

    assert asyncio.run(found()) == expected


def text_at(log: MemoryEventLog, position: int) -> str:
    """The content of the message at a position."""
    (event,) = log.read_all(after=position - 1, limit=1)
    decoded = decode(event.type, event.schema_version, event.payload)
    assert isinstance(decoded, MessageAppended)
    return decoded.message.content


async def test_every_event_is_known_to_the_index():
    """A new type needs a function in `_INDEXED`, or a place in `_UNINDEXED`: it may take text back."""
    assert set(EVENT_TYPES) == _INDEXED.keys() | _UNINDEXED


async def test_an_event_that_the_index_does_not_know_stops_it_loudly(log, tmp_path):
    """The index stops before it: nothing behind it is indexed, and a search says so instead of missing it."""
    position = chat(log, "red")
    log.submit(Append(StreamId("default", "c1"), [NewEvent(b"x" * 16, "MessagesForgotten", b"")])).result()
    chat(log, "red again", name="c2")

    with pytest.raises(RecallStopped, match="MessagesForgotten"):
        async with indexed(log, tmp_path / "index"):
            pass

    recall = Recall(log, Projection(log, tmp_path / "index", None, pace=AT_ONCE), untouched)
    assert recall.projection.progress.words < position + 1
    await recall.close()


@pytest.mark.parametrize("rests", [1, 3, 5])
async def test_an_index_whose_process_is_killed_goes_on_exactly_once(tmp_path, rests):
    """The index goes on from its checkpoint: nothing before it is indexed again, and nothing is missing."""
    log_path, path = tmp_path / "log.db", tmp_path / "index"
    log = SqliteEventLog.open(log_path, clock_us=lambda: 1)
    for number in range(30):
        # Long enough for several batches.
        chat(log, *(f"red stone {number} {place} {'river ' * 400}" for place in range(10)), name=f"c{number % 3}")
    head = log.head()
    log.close()
    arguments = ("-m", "tests.support.indexing_process", str(log_path), str(path), str(rests))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), PATIENCE_S) == b"resting\n"
    process.kill()
    await process.wait()

    log = SqliteEventLog.open(log_path, clock_us=lambda: 1)
    try:
        half = Projection(log, path, WordLlamaEmbedder(64))
        assert 0 < half.progress.words < head
        await half.close()

        found = await everything(log, path)
        assert found == await everything(log, tmp_path / "whole")
        assert rows(path) == rows(tmp_path / "whole")
        assert rows(path)["entries"] == head
    finally:
        log.close()


async def everything(log: EventLog, path: Path) -> list[Hits]:
    """Return the hits of an index, in every mode, when it has caught up."""
    async with indexed(log, path, embedder=WordLlamaEmbedder(64)) as recall:
        return [await find(recall, "red stone 17", mode=mode) for mode in Mode]


def rows(path: Path) -> dict[str, int]:
    """Count the rows of each table of an index."""
    connection = connected(path, writes=False)
    try:
        names = ("entries", "vectors", "blocks_1", "words_1_docsize")
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
    finally:
        connection.close()


async def test_an_index_of_another_log_is_made_again(log, tmp_path):
    """One that was restored beside another file: its positions mean other messages."""
    chat(log, "red", "green")
    async with indexed(log, tmp_path / "index"):
        pass
    other = MemoryEventLog(clock_us=lambda: 1)
    chat(other, "blue")

    async with indexed(other, tmp_path / "index") as recall:
        assert positions(await find(recall, "red green blue")) == [1]


def record_of(summary: str, last: int, **fields: Any) -> SummarizationCompleted:
    """A record of messages 1 to `last`, as the log has it; its id is `r<last>`."""
    record = SummaryRecord(
        id=f"r{last}",
        create_time_us=1,
        depth=0,
        parent_id="",
        summary=summary,
        key_points=(),
        context=RecordContext(),
        covered=(MessageRange(1, last),),
        tokens_before=9,
        tokens_after=5,
        model="extractive:default",
        prompt_name="",
        prompt_version="",
        provenance=Provenance.EXTRACTIVE,
        attempts=0,
        latency_ms=0,
        **fields,
    )
    return SummarizationCompleted(f"p{last}", record, TokenSource.ESTIMATE)


async def test_an_episode_is_found_by_its_short_and_by_its_long_summary(log, tmp_path):
    """They need not share a word."""
    chat(log, "hello", "there")
    completed = record_of("A violet river.", 2, short_summary="An orange stone.", episode=EpisodeFigures())
    append(log, StreamId("default", "c1"), [completed])

    async with indexed(log, tmp_path / "index", embedder=WordLlamaEmbedder(64)) as recall:
        for query in ("violet", "orange"):
            (hit,) = (await find(recall, query)).hits
            assert (hit.entry.id, hit.entry.kind, hit.record) == (3, Kind.EPISODE, completed.record)
            assert (await find(recall, query, mode=Mode.MEANING)).hits[0].entry.id == 3


@pytest.mark.parametrize("mode", Mode)
async def test_a_record_that_a_later_one_covers_is_found_no_longer(log, tmp_path, mode):
    """Revoking the later one shows it again; episodes stand side by side."""
    stream = StreamId("default", "c1")
    chat(log, *["red"] * 4)
    append(log, stream, [record_of("An old river.", 2), record_of("A new river.", 4)])
    append(log, stream, [record_of("A river.", 3, short_summary="A stone.", episode=EpisodeFigures())])

    async with indexed(log, tmp_path / "index", embedder=WordLlamaEmbedder(64)) as recall:

        async def sources() -> set[str]:
            hits = (await find(recall, "river", mode=mode)).hits
            return {hit.entry.source for hit in hits if hit.record}

        assert await sources() == {"r4", "r3"}

        append(log, stream, [SummaryRevoked("r4", revoked_ids=("r4",), shown_ids=("r2",))])
        async with asyncio.timeout(PATIENCE_S):
            await recall.projection.caught_up()
        assert await sources() == {"r2", "r3"}


@pytest.mark.parametrize("mode", Mode)
async def test_an_exchange_is_one_hit_by_its_best_message(log, tmp_path, mode):
    """However many pieces of its replies are near; its opening comes with it, and its range."""
    replies = ["a stone", f"{'stone ' * 900}", "so it is"]
    chat(log, "which stone is blue", "red", name="c1")
    append(
        log,
        StreamId("default", "c1"),
        [
            MessageAppended(number, Message(f"m{number}", Role.ASSISTANT, text), 5, TokenSource.ESTIMATE, "estimate")
            for number, text in enumerate(replies, 3)
        ],
    )

    async with indexed(log, tmp_path / "index", embedder=WordLlamaEmbedder(64)) as recall:
        hits = (await find(recall, "blue stone", mode=mode)).hits

        assert [hit.entry.exchange for hit in hits] == [MessageRange(1, 1), MessageRange(2, 5)]
        assert hits[1].entry.opening is not None
        assert hits[1].entry.opening.id == 2


async def test_a_file_that_is_no_index_is_made_again(log, tmp_path):
    """An index can be made from the log at any time, so that damage costs time alone."""
    chat(log, "red")
    (tmp_path / "index").write_bytes(b"no database at all" * 1_000)

    async with indexed(log, tmp_path / "index") as recall:
        assert positions(await find(recall, "red")) == [1]


async def test_what_is_forgotten_is_gone_from_the_file(log, tmp_path):
    """Words, vectors and labels; neither the file nor its write-ahead log has a byte of them, and no text ever."""
    embedder = WordLlamaEmbedder(64)
    stream = StreamId("default", "c1")
    secret = message(2, "The password is Xylophon77.", labels={"topic": "Zebrastripe"})
    append(log, stream, [message(1, "kept"), secret, message(3, "The password again.")])
    path = tmp_path / "index"
    async with indexed(log, path, embedder=embedder) as recall:
        assert positions(await find(recall, "xylophon77", mode=Mode.BOTH))[0] == 2
        (vector,) = vectors_of(path, 2)
    (signs,) = await signs_of(embedder, secret.message.content)
    secrets = (b"xylophon77", b"Zebrastripe", vector, signs)
    assert all(part in bytes_of(path) for part in secrets)
    assert b"Xylophon77" not in bytes_of(path)

    position = append(log, stream, [ConversationRewound(to=1)])
    async with indexed(log, path, embedder=embedder) as recall:
        assert not (await find(recall, "xylophon77")).hits
    # What is due outlives a restart.
    async with indexed(log, path, embedder=embedder) as recall:
        await recall.projection.forgotten(position)
        left = bytes_of(path)

        assert [part for part in secrets if part in left] == []
        assert b"kept" in left
        assert positions(await find(recall, "password kept", mode=Mode.BOTH)) == [1]


@pytest.mark.parametrize(
    "seed",
    # With the first SQLite 3.54 leaves text in the gaps of pages.
    [100, 108, 121, *(pytest.param(seed, marks=pytest.mark.hostile) for seed in range(200, 300))],
)
async def test_no_erased_text_is_left_where_pages_were_balanced(log, tmp_path, seed):
    """Texts of all lengths of many conversations, which are erased one after the other."""
    chance = random.Random(seed)
    streams = [StreamId("default", f"c{number:03d}") for number in range(20)]
    for stream in chance.sample([*streams] * 8, 160):
        chat(
            log,
            f"kestrelwing-{stream.name} " + "x" * chance.choice([10, 100, 400, 900, 1500, 3000, 6000]),
            name=stream.name,
        )
    async with indexed(log, tmp_path / "index") as recall:
        for stream in chance.sample(streams, 10):
            await recall.projection.forgotten(append(log, stream, [ConversationErased(stream.name, 8, "e", 1)]))

            word = f"kestrelwing-{stream.name} ".encode()
            assert not [each for each in tmp_path.iterdir() if word in each.read_bytes()]


async def test_what_an_archive_gives_back_is_found_again_and_forgotten_once_more(log, tmp_path):
    """The pieces come behind those of others, where all blocks are full; nothing of others goes, and none of its own is
    left behind."""
    full = BLOCK_BYTES // row_bytes(64)
    chat(log, *["red river"] * 5, name="away")
    chat(log, *["red stone"] * (2 * full - 5), name="here")
    stream, path = StreamId("default", "away"), tmp_path / "index"
    async with indexed(log, path, embedder=WordLlamaEmbedder(64)) as recall:

        async def pieces_after(event: Event) -> int:
            append(log, stream, [event])
            async with asyncio.timeout(PATIENCE_S):
                await recall.projection.caught_up()
            return pieces_in(path)

        assert await pieces_after(ConversationArchived("away", 5, 5, "file", 9, "digest", {}, "", "")) == 2 * full - 5
        assert not (await find(recall, "river", mode=Mode.BOTH, conversation="away")).hits
        assert await pieces_after(ConversationUnarchived()) == 2 * full
        found = await find(recall, "river", mode=Mode.BOTH, conversation="away")
        assert sorted(positions(found)) == [1, 2, 3, 4, 5]
        assert await pieces_after(ConversationErased("away", 5, "e", 1)) == 2 * full - 5


def pieces_in(path: Path) -> int:
    """The number of pieces in all blocks of an index."""
    connection = connected(path, writes=False)
    try:
        return sum(len(rows) for (rows,) in connection.execute("SELECT rows FROM blocks_1")) // row_bytes(64)
    finally:
        connection.close()


async def test_what_an_archive_has_given_back_does_not_need_the_key_of_later_events(log, tmp_path):
    """A log in clear may be encrypted after that, and lose the key."""
    chat(log, "red river")
    append(log, StreamId("default", "c1"), [ConversationArchived("c1", 1, 1, "file", 9, "digest", {}, "", "")])
    append(log, StreamId("default", "c1"), [ConversationUnarchived()])
    lost = chat(log, "red stone")

    async with indexed(Keyless(log, position=lost), tmp_path / "index") as recall:
        assert positions(await find(recall, "red")) == [1]


async def test_a_file_that_cannot_be_purged_now_is_an_error_of_the_index(log, tmp_path):
    """A purge tries again, as for a log that is away."""
    position = chat(log, *["red"] * 50)
    path = tmp_path / "index"
    async with indexed(log, path) as recall:
        # Shorter than the index of it in memory says.
        os.truncate(path.with_name(f"{path.name}-wal"), 5_000)

        with pytest.raises(RecallStopped, match="IOError"):
            await recall.projection.forgotten(position)
        with pytest.raises(LogUnavailable, match="IOError"):
            await forgotten(Settings(), recall, position)


async def signs_of(embedder: WordLlamaEmbedder, *texts: str) -> list[bytes]:
    """The signs of the texts' vectors."""
    return [vector.signs for vector in quantized(await embedder.embed(texts)) if vector is not None]


async def test_a_conversation_that_is_rewound_leaves_the_vectors_of_its_neighbours(log, tmp_path):
    """They share blocks, some of which go, some of which shrink."""
    for round_ in range(2):
        for name in ("c1", "c2"):
            chat(log, *(f"{name} stone {round_} {number}" for number in range(450)), name=name)
    path = tmp_path / "index"
    embedder = WordLlamaEmbedder(64)
    async with indexed(log, path, embedder=embedder):
        assert rows(path)["blocks_1"] > 3
    append(log, StreamId("default", "c1"), [ConversationRewound(to=70)])

    async with indexed(log, path, embedder=embedder):
        messages = [event for event in log.read_all(limit=2_000) if event.type == "MessageAppended"]
        kept = [event.position for event in messages if event.stream.name == "c2" or event.version <= 70]
        assert [piece // PIECES_MAX for piece in pieces_of_index(path)] == kept


def pieces_of_index(path: Path) -> list[int]:
    """The ids of all pieces in blocks of vectors with 64 numbers, in order."""
    connection = connected(path, writes=False)
    try:
        blocks = [rows for (rows,) in connection.execute("SELECT rows FROM blocks_1")]
    finally:
        connection.close()
    return sorted(near.id for near in nearest(blocks, bytes(8), Wanted(), 10_000))


def vectors_of(path: Path, entry: int) -> list[bytes]:
    """The vectors of an entry's pieces."""
    connection = connected(path, writes=False)
    try:
        found = connection.execute("SELECT vector FROM vectors WHERE id / 16 = ?", (entry,)).fetchall()
        return [vector for (vector,) in found]
    finally:
        connection.close()


def bytes_of(path: Path) -> bytes:
    """Everything that the index has on disk."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


async def test_what_the_log_does_not_say_any_more_is_never_returned(log, tmp_path):
    """An index that is behind an erasure: the text comes from the log, and one that differs is left out."""
    chat(log, "red secret", "red apple")
    path = tmp_path / "index"
    async with indexed(log, path):
        pass
    erased = Erased(log, position=1)

    async with indexed(erased, path) as recall:
        assert positions(await find(recall, "red")) == [2]


@pytest.mark.parametrize("error", [ConversationNotFound, ConversationIsErased])
@pytest.mark.parametrize("mode", Mode)
async def test_a_late_index_finds_what_stands_beside_an_erased_conversation(log, tmp_path, mode, error):
    """A search of the namespace leaves it out; one that names it fails."""

    async def state_of(stream: StreamId) -> Conversation:
        if stream.name == "c1":
            raise error("c1")
        return Conversation()

    chat(log, "red secret")
    chat(log, "red apple", name="c2")
    async with indexed(log, tmp_path / "index", state_of=state_of, embedder=WordLlamaEmbedder(64)) as recall:
        await recall.projection.stop()
        append(log, StreamId("default", "c1"), [ConversationErased("c1", 1, "e", 1)])

        assert positions(await find(recall, "red", mode=mode)) == [2]
        with pytest.raises(error):
            await find(recall, "red", mode=mode, conversation="c1")


async def test_a_late_index_finds_what_stands_beside_a_conversation_whose_key_is_lost(log, tmp_path):
    """The first reader that meets the loss, of its end, its state or its text, leaves it out."""
    chat(log, "red secret")
    chat(log, "red apple", name="c2")
    without = Keyless(log, position=1)
    async with indexed(log, tmp_path / "index"):
        pass
    async with indexed(without, tmp_path / "index", state_of=without.state_of) as recall:
        assert positions(await find(recall, "red")) == [2]
        await recall.projection.stop()
        chat(log, "green", name="c3")
        assert positions(await find(recall, "red")) == [2]
        with pytest.raises(KeyLost):
            await find(recall, "red", conversation="c1")


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("conversation", ["", "c1"])
async def test_a_late_index_shows_no_redacted_text(log, tmp_path, mode, conversation):
    """No message, no record, no opening of an exchange that goes on: the log has the text until it is blanked."""

    async def state_of(_stream: StreamId) -> Conversation:
        return Conversation(redaction=Redaction((MessageRange(1, 2),), ("r2",)))

    stream = StreamId("default", "c1")
    chat(log, "red secret", "a stone, and a secret")
    reply = Message("m3", Role.ASSISTANT, "red red reply")
    append(log, stream, [MessageAppended(3, reply, 5, TokenSource.ESTIMATE, "estimate"), record_of("red secret", 2)])
    async with indexed(log, tmp_path / "index", state_of=state_of, embedder=WordLlamaEmbedder(64)) as recall:
        await recall.projection.stop()
        append(log, stream, [MessagesRedacted((1, 2), ("r2",))])

        (hit,) = (await find(recall, "red", mode=mode, conversation=conversation, tokens_max=500)).hits

        assert (hit.entry.id, hit.entry.exchange) == (3, MessageRange(3, 3))
        assert "secret" not in " ".join(passage.text for passage in hit.passages)
        assert "secret" not in hit.snippet


async def test_an_exchange_begins_with_its_first_message_that_is_not_redacted(log, tmp_path):
    """The same holds in an index that has caught up and in a late one."""
    stream = StreamId("default", "c1")
    chat(log, "red secret")
    reply = Message("m2", Role.ASSISTANT, "red red reply")
    append(log, stream, [MessageAppended(2, reply, 5, TokenSource.ESTIMATE, "estimate"), MessagesRedacted((1,))])

    async with indexed(log, tmp_path / "index") as recall:
        (hit,) = (await find(recall, "red")).hits

        assert (hit.entry.id, hit.entry.exchange, hit.entry.opening) == (2, MessageRange(2, 2), None)


@pytest.mark.parametrize("mode", Mode)
async def test_a_fork_finds_what_it_shares_among_better_ones_of_its_source(log, tmp_path, mode):
    """However many messages came after the fork, and records that it does not show."""

    async def state_of(stream: StreamId) -> Conversation:
        return Conversation(ancestors=(Ancestor("c1", 1, 1),) if stream.name == "branch" else ())

    stream = StreamId("default", "c1")
    chat(log, "the river was long and we spoke about many other things there", *["river"] * 250)
    append(log, stream, [record_of("river", last) for last in range(2, 252)])
    async with indexed(log, tmp_path / "index", state_of=state_of, embedder=WordLlamaEmbedder(64)) as recall:
        assert positions(await find(recall, "river", mode=mode, conversation="branch")) == [1]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("conversation", ["", "c1"])
async def test_superseded_records_take_no_place_of_what_is_found(log, tmp_path, mode, conversation):
    """However many would be better."""
    chat(log, "the river was long and we spoke about many other things there")
    append(log, StreamId("default", "c1"), [record_of("river", last) for last in range(1, 302)])

    async with indexed(log, tmp_path / "index", embedder=WordLlamaEmbedder(64)) as recall:
        assert set(positions(await find(recall, "river", mode=mode, conversation=conversation))) == {1, 302}


@pytest.mark.parametrize("mode", Mode)
async def test_a_record_is_found_again_when_the_one_that_superseded_it_is_revoked(log, tmp_path, mode):
    """The records have vectors when that happens."""
    stream = StreamId("default", "c1")
    append(log, stream, [record_of("river", 1)])
    async with indexed(log, tmp_path / "index", embedder=WordLlamaEmbedder(64)) as recall:
        for event, expected in (
            (record_of("river", 2), [2]),
            (SummaryRevoked("r2", ("r2",), ()), [1]),
        ):
            append(log, stream, [event])
            async with asyncio.timeout(PATIENCE_S):
                await recall.projection.caught_up()

            assert positions(await find(recall, "river", mode=mode)) == expected


marked = st.tuples(st.integers(1, 6), st.integers(0, 4), st.booleans(), st.none() | st.integers(0, 9))


@settings(max_examples=40)
@given(steps=st.lists(marked, min_size=1, max_size=10))
def test_a_record_is_superseded_while_a_later_one_of_its_kind_covers_it(tmp_path_factory, steps):
    """Records between them may be revoked."""
    log, stream = MemoryEventLog(clock_us=lambda: 1), StreamId("default", "c1")
    records: dict[str, tuple[int, MessageRange, bool]] = {}
    for place, (first, more, is_episode, revoked) in enumerate(steps, start=1):
        name, covered = f"r{place}", MessageRange(first, first + more)
        completed = record_of("river", place, episode=EpisodeFigures() if is_episode else None)
        append(log, stream, [replace(completed, record=replace(completed.record, covered=(covered,)))])
        records[name] = (place, covered, is_episode)
        if revoked is not None and f"r{revoked}" in records:
            append(log, stream, [SummaryRevoked(f"r{revoked}", (f"r{revoked}",), ())])
            del records[f"r{revoked}"]
    path = tmp_path_factory.mktemp("recall") / "index"

    steps_of(path, log)

    connection = connected(path, writes=False)
    try:
        superseded = {name for (name,) in connection.execute("SELECT source FROM entries WHERE superseded")}
    finally:
        connection.close()
    assert superseded == {
        name
        for name, (place, covered, is_episode) in records.items()
        if any(
            later > place and other.first <= covered.first and other.last >= covered.last and kind == is_episode
            for later, other, kind in records.values()
        )
    }


def steps_of(path: Path, log: MemoryEventLog) -> int:
    """Index a log; returns the steps that SQLite took for it, in hundreds."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    connection = opened(path, log.log_id, log.head(), report=print)
    connection.set_progress_handler(count, 100)
    index = Index(connection, log)
    try:
        index.apply(log.read_all(after=index.position, limit=10_000), log.head())
    finally:
        index.close()
    return steps


@pytest.mark.parametrize("last", ["MessageAppended", "Unheard"])
def test_no_text_stays_in_memory_behind_a_batch(log, tmp_path, last):
    """A batch that fails leaves no text either: the next may come days later, and the text may be erased meanwhile."""
    chat(log, "red", "green")
    first, second = log.read_all()
    index = Index(opened(tmp_path / "index", log.log_id, 0, report=print), log)
    try:
        with nullcontext() if last == second.type else pytest.raises(UnknownEvent):
            index.apply([first, second._replace(type=last)], 2)

        assert not index._unanswered
    finally:
        index.close()


def test_a_conversation_of_many_records_is_indexed_in_good_time(tmp_path):
    """Twice as many cost about twice as much, and a rewind that takes none back next to nothing."""
    indexing, rewinding = [], []
    for count in (200, 400):
        log, path = MemoryEventLog(clock_us=lambda: 1), tmp_path / str(count)
        completed = [record_of("river", last) for last in range(1, count + 1)]
        one = [
            replace(each, record=replace(each.record, covered=(MessageRange(place, place),)))
            for place, each in enumerate(completed)
        ]
        append(log, StreamId("default", "c1"), one)
        indexing.append(steps_of(path, log))
        append(log, StreamId("default", "c1"), [ConversationRewound(to=count)])
        rewinding.append(steps_of(path, log))

    assert indexing[1] < 2.5 * indexing[0]
    assert rewinding[1] < rewinding[0] + 10


async def test_a_text_that_has_changed_since_it_was_indexed_gets_no_vector(log, tmp_path):
    """The event of its redaction, which the index does not know yet, takes the entry away."""
    chat(log, "red secret", "red apple")
    path = tmp_path / "index"
    async with indexed(log, path):
        pass

    async with indexed(Erased(log, position=1, text="[redacted]"), path, embedder=WordLlamaEmbedder(64)) as recall:
        assert positions(await find(recall, "redacted", mode=Mode.MEANING)) == [2]
        assert [piece // PIECES_MAX for piece in pieces_of_index(path)] == [2]


async def test_a_log_that_is_closed_ends_the_making_of_vectors_without_a_word(log, tmp_path):
    """A sidecar that stops may close its log first: the index has not failed."""
    chat(log, "red")
    async with indexed(log, tmp_path / "index"):
        pass
    projection = Projection(Closed(log, position=1), tmp_path / "index", WordLlamaEmbedder(64), pace=AT_ONCE)
    try:
        projection.start()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait(projection._tasks)
        assert projection.progress.stopped == ""
    finally:
        await projection.close()


class Erased:
    """A log whose message at a position has been blanked, or has another text by now."""

    def __init__(self, log: MemoryEventLog, *, position: int, text: str = "") -> None:
        self._log = log
        self._position = position
        self._text = text

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read_stream(self, stream: StreamId, **options: Any) -> list[RecordedEvent]:
        """Return the log's events, without the text that was there."""
        return self._without(self._log.read_stream(stream, **options))

    def scan(self, **options: Any) -> Page:
        """Return a page of all streams, without the text that was there."""
        page = self._log.scan(**options)
        return replace(page, events=tuple(self._without(page.events)))

    def _without(self, events: Iterable[RecordedEvent]) -> list[RecordedEvent]:
        blank = encode(message(1, self._text))[2]
        return [event._replace(payload=blank) if event.position == self._position else event for event in events]


class Closed(Erased):
    """A log that can be read no longer."""

    def scan(self, **options: Any) -> Page:
        raise LogClosed("the log is closed")


class Keyless(Erased):
    """A log without the key of the message at a position."""

    def read_stream(self, stream: StreamId, **options: Any) -> list[RecordedEvent]:
        """Return the log's events. Raises KeyLost if that one is among them."""
        events = self._log.read_stream(stream, **options)
        if any(event.position == self._position for event in events):
            raise KeyLost(stream.name)
        return events

    async def state_of(self, stream: StreamId) -> Conversation:
        """Return the state of a conversation that has taken nothing back. Raises as `read_stream` does."""
        self.read_stream(stream)
        return Conversation()


async def test_a_single_digit_counts_as_a_word(log, tmp_path):
    """Single letters are those of grammar, but a digit tells one room from the other."""
    chat(log, "the lamp in room 7 is broken", "the lamp in room 12 is fine", "the lamp in room 8 is fine")

    async with indexed(log, tmp_path / "index") as recall:
        assert positions(await find(recall, "room 7"))[0] == 1


async def test_a_model_that_is_away_delays_vectors_and_not_words(log, tmp_path):
    """The model is asked again, and entries that came meanwhile get their vectors then."""
    chat(log, "red", "green")
    embedder = Wavering()
    recall = Recall(log, Projection(log, tmp_path / "index", embedder, pace=AT_ONCE), untouched)
    try:
        recall.projection.start()
        async with asyncio.timeout(PATIENCE_S):
            await embedder.asked.wait()
            while (found := await find(recall, "red")).position < 2:
                continue
            assert positions(found) == [1]
            assert recall.projection.progress.vectors == 0

            embedder.is_there = True
            await recall.projection.caught_up()
        assert sorted(positions(await find(recall, "red", mode=Mode.MEANING))) == [1, 2]
    finally:
        await recall.close()


async def test_vectors_are_made_and_kept_of_many_entries_at_a_time(log, tmp_path):
    """The first entry tells how fast the model is; then entries share transactions, and the index rests after each."""
    chat(log, *["red"] * 130)
    embedder = Wavering(is_there=True)
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await asyncio.sleep(0)

    pace = Pace(rest_share=0.0, rest_s=7.0)
    async with indexed(log, tmp_path / "index", embedder=embedder, sleep=rest, pace=pace, clock=lambda: 0.0):
        assert embedder.counts == [1, 64, 64, 1]
        assert rests == [7.0] * 5


async def test_vectors_of_another_length_stop_what_needs_them(log, tmp_path):
    """A model that was replaced under its name: its numbers cannot be compared."""
    embedder = Wavering(is_there=True)
    chat(log, "red")
    recall = Recall(log, Projection(log, tmp_path / "index", embedder, pace=AT_ONCE), untouched)
    try:
        recall.projection.start()
        async with asyncio.timeout(PATIENCE_S):
            await recall.projection.caught_up()
            embedder.width = 5
            with pytest.raises(RecallStopped, match="log reindex"):
                await find(recall, "red", mode=Mode.MEANING)
        assert positions(await find(recall, "red")) == [1]
        assert recall.projection.progress.stopped
    finally:
        await recall.close()


async def test_a_search_that_fails_leaves_no_connection_open(log, tmp_path):
    """The connection closes even while somebody holds the error."""
    chat(log, "red")
    async with indexed(log, tmp_path / "index"):
        searcher = Searcher(tmp_path / "index")
        before = len(apsw.connections())
        search = Search("default", "c1", parsed("red"), Mode.MEANING, 1)
        with pytest.raises(EmbedderChanged) as raised:
            searcher(search, 1, Asked(None, changed))
        assert len(apsw.connections()) == before
        assert raised.value.args


def changed(name: str, dimension: int) -> None:
    raise EmbedderChanged(f"{name} {dimension}")


class Wavering:
    """A model that is away until it is there, with vectors of a width that can change."""

    name = "ollama:wavering"
    dimension = 0

    def __init__(self, *, is_there: bool = False) -> None:
        self.is_there = is_there
        self.width = 3
        self.asked = asyncio.Event()
        self.counts: list[int] = []

    async def embed(self, texts: Sequence[str]) -> Any:
        """One row per text."""
        self.asked.set()
        self.counts.append(len(texts))
        if not self.is_there:
            raise EmbedderAway("not now")
        return np.array([[len(text), text.count("e"), *range(1, self.width - 1)] for text in texts], dtype=np.float32)

    async def close(self) -> None:
        """Release nothing."""


RULE = "From now on write all dates in the form 2024-03-05."
PREFERENCE = "I prefer the quiet reading room to any desk at home."


def said(log: EventLog, *texts: str) -> int:
    """Append an exchange of one sentence, and a short reply, for each text."""
    stream = StreamId("default", "c1")
    first = log.stream_version(stream) + 1
    turns = [turn for text in texts for turn in ((Role.USER, text), (Role.ASSISTANT, "Understood, I will keep to it."))]
    return append(log, stream, [by(role, message(n, text)) for n, (role, text) in enumerate(turns, start=first)])


def by(role: Role, event: MessageAppended) -> MessageAppended:
    """The same message, said by another."""
    return event._replace(message=event.message._replace(role=role))


async def standing(log: EventLog, path: Path) -> set[int]:
    """The messages that a search of the conversation ranks as standing."""
    async with indexed(log, path):
        pass
    connection = connected(path, writes=False)
    try:
        return {row for (row,) in connection.execute(STANDING, (1,))}
    finally:
        connection.close()


async def test_a_text_is_as_strong_as_its_share_of_the_words(log, tmp_path):
    """Three tenths of the words count in full, and fewer with their square, in a long text as in a short one."""
    long = "a page of the long log of the mill " * 500
    said(log, *["the mill stands still"] * 20, f"{long} amber birch cedar dogwood", "amber birch", "amber, amber")
    async with indexed(log, tmp_path / "index"):
        pass

    connection = connected(tmp_path / "index", writes=False)
    search = Search("default", "c1", parsed("amber birch cedar dogwood"), Mode.WORDS, 10)
    scope = scope_of(connection, search)
    assert scope is not None
    strengths = {ranked.entry: ranked.strength for ranked in by_words(connection, search, scope)}
    connection.close()

    # The rareness of a word in one, two or three of 46 texts, as in bm25, is 3.41, 2.88 and 2.52.
    full = 0.3 * (2.52 + 2.88 + 3.41 + 3.41)
    assert (strengths[41], strengths[43]) == (1.0, 1.0)
    assert strengths[45] == pytest.approx((2.52 / full) ** 2, abs=0.01)


DATES_AT_HOME = "the dates of the home desk and the reading of dates at home"


async def test_a_rule_and_a_preference_are_found_before_better_words(log, tmp_path):
    """The search finds them so in their conversation, unless a phrase must occur."""
    said(log, *[DATES_AT_HOME] * 20, RULE, PREFERENCE)

    async with indexed(log, tmp_path / "index") as recall:
        query = "dates reading desk home"
        assert {41, 43} <= set(positions(await find(recall, query, conversation="c1"))[:6])
        assert not {41, 43} & set(positions(await find(recall, query))[:6])
        assert not {41, 43} & set(positions(await find(recall, f'{query} "home desk"', conversation="c1")))


async def test_a_preference_is_found_before_better_words_where_it_is_near(log, tmp_path):
    """The search finds it so in its conversation, and not where the query means other things."""
    said(log, *[DATES_AT_HOME] * 20, RULE, PREFERENCE)

    async with indexed(log, tmp_path / "index", embedder=WordLlamaEmbedder(256)) as recall:
        found = partial(find, recall, conversation="c1")
        assert positions(await found("desk at home for reading", mode=Mode.BOTH))[0] == 43
        assert 43 not in positions(await find(recall, "desk at home for reading", mode=Mode.BOTH))[:5]
        assert 43 not in positions(await found("dates of the desk", mode=Mode.BOTH))[:5]


async def test_a_tentative_rule_is_not_standing(log, tmp_path):
    """Most of these are wishes for one time."""
    said(log, "Nothing before ten in the morning, please.", RULE)

    assert await standing(log, tmp_path / "index") == {3}


async def test_what_is_standing_ends_and_comes_back(log, tmp_path):
    """A rule that is laid down anew, one that its caller drops, and a rewind of the message that ended one."""
    stream = StreamId("default", "c1")
    said(log, RULE, PREFERENCE, "Is the report done?")
    assert await standing(log, tmp_path / "index") == {1, 3}

    said(log, "From now on write all dates in the form 05/03/2024.")
    assert await standing(log, tmp_path / "index") == {3, 7}

    append(log, stream, [ConversationRewound(6, ())])
    assert await standing(log, tmp_path / "index") == {1, 3}

    append(log, stream, [RulesDropped((RuleName(1, RULE),))])
    assert await standing(log, tmp_path / "index") == {3}


async def test_a_rule_is_standing_when_the_index_comes_upon_its_reply_later(log, tmp_path):
    """The log has the text of the rule, the index has not."""
    chat(log, RULE)
    assert await standing(log, tmp_path / "index") == set()

    reply = MessageAppended(2, Message("m2", Role.ASSISTANT, "I shall."), 5, TokenSource.ESTIMATE, "estimate")
    append(log, StreamId("default", "c1"), [reply])
    assert await standing(log, tmp_path / "index") == {1}


def test_a_conversation_of_much_that_is_standing_is_forgotten_in_good_time(tmp_path):
    """Twice as many rules and preferences cost at most about twice as much: an erasure waits for it."""
    forgetting = []
    for count in (50, 100):
        log, path = MemoryEventLog(clock_us=lambda: 1), tmp_path / str(count)
        said(log, *[PREFERENCE] * count)
        steps_of(path, log)
        append(log, StreamId("default", "c1"), [ConversationRewound(to=0)])
        forgetting.append(steps_on_standing(path, log))

    assert forgetting[1] < 2.5 * forgetting[0]


def steps_on_standing(path: Path, log: MemoryEventLog) -> int:
    """Index a log; returns the steps that SQLite took in statements on what is standing."""
    steps = []

    def profile(event: dict[str, Any]) -> None:
        if "standing" in (event["sql"] or ""):
            steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    connection = opened(path, log.log_id, log.head(), report=print)
    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profile)
    index = Index(connection, log)
    try:
        index.apply(log.read_all(after=index.position), log.head())
    finally:
        index.close()
    return sum(steps)


@pytest.mark.parametrize("mode", [Mode.WORDS, Mode.BOTH])
async def test_what_users_say_counts_more_by_words(log, tmp_path, mode):
    """A short message is found before long replies that have its words more often, and alike where only users speak."""
    texts = ("the invoice of the red house", "the long river and its stones", "the tower of the old town")
    stream = StreamId("default", "c1")
    for n, text in enumerate(texts):
        replies = ("Sure.", "invoice invoice house of the town", "the invoice house and the invoice again")
        for role, said_now in ((Role.USER, text), (Role.ASSISTANT, replies[n])):
            append(log, stream, [by(role, message(log.stream_version(stream) + 1, said_now))])

    async with indexed(log, tmp_path / "index", embedder=WordLlamaEmbedder(256)) as recall:
        assert positions(await find(recall, "invoice house", mode=mode, conversation="c1"))[0] == 1
