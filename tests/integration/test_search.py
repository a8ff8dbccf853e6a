"""SearchHistory over a real channel and a real file: what it finds, what it refuses, and whose."""

from __future__ import annotations

import asyncio
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from abridged.service.bootstrap.recall import index_path
from abridged.service.recall.recall import TOKENS_MIN
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from abridged.v1.server_info_service_pb2 import GetServerInfoRequest
from tests.support.command import abridged
from tests.support.encryption import operator_key
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.searching import BOTH, MEANING, WORDS, exchange, numbers, search, searched, snippets
from tests.support.sidecar import call, on_ollama, said, sidecar, tool_result


def texts(*contents: str) -> list[message_pb2.Message]:
    """Messages of a user with these contents."""
    return [exchange(number, content) for number, content in enumerate(contents, start=1)]


TRIP = texts(
    "I want to fly to Lisbon in May.",
    "There are two flights, on Tuesday and on Friday.",
    "Friday. The booking code is ZK4Q1P, keep it.",
    "Your seat is 14C and the meal is vegetarian.",
)


async def test_words_find_the_message_that_has_them_and_show_them(tmp_path):
    """Any form of the word finds it, with number, id, role, time and the words in a snippet."""
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat("trip").append(*TRIP)

        answer = await searched(s, "what was the booked code?", conversation_id="trip")

        assert numbers(answer)[0] == 3
        hit = answer.hits[0]
        assert (hit.kind, hit.conversation_id, hit.message_id) == (api.SEARCH_KIND_MESSAGE, "trip", "m3")
        assert (hit.messages.last, hit.role, hit.summary_id) == (3, message_pb2.ROLE_USER, "")
        assert "booking code is ZK4Q1P" in hit.snippet
        assert hit.time.seconds > 0
        assert answer.mode == api.SEARCH_MODE_WORDS


async def test_the_message_with_more_and_rarer_words_comes_first(tmp_path):
    """bm25, as FTS5 has it."""
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(*texts("red green", "red blue", "red", "red blue yellow"))

        assert numbers(await searched(s, "red yellow"))[0] == 4
        assert sorted(numbers(await searched(s, "blue"))) == [2, 4]


async def test_a_phrase_has_to_occur_as_it_stands(tmp_path):
    """Words only rank; a quoted phrase filters."""
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(*texts("the red house", "the house is red", "red house again"))

        assert sorted(numbers(await searched(s, '"red house"'))) == [1, 3]
        assert numbers(await searched(s, '"red house" again'))[0] == 3
        assert numbers(await searched(s, '"red house" is')) == numbers(await searched(s, '"red house"'))


async def test_a_phrase_has_to_occur_whatever_is_compared(tmp_path):
    """A message that is near in meaning and has no such words is no hit."""
    async with sidecar(tmp_path, BOTH) as s:
        await s.chat().append(*texts("the red house", "the house is red"))

        for mode in (MEANING, api.SEARCH_MODE_BOTH):
            assert numbers(await searched(s, '"red house"', mode=mode)) == [1]


async def test_a_word_with_marks_in_it_is_found_as_it_stands(tmp_path):
    """An identifier is no list of words."""
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(*texts("17 new orders", "table orders_17 is locked"))

        assert numbers(await searched(s, "orders_17")) == [2]


@pytest.mark.parametrize(
    "query",
    ["text:red", "red AND NOT blue", "scope:c1 red", "red*", "(red", "^red", "NEAR(red blue)", "red -blue", "{a}"],
)
async def test_nothing_that_a_caller_writes_is_an_operator(tmp_path, query):
    """FTS5 sees quoted words alone: any query that has a word is one that can be answered."""
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(*texts("red blue", "blue red not", "a scope of text"))

        await searched(s, query)

        assert sorted(numbers(await searched(s, "red NOT blue"))) == [1, 2]


@pytest.mark.parametrize(
    ("query", "wrong"), [("...", "no word"), ('say "hello', "not closed"), (" ".join(map(str, range(100, 200))), "64")]
)
async def test_a_query_without_a_meaning_is_refused_by_its_field(tmp_path, query, wrong):
    """The refusal says what is wrong, and does not quote the query."""
    async with sidecar(tmp_path, WORDS) as s:
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await search(s, query)

        assert wrong in refusal.fields["query"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"query": ""}, "query"),
        ({"query": "a" * 1_001}, "query"),
        ({"query": "red", "kinds": [9]}, "kinds[0]"),
        ({"query": "red", "roles": [message_pb2.ROLE_USER, 0]}, "roles[1]"),
        ({"query": "red", "conversation_id": "-"}, "conversation_id"),
        ({"query": "red", "mode": 9}, "mode"),
        ({"query": "red", "since": {"seconds": -5}}, "since"),
        ({"query": "red", "page_size": -1}, "page_size"),
    ],
)
async def test_a_field_that_breaks_a_rule_is_named(tmp_path, fields, field):
    """The search names it as every call does."""
    async with sidecar(tmp_path, WORDS) as s:
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await search(s, **fields)

        assert list(refusal.fields) == [field]


async def test_an_unknown_conversation_is_not_found(tmp_path):
    """The search says so even if another one has the words."""
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(*TRIP)

        async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND") as refusal:
            await search(s, "booking", conversation_id="c2")

        assert refusal.resource == ("conversation", "c2")


async def test_without_an_index_a_search_says_how_to_switch_it_on(tmp_path):
    """No file is made, and the setting is named; words alone say it of meaning."""
    async with sidecar(tmp_path, {"recall.index": "off"}) as s:
        async with refused("FAILED_PRECONDITION", "RECALL_OFF") as refusal:
            await search(s, "booking")
        assert refusal.metadata == {"setting": "recall.index", "value": "words"}
        assert not index_path(tmp_path / "abridged.db").exists()

    async with sidecar(tmp_path, WORDS) as s:
        async with refused("FAILED_PRECONDITION", "RECALL_OFF") as refusal:
            await search(s, "booking", mode=MEANING)
        assert "recall.index = both, which needs the package extra `recall`" in refusal.text


@pytest.mark.parametrize("mode", [api.SEARCH_MODE_WORDS, MEANING, api.SEARCH_MODE_BOTH])
async def test_filters_leave_what_they_name(tmp_path, mode):
    """The filters are role, kind, time, and labels of the message or of its conversation, for every mode."""
    async with sidecar(tmp_path, BOTH) as s:
        first = s.chat("c1", labels={"team": "north"})
        await first.append(said(1, "red one", labels={"topic": "paint"}), said(3, "green"), said(4, "red two"))
        await first.append(said(5, "green"), call(6, "x"), tool_result(7, "x", "red three"))
        await s.chat("c2").append(said(1, "red four"))
        everything = await searched(s, "red", mode=mode)
        newest = max(hit.time.ToNanoseconds() for hit in everything.hits)

        async def contents(**fields: Any) -> list[str]:
            found = snippets(await searched(s, "red", mode=mode, **fields))
            return sorted(snippet for snippet in found if "red" in snippet)

        assert await contents(roles=[message_pb2.ROLE_TOOL, message_pb2.ROLE_ASSISTANT]) == ["red three", "red two"]
        assert await contents(labels={"team": "north"}) == ["red one", "red three", "red two"]
        assert await contents(labels={"team": "north", "topic": "paint"}) == ["red one"]
        assert await contents(kinds=[api.SEARCH_KIND_SUMMARY]) == []
        assert await contents(until={"seconds": newest // 10**9, "nanos": newest % 10**9}) != await contents()
        assert await contents(since={"seconds": newest // 10**9, "nanos": newest % 10**9}) == ["red four"]
        assert await contents(conversation_id="c2") == ["red four"]
        assert len((await searched(s, "red", mode=mode, page_size=2)).hits) == 2

        await first.update(["labels"], labels={"team": "south"})
        assert await contents(labels={"team": "north"}) == []


async def test_records_are_found_beside_messages(tmp_path):
    """The hit has the messages that the record covers."""
    async with sidecar(tmp_path, {**WORDS, "summarizer.models": ["extractive:default"]}) as s:
        chat = s.chat(context_length=64_000)
        await chat.talk(20)
        await chat.summarize()
        (record, *_) = await chat.summaries()

        answer = await searched(s, record.summary.split()[0] + " importer", kinds=[api.SEARCH_KIND_SUMMARY])

        hit = answer.hits[0]
        assert (hit.kind, hit.message_id, hit.role) == (api.SEARCH_KIND_SUMMARY, "", message_pb2.ROLE_UNSPECIFIED)
        assert hit.summary_id in [r.id for r in await chat.summaries()]
        assert 1 <= hit.messages.first < hit.messages.last <= 20


EPISODES = {"policy.profile": "episodes", "summarizer.models": ["extractive:default"]}


async def test_episodes_are_found_by_words_and_by_meaning(tmp_path):
    """The search reads either text and returns both, and their messages; a filter by kind tells them from records."""
    async with sidecar(tmp_path, {**BOTH, **EPISODES}) as s:
        chat = s.chat(context_length=8_192)
        texts_ = [f"The flight to Lisbon has window seat {n}A and a vegetarian meal on board." for n in range(1, 11)]
        await chat.append(*(said(n, text, tokens=60) for n, text in enumerate(texts_, 1)), wait_s=PATIENCE_S)
        (episode,) = (await s.conversations.ListEpisodes(api.ListEpisodesRequest(conversation_id="c1"))).episodes
        assert episode.short_summary

        for mode in (api.SEARCH_MODE_WORDS, MEANING, api.SEARCH_MODE_BOTH):
            answer = await searched(s, "flight to Lisbon", mode=mode, kinds=[api.SEARCH_KIND_EPISODE])
            (hit,) = answer.hits
            assert (hit.kind, hit.summary_id, hit.message_id) == (api.SEARCH_KIND_EPISODE, episode.id, "")
            assert (hit.short_summary, hit.long_summary) == (episode.short_summary, episode.long_summary)
            assert (hit.messages.first, hit.messages.last) == (1, episode.messages[-1].last)
            assert "Lisbon" in hit.snippet
            assert not (await searched(s, "flight", mode=mode, kinds=[api.SEARCH_KIND_SUMMARY])).hits
        kinds = {hit.kind for hit in (await searched(s, "flight", page_size=100)).hits}
        assert kinds == {api.SEARCH_KIND_MESSAGE, api.SEARCH_KIND_EPISODE}

        await s.conversations.RevokeSummary(api.RevokeSummaryRequest(conversation_id="c1", summary_id=episode.id))
        hits = (await searched(s, "flight", kinds=[api.SEARCH_KIND_EPISODE])).hits
        assert episode.id not in {hit.summary_id for hit in hits}


async def test_what_was_revoked_or_rewound_is_found_no_longer(tmp_path):
    """A record that is out of use, and messages that have left the conversation."""
    async with sidecar(tmp_path, {**WORDS, "summarizer.models": ["extractive:default"]}) as s:
        chat = s.chat(context_length=64_000)
        await chat.talk(20)
        await chat.summarize()
        summaries: dict[str, Any] = {"conversation_id": "c1", "kinds": [api.SEARCH_KIND_SUMMARY]}
        found = {hit.summary_id for hit in (await searched(s, "importer", **summaries)).hits}
        (record, *_) = await chat.summaries()
        assert record.id in found

        await s.conversations.RevokeSummary(api.RevokeSummaryRequest(conversation_id="c1", summary_id=record.id))
        assert record.id not in {hit.summary_id for hit in (await searched(s, "importer", **summaries)).hits}

        await s.conversations.RewindConversation(api.RewindConversationRequest(conversation_id="c1", to_version=18))
        assert max(numbers(await searched(s, "importer", page_size=100))) == 18


async def test_namespaces_never_see_each_other(tmp_path):
    """Texts, ranks and positions are apart: the words of one do not count in the other."""
    tokens = {"server.tokens": [{"token": n, "namespace": n, "scopes": ["append", "read"]} for n in ("alpha", "beta")]}
    async with sidecar(tmp_path, {**BOTH, **tokens}) as s:
        alpha, beta = (replace(s, metadata=[("authorization", f"Bearer {n}")]) for n in ("alpha", "beta"))
        await alpha.chat().append(*texts("the secret is red", "red and blue"))
        alone = await searched(alpha, "red secret", mode=api.SEARCH_MODE_WORDS)
        await beta.chat().append(*texts(*["the secret is red"] * 30))

        for mode in (api.SEARCH_MODE_WORDS, MEANING, api.SEARCH_MODE_BOTH):
            assert {hit.conversation_id for hit in (await searched(beta, "blue", mode=mode)).hits} <= {"c1"}
            assert "red and blue" not in snippets(await searched(beta, "red and blue", mode=mode))
        again = await searched(alpha, "red secret", mode=api.SEARCH_MODE_WORDS)
        assert [(hit.message_id, hit.score) for hit in again.hits] == [(h.message_id, h.score) for h in alone.hits]
        assert again.indexed_position == alone.indexed_position


async def test_meaning_finds_what_has_none_of_the_words(tmp_path):
    """The embedded model finds it, without a server."""
    async with sidecar(tmp_path, {**BOTH, "recall.dimension": 256}) as s:
        await s.chat().append(
            *texts(
                "The invoice was paid by bank transfer.",
                "My cat has been vomiting since the morning.",
                "The server room gets too hot in summer.",
            )
        )

        assert numbers(await searched(s, "ill pet", mode=MEANING))[0] == 2
        assert numbers(await searched(s, "ill pet", mode=api.SEARCH_MODE_WORDS)) == []
        answer = await searched(s, "ill pet")
        assert answer.mode == api.SEARCH_MODE_BOTH
        assert numbers(answer)[0] == 2
        assert answer.hits[0].score == pytest.approx(1 / 11)


async def test_both_fuse_by_rank(tmp_path):
    """A message that is first by words and by meaning has the sum of both ranks."""
    async with sidecar(tmp_path, BOTH) as s:
        await s.chat().append(*TRIP)

        answer = await searched(s, "booking code")

        assert numbers(answer)[0] == 3
        assert answer.hits[0].score == pytest.approx(2 / 11)


async def test_scripts_without_spaces_are_found(tmp_path):
    """A part of a run of such characters is a word."""
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(*texts("我们讨论了数据库的备份", "今天天气很好", "ผู้ใช้ต้องการสำรองฐานข้อมูล"))

        assert numbers(await searched(s, "数据库")) == [1]
        assert numbers(await searched(s, "天")) == [2]
        assert numbers(await searched(s, "ฐานข้อมูล")) == [3]


async def test_the_calls_of_tools_and_enveloped_results_are_found(tmp_path):
    """The search reads a tool's arguments, and the result inside its envelope."""
    async with sidecar(tmp_path, WORDS) as s:
        result = '{"payload": {"result": "refund approved"}, "sig": "eyJhbGciOi"}'
        await s.chat().append(said(1), call(2, "x"), tool_result(3, "x", result))

        assert numbers(await searched(s, "approved")) == [3]
        assert numbers(await searched(s, "eyJhbGciOi")) == []
        assert numbers(await searched(s, "search orders", roles=[message_pb2.ROLE_ASSISTANT])) == [2]


async def test_the_index_is_private_and_is_made_again_when_it_is_gone(tmp_path):
    """0600 as everything with text; deleting it costs time alone."""
    path = index_path(tmp_path / "abridged.db")
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(*TRIP)
        first = await searched(s, "booking")
        assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.glob("abridged.db-recall*")} == {0o600}
    path.unlink()

    async with sidecar(tmp_path, WORDS) as s:
        assert (await searched(s, "booking")).hits == first.hits


async def test_an_index_that_the_settings_keep_no_longer_is_removed_at_the_start(tmp_path):
    """An erasure would not reach it. The start names it, and leaves one that is still the settings' own."""
    index, other = tmp_path / "abridged.db-recall", {"recall.path": str(tmp_path / "other")}
    encrypted = {"encryption.key": operator_key(1)}
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(*texts("kestrelwing"))
        await searched(s, "kestrelwing")
        for suffix in ("", "-wal"):
            shutil.copy(f"{index}{suffix}", tmp_path / f"kept{suffix}")
    for settings in ({"recall.index": "off"}, {**WORDS, "recall.path": str(index)}):
        async with sidecar(tmp_path, settings):
            assert index.exists()

    for settings in ({**WORDS, **other}, {"recall.index": "off", **other}, {**WORDS, **encrypted}):
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / f"kept{suffix}", f"{index}{suffix}")
        async with sidecar(tmp_path, settings) as s:
            assert [line["hint"] for line in s.logs if line["event"] == "recall.unused_index"]
            assert list(tmp_path.glob(f"{index.name}*")) == []


async def test_a_file_in_the_place_of_an_index_that_is_none_stays(tmp_path):
    """The start says so, and leaves it."""
    beside = tmp_path / "abridged.db-recall"
    beside.write_text("precious")

    async with sidecar(tmp_path, WORDS | {"recall.path": str(tmp_path / "elsewhere")}) as s:
        assert [line["level"] for line in s.logs if line["event"] == "recall.unused_index"] == ["warning"]

    assert beside.read_text() == "precious"


async def test_vectors_come_from_ollama_where_the_settings_say_so(tmp_path):
    """The requests use the hosts of summaries, and the model's own dimension."""
    async with FakeOllama() as ollama:
        model = ollama.models[0].name
        settings = {**on_ollama(ollama), "recall.index": "both", "recall.embedder": f"ollama:{model}"}
        async with sidecar(tmp_path, settings) as s:
            await s.chat().append(*TRIP)

            assert len((await searched(s, "booking", mode=MEANING)).hits) == 4

            await ollama.stop()
            async with refused("UNAVAILABLE", "EMBEDDER_AWAY") as refusal:
                await search(s, "booking", mode=MEANING)
            assert refusal.retry_s
            assert numbers(await searched(s, "booking", mode=api.SEARCH_MODE_WORDS)) == [3]


async def test_a_model_that_changes_stops_searches_by_meaning_and_nothing_else(tmp_path):
    """The error names the remedy, readiness names the fault, and a gauge is 1; words and appends go on."""
    async with sidecar(tmp_path, BOTH) as s:
        await s.chat().append(*TRIP)
        await searched(s, "booking")

    async with sidecar(tmp_path, {**BOTH, "recall.dimension": 128}) as s:
        await s.chat().append(said(5, "booking again"))
        assert sorted(numbers(await searched(s, "booking", mode=api.SEARCH_MODE_WORDS))) == [3, 5]

        async with refused("FAILED_PRECONDITION", "RECALL_STOPPED") as refusal:
            while True:
                await search(s, "booking")

        assert "abridged log reindex" in refusal.metadata["cause"]
        assert "abridged log reindex" in await s.http("/readyz")
        assert "200 OK" in await s.http("/readyz")
        assert "abridged_recall_stopped 1.0" in await s.http("/metrics")
        assert [line["event"] for line in s.logs].count("recall.stopped") == 1


async def test_a_model_of_ollama_that_changes_its_vectors_stops_meaning_until_the_index_is_made_again(tmp_path):
    """The numbers cannot be compared with those of the index; words, appends and reads go on, a command mends it."""
    async with FakeOllama() as ollama:
        given = {"recall.index": "both", "recall.embedder": f"ollama:{ollama.models[0].name}"}
        async with sidecar(tmp_path, {**on_ollama(ollama), **given}) as s:
            await s.chat().append(*TRIP)
            assert len((await searched(s, "booking", mode=MEANING)).hits) == 4
            assert (await s.info.GetServerInfo(GetServerInfoRequest())).recall.dimension == 3

            ollama.embedding_numbers = 5
            await s.chat().append(said(5, "booking again"))

            async with refused("FAILED_PRECONDITION", "RECALL_STOPPED") as refusal:
                await search(s, "booking", mode=MEANING)
            assert "abridged log reindex" in refusal.metadata["cause"]
            words = await searched(s, "booking", mode=api.SEARCH_MODE_WORDS)
            assert sorted(numbers(words)) == [3, 5]
            assert len((await s.chat().context()).messages) == 5
            assert "abridged_recall_stopped 1.0" in await s.http("/metrics")

        options = (*given.items(), ("ollama.hosts", ollama.url))
        chosen = [part for name, value in options for part in ("--set", f"{name}={value}")]
        # The sidecar has shut the loop's own threads down.
        with ThreadPoolExecutor(1) as threads:
            reindex = partial(abridged, "log", "reindex", str(tmp_path / "abridged.db"), *chosen)
            ran = await asyncio.get_running_loop().run_in_executor(threads, reindex)
        assert ran.code == 0, ran.err

        async with sidecar(tmp_path, {**on_ollama(ollama), **given}) as s:
            assert len((await searched(s, "booking", mode=MEANING)).hits) == 5
            assert (await s.info.GetServerInfo(GetServerInfoRequest())).recall.dimension == 5


async def test_searches_and_how_far_the_index_is_are_measured(tmp_path):
    """The figures are by mode, with a duration, and show nothing behind when the index has caught up."""
    async with sidecar(tmp_path, BOTH) as s:
        await s.chat().append(*TRIP)
        await searched(s, "booking")

        metrics = await s.http("/metrics")

        assert 'abridged_searches_total{mode="both"}' in metrics
        assert 'abridged_searches_total{mode="words"} 0.0' in metrics
        assert 'abridged_recall_behind_events{index="words"} 0.0' in metrics
        assert 'abridged_recall_position{index="words"} 5.0' in metrics
        assert 'abridged_recall_behind_events{index="vectors"}' in metrics
        assert "abridged_recall_stopped 0.0" in metrics


async def test_an_exchange_is_one_hit_with_its_range(tmp_path):
    """The best of its messages makes the hit; its range ends before the user's next message."""
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(said(1, "who painted the red door"), call(2, "x"), tool_result(3, "x", "red red red"))
        await s.chat().append(said(4, "Anna painted it red"), said(5, "and the red roof"), said(6, "Ben did"))

        hits = (await searched(s, "red")).hits

        assert {(hit.exchange.first, hit.exchange.last) for hit in hits} == {(1, 4), (5, 6)}
        assert {hit.messages.first for hit in hits} <= {1, 3, 4, 5}
        assert not any(hit.passages for hit in hits)


async def test_words_that_only_talk_about_conversations_weigh_nothing(tmp_path):
    """They count when there are no others."""
    async with sidecar(tmp_path, WORDS) as s:
        await s.chat().append(*texts("I mentioned a different question", "the red door", "mentioned"))

        assert numbers(await searched(s, "the different question mentioned about a red door")) == [2]
        assert sorted(numbers(await searched(s, "mentioned"))) == [1, 3]


@pytest.mark.parametrize("mode", [api.SEARCH_MODE_WORDS, MEANING, api.SEARCH_MODE_BOTH])
async def test_passages_fit_in_the_tokens_that_were_asked_for(tmp_path, mode):
    """Passages are the opening of each exchange and the hit; a long text is cut around the hit, each with its place."""
    long = "nothing of the kind " * 200
    async with sidecar(tmp_path, BOTH) as s:
        chat = s.chat(context_length=100_000)
        await chat.append(said(1, "And what about that one?"), said(2, f"{long} The door is red. {long}"))
        await chat.append(*(exchange(number, f"A door of number {number}.") for number in range(3, 30)))

        all_ = await searched(s, "red door colour", mode=mode, max_tokens=5_000)
        few = await searched(s, "red door colour", mode=mode, max_tokens=40)

        passages = [(passage.number, passage.text) for hit in all_.hits for passage in hit.passages]
        assert len(all_.hits) == 28
        assert (1, "And what about that one?") in passages
        assert all(hit.passages for hit in few.hits)
        assert 0 < sum(passage.tokens for hit in few.hits for passage in hit.passages) <= 40
        if mode == api.SEARCH_MODE_WORDS:
            (cut,) = (text for number, text in passages if number == 2)
            assert "The door is red." in cut
            assert len(cut) <= 602


async def test_room_that_openings_leave_is_for_what_was_found(tmp_path):
    """The first ten exchanges are read whole; of the others the openings come before what was found of them."""
    async with sidecar(tmp_path, WORDS) as s:
        for number in range(1, 29, 2):
            await s.chat(context_length=100_000).append(said(number, f"Case {number}?"), said(number + 1, "It is red."))

        wide = await searched(s, "red", max_tokens=5_000)
        first = [passage for hit in wide.hits[:10] for passage in hit.passages]
        openings = [hit.passages[0] for hit in wide.hits[10:]]
        enough = sum(passage.tokens for passage in (*first, *openings))
        narrow = await searched(s, "red", max_tokens=enough + TOKENS_MIN - 1)

    assert [len(hit.passages) for hit in wide.hits] == [2] * 14
    assert [passage for hit in narrow.hits for passage in hit.passages] == [*first, *openings]


async def test_an_exchange_that_goes_on_after_a_fork_is_found_by_what_the_fork_has_of_it(tmp_path):
    """A better message of it is of the source alone."""
    async with sidecar(tmp_path, WORDS) as s:
        chat = s.chat("main")
        await chat.append(said(1, "a lentil among many other words"))
        request = api.ForkConversationRequest(conversation_id="main", fork_id="branch")
        await s.conversations.ForkConversation(request)
        await chat.append(said(2, "lentil lentil"))

        (hit,) = (await searched(s, "lentil", conversation_id="branch", max_tokens=100)).hits

        assert (hit.conversation_id, hit.messages.first) == ("branch", 1)
        assert (hit.exchange.first, hit.exchange.last) == (1, 1)
        assert [passage.number for passage in hit.passages] == [1]
