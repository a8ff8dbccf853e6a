"""The features of the episodes design, one by one, over the whole path and with the numbers of its preset."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2, summary_pb2
from tests.support.answers import gated
from tests.support.command import abridged
from tests.support.ollama_responder import Ask, Piece
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import ANY_DRAFT, Chat, Clock, Sidecar, call, on_ollama, said, script, sidecar, tool_result

PRESET = Path(__file__).parents[2] / "presets" / "s4.toml"
S4 = {f"policy.{name}": value for name, value in tomllib.loads(PRESET.read_text())["policy"].items()}
BOTH = pytest.mark.parametrize("model", ["scripted:default", "extractive:"])


async def episodes_of(chat: Chat, **fields: Any) -> list[Any]:
    """The episodes, newest first."""
    request = api.ListEpisodesRequest(conversation_id=chat.id, **fields)
    return list((await chat.sidecar.conversations.ListEpisodes(request)).episodes)


async def tell(chat: Chat, count: int, *, shifts: tuple[int, ...] = (), **fields: Any) -> Any:
    """Append `count` messages with the enhancer's hints, of which those of `shifts` begin a topic."""
    first = chat.count + 1
    numbers = range(first, first + count)
    messages = [said(n, tokens=60, is_continuation=n not in shifts, **fields) for n in numbers]
    return await chat.append(*messages, wait_s=PATIENCE_S)


def bounds(*episodes: Any) -> list[tuple[int, int]]:
    return [(r.first, r.last) for episode in episodes for r in episode.messages]


def chat_of(s: Sidecar, name: str = "c1") -> Chat:
    return s.chat(name, context_length=8_192)


@BOTH
async def test_s4_trigger_a_run_begins_at_ten_unsummarized_messages_and_not_before(tmp_path, model):
    """The messages may take any share of the budget."""
    async with sidecar(tmp_path, {**S4, "summarizer.models": [model]}) as s:
        chat = chat_of(s)
        nine = await tell(chat, 9)
        ten = await tell(chat, 1)

        assert not nine.HasField("summarization")
        assert ten.summarization.trigger == conversation.TRIGGER_PERIODIC
        assert ten.summarization.state == conversation.SUMMARIZATION_STATE_COMPLETED
        assert bounds(*await episodes_of(chat)) == [(1, 8)]


async def test_s4_trigger_counts_only_what_no_episode_has(tmp_path):
    """The next run begins when ten others wait."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        await tell(chat, 10)
        assert not (await tell(chat, 7)).HasField("summarization")
        assert (await tell(chat, 1)).HasField("summarization")

        assert bounds(*await episodes_of(chat)) == [(9, 16), (1, 8)]


async def test_s4_background_the_append_returns_before_its_run_ends(tmp_path):
    """Fire and forget: the model has not answered yet."""
    gate = asyncio.Event()
    async with FakeOllama(responder=gated(gate)) as ollama, sidecar(tmp_path, S4 | on_ollama(ollama)) as s:
        chat = chat_of(s)
        answer = await chat.append(*(said(n, tokens=60) for n in range(1, 11)))

        assert answer.summarization.state == conversation.SUMMARIZATION_STATE_PENDING
        assert len((await chat.context()).messages) == 10
        gate.set()
        await s.idle()
        assert len(await episodes_of(chat)) == 1


async def test_s4_segmentation_an_episode_ends_where_the_topic_shifts(tmp_path):
    """A shift is at `is_continuation=false`, once the least size is reached; within an exchange, with its question."""
    async with sidecar(tmp_path, S4) as s:
        chat, within = chat_of(s), chat_of(s, "within")
        await tell(chat, 10, shifts=(3, 7))
        await tell(within, 10, shifts=(3, 6))

        assert bounds(*await episodes_of(chat)) == [(1, 6)]
        assert bounds(*await episodes_of(within)) == [(1, 4)]


@pytest.mark.parametrize("seed", range(4))
async def test_s4_segmentation_no_boundary_divides_an_exchange_and_no_episode_has_a_gap(tmp_path, seed):
    """Chats with tools, several messages in a row and an agent that works on its own; appended as they come."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        said_so_far: list[message_pb2.Message] = []
        for m in _busy_chat(Random(seed), 120):
            said_so_far.append(m)
            await chat.append(m, wait_s=PATIENCE_S)
        await s.idle()
        ranges = bounds(*reversed(await episodes_of(chat)))

        assert len(ranges) == len(await episodes_of(chat))
        assert [first for first, _ in ranges] == [1, *(last + 1 for _, last in ranges[:-1])]
        assert len(ranges) > 4
        for _, last in ranges:
            before, after = said_so_far[last - 1], said_so_far[last]
            assert before.role != message_pb2.ROLE_USER
            assert after.role == message_pb2.ROLE_USER


async def test_s4_segmentation_an_agent_on_its_own_has_episodes_without_a_gap(tmp_path):
    """An exchange longer than an episode is divided between tool calls; the question stays, and is in no header."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        await tell(chat, 8)
        await chat.append(said(9, tokens=60))
        for n in range(10, 70, 2):
            await chat.append(call(n, f"c{n}", tokens=60), tool_result(n + 1, f"c{n}", tokens=60), wait_s=PATIENCE_S)
        await s.idle()
        ranges = bounds(*reversed(await episodes_of(chat)))
        window = await chat.context()

        assert ranges[:2] == [(1, 8), (10, 27)]
        assert all(first % 2 == 0 for first, _ in ranges[1:])
        assert [first for first, _ in ranges[2:]] == [last + 1 for _, last in ranges[1:-1]]
        assert next(m.number for m in window.messages if not m.tag) == 9


async def test_s4_emergency_a_call_that_waits_does_not_hold_the_rest_back(tmp_path):
    """The call's result may come after everything else; the window is within its budget all the same."""
    async with sidecar(tmp_path, S4) as s:
        chat = s.chat(context_length=2_000)
        await chat.append(said(1, tokens=60), call(2, "slow", tokens=20))
        for n in range(3, 63, 2):
            await chat.append(call(n, f"c{n}", tokens=60), tool_result(n + 1, f"c{n}", tokens=60), wait_s=PATIENCE_S)
        await s.idle()
        window = await chat.context()

        assert window.usage.ratio < 1
        assert [m.number for m in window.messages if not m.tag][:2] == [1, 2]


async def test_s4_rest_at_a_close_all_messages_are_in_an_episode(tmp_path):
    """The last episode may be too small otherwise, and has the tail; closing again asks for nothing more."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        await tell(chat, 10)
        await tell(chat, 5)
        closing = api.CloseConversationRequest(conversation_id=chat.id)
        await s.conversations.CloseConversation(closing)
        await s.idle()
        after = (await chat.state()).event_version
        await s.conversations.CloseConversation(closing)

        assert bounds(*await episodes_of(chat)) == [(9, 15), (1, 8)]
        assert (await chat.state()).event_version == after


@pytest.mark.parametrize("silence_s", [3_599.7, 3_601])
async def test_s4_rest_after_an_idle_hour_it_is_an_episode_and_the_last_exchange_stays(tmp_path, silence_s):
    """A user who comes back goes on from the last words. A restart at its end, or after it, forgets no silence."""
    clock = Clock()
    async with sidecar(tmp_path, S4, now_us=clock) as s:
        chat = chat_of(s)
        await tell(chat, 10)
        await tell(chat, 4)
        assert bounds(*await episodes_of(chat)) == [(1, 8)]
    clock.advance(silence_s)
    async with sidecar(tmp_path, S4, now_us=clock) as s:
        await completed(s, chat_of(s), 2)
        assert bounds(*await episodes_of(chat_of(s))) == [(9, 12), (1, 8)]


async def completed(s: Sidecar, chat: Chat, count: int) -> None:
    """Return once `count` passes of the conversation are complete."""
    watching = s.conversations.WatchConversation(
        api.WatchConversationRequest(conversation_id=chat.id), timeout=PATIENCE_S
    )
    async for item in watching:
        count -= item.WhichOneof("item") == "event" and item.event.type == "SummarizationCompleted"
        if not count:
            return


def _busy_chat(random: Random, count: int) -> Iterator[message_pb2.Message]:
    """Messages of 60 tokens: questions of one to three messages, tool calls, and a reply."""
    number = 0
    while number < count:
        for _ in range(random.choice((1, 1, 2, 3))):
            number += 1
            yield said(number, tokens=60, role=message_pb2.ROLE_USER)
        for _ in range(random.choice((0, 0, 1, 3))):
            yield call(number + 1, f"c{number}", tokens=60)
            yield tool_result(number + 2, f"c{number}", tokens=60)
            number += 2
        number += 1
        yield said(number, tokens=60, role=message_pb2.ROLE_ASSISTANT)


async def test_s4_segmentation_a_backlog_becomes_several_episodes_of_twenty_at_most(tmp_path):
    """The hard cap holds where no topic shifts."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        await tell(chat, 60)
        await s.idle()

        assert bounds(*await episodes_of(chat)) == [(41, 58), (21, 40), (1, 20)]


async def test_s4_segmentation_without_hints_the_words_say_where_the_topic_shifts(tmp_path):
    """Nobody has to run an enhancer."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        orders = "The importer reads table orders on the database host and the parser fails on its header"
        travel = "Which flight from Lisbon to Oslo has a window seat and a vegetarian meal on board"
        texts = [orders] * 6 + [travel] * 6
        messages = [said(n, f"{text}, note {n}.", tokens=60) for n, text in enumerate(texts, 1)]
        await chat.append(*messages, wait_s=PATIENCE_S)

        assert bounds(*await episodes_of(chat)) == [(1, 6)]


async def test_s4_segmentation_a_tool_call_and_its_result_are_in_one_episode(tmp_path):
    """A shift within them waits for their end."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        unit = [call(5, "a", tokens=60), tool_result(6, "a", tokens=60)]
        unit[1].is_continuation = False
        await chat.append(
            *(said(n, tokens=60) for n in range(1, 5)),
            *unit,
            *(said(n, tokens=60, is_continuation=n != 9) for n in range(7, 13)),
            wait_s=PATIENCE_S,
        )

        assert bounds(*await episodes_of(chat)) == [(1, 8)]


async def test_s4_overlap_the_prompt_quotes_two_messages_and_the_first_episode_keeps_them(tmp_path):
    """They explain the next episode and do not belong to it."""
    async with FakeOllama() as ollama, sidecar(tmp_path, S4 | on_ollama(ollama)) as s:
        chat = chat_of(s)
        await tell(chat, 10)
        await tell(chat, 8)
        prompt = ollama.asked()[-1]["messages"][-1]["content"]
        before, _, transcript = prompt.partition("<transcript>")

        assert "<message 7 user>" in before
        assert "<message 8 assistant>" in before
        assert "<message 6 " not in prompt
        assert transcript.strip().startswith("<message 9 user>")
        assert bounds(*await episodes_of(chat)) == [(9, 16), (1, 8)]


@BOTH
async def test_s4_summaries_an_episode_has_a_short_and_a_long_one(tmp_path, model):
    """One or two sentences, and at most eight."""
    async with sidecar(tmp_path, {**S4, "summarizer.models": [model]}) as s:
        chat = chat_of(s)
        whats = ("importer fails on orders.csv", "parser was pinned", "retry queue has no owner", "budget is 1200 EUR")
        turns = [said(n, f"The {whats[n % 4]} since step {n}, says Dana{n}.", tokens=60) for n in range(1, 11)]
        await chat.append(*turns, wait_s=PATIENCE_S)
        (episode,) = await episodes_of(chat)

        assert episode.short_summary
        assert len(episode.short_summary) < len(episode.long_summary)
        assert episode.short_summary.count(". ") <= 1
        assert episode.long_summary.count(". ") <= 7


@BOTH
async def test_s4_window_old_episodes_in_short_the_newest_at_length_then_the_tail(tmp_path, model):
    """Each message is sent or stands in a summary that is."""
    async with sidecar(tmp_path, {**S4, "summarizer.models": [model]}) as s:
        chat = chat_of(s)
        await tell(chat, 34, shifts=(9, 17, 25))
        await s.idle()
        window = await chat.context()
        newest, *older = await episodes_of(chat)

        assert [e.form for e in (newest, *older)] == [api.EPISODE_FORM_LONG] + [api.EPISODE_FORM_SHORT] * len(older)
        texts = [m.message.content for m in window.messages if m.tag]
        assert newest.long_summary in texts[-1]
        assert all(e.short_summary in text for e, text in zip(reversed(older), texts, strict=False))
        assert [m.number for m in window.messages if not m.tag] == [33, 34]
        assert window.usage.window_tokens == sum(m.tokens for m in window.messages)


async def test_s4_metrics_sentiment_flows_and_tools_of_an_episode(tmp_path):
    """Average and variance of the user's sentiment; flows and tools once each."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        await chat.append(
            said(1, tokens=60, sentiment=-1.0, flows=["refund"], tools=["lookup"]),
            said(2, tokens=60, sentiment=0.9, flows=["refund", "greeting"]),
            said(3, tokens=60, sentiment=0.5),
            call(4, "a", tokens=60),
            tool_result(5, "a", tokens=60),
            *(said(n, tokens=60) for n in range(7, 13)),
            wait_s=PATIENCE_S,
        )
        (episode,) = await episodes_of(chat)
        figures = episode.figures

        assert (figures.sentiment_messages, figures.sentiment_mean, figures.sentiment_variance) == (2, -0.25, 0.5625)
        assert (list(figures.flows), list(figures.tools)) == (["refund", "greeting"], ["lookup", "search"])


async def test_s4_metrics_are_unset_where_nobody_measured(tmp_path):
    """Nobody's sentiment is not a neutral one."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        await tell(chat, 10)
        (episode,) = await episodes_of(chat)

        assert episode.figures == summary_pb2.EpisodeFigures()


async def test_s4_identity_a_message_is_in_one_episode_once_and_for_ever(tmp_path):
    """Episodes also stay when short summaries are merged."""
    async with sidecar(tmp_path, {**S4, "policy.episode_token_ratio": 0.02}) as s:
        chat = chat_of(s)
        seen: dict[str, list[tuple[int, int]]] = {}
        for _ in range(12):
            await tell(chat, 8)
            await s.idle()
            found = {e.id: bounds(e) for e in await episodes_of(chat)}
            assert all(found[name] == kept for name, kept in seen.items())
            seen = found

        numbers = [n for pairs in seen.values() for first, last in pairs for n in range(first, last + 1)]
        assert len(numbers) == len(set(numbers)) == 94
        assert api.EPISODE_FORM_MERGED in [e.form for e in await episodes_of(chat)]


async def test_s4_digest_no_sentence_of_merged_episodes_is_there_twice(tmp_path):
    """A model may say it again."""
    short = "The importer reads its tables. The parser was pinned."

    async def respond(ask: Ask) -> AsyncIterator[Piece]:
        episode = {"short_summary": short, "long_summary": short}
        yield Piece(content=json.dumps(episode if "short_summary" in ask.prompt else {"summary": f"{short} {short}"}))
        yield Piece(done_reason="stop")

    settings = S4 | ANY_DRAFT | {"policy.episode_token_ratio": 0.02}
    async with FakeOllama(responder=respond) as ollama, sidecar(tmp_path, settings | on_ollama(ollama)) as s:
        chat = chat_of(s)
        for _ in range(8):
            await tell(chat, 10)
        await s.idle()

        assert {r.summary for r in await chat.summaries() if r.prompt_name == "digest"} == {short}


async def test_s4_concurrency_messages_within_milliseconds_lead_to_one_run_at_a_time(tmp_path):
    """Twenty appends at once, and no message in two episodes."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        await asyncio.gather(*(chat.append(said(n, tokens=60)) for n in range(1, 21)))
        await s.idle()

        requested = await chat.events("SummarizationRequested")
        covered = [n for r in requested for c in r.plan.covered for n in range(c.first, c.last + 1)]
        assert len(covered) == len(set(covered))
        assert len(await episodes_of(chat)) == len(requested)


@pytest.mark.parametrize("step", [{"text": "not JSON"}, {"error": "unavailable"}])
async def test_s4_fallback_malformed_json_or_a_timeout_leaves_an_episode_all_the_same(tmp_path, step):
    """Extracted and marked as that, not the first thousand characters."""
    async with sidecar(tmp_path, S4 | script(tmp_path, step)) as s:
        chat = chat_of(s)
        await tell(chat, 10)
        (episode,) = await episodes_of(chat)

        assert episode.provenance == summary_pb2.PROVENANCE_EXTRACTIVE
        assert "importer" in episode.short_summary
        (done,) = await chat.events("SummarizationCompleted")
        assert done.fallback


async def test_s4_exclusion_a_conversation_that_is_switched_off_has_no_runs(tmp_path):
    """The conversation's own setting switches it off, while others go on."""
    async with sidecar(tmp_path, S4) as s:
        off, on = s.chat("a", context_length=8_192, policy={"enabled": False}), chat_of(s, "b")
        await tell(off, 30)
        await tell(on, 10)

        assert (len(await episodes_of(off)), len(await episodes_of(on))) == (0, 1)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("episode_overlap", {"episode_overlap": 20}),
        ("episode_overlap", {"episode_overlap": 4}),
        ("episode_overlap", {"min_episode_size": 2}),
        ("min_episode_size", {"min_episode_size": 21, "episode_trigger_messages": 30}),
        ("episode_trigger_messages", {"episode_trigger_messages": 3}),
        ("episode_token_ratio", {"episode_token_ratio": 0.4}),
    ],
)
async def test_s4_validation_impossible_sizes_are_refused_naming_the_field(tmp_path, field, settings):
    """An overlap as large as an episode, a trigger below the least size; for the operator and for a client."""
    async with sidecar(tmp_path, S4) as s:
        chat = s.chat(context_length=8_192, policy=settings)
        async with refused("INVALID_ARGUMENT", "INVALID_POLICY") as refusal:
            await chat.append(said(1))

    assert field in str(refusal)
    with pytest.raises(Exception, match=field):
        async with sidecar(tmp_path / "other", {**S4, **{f"policy.{n}": v for n, v in settings.items()}}):
            pass


async def test_s4_drain_a_run_that_a_stop_interrupts_ends_after_the_restart(tmp_path):
    """The restart loses nothing that was triggered."""
    gate = asyncio.Event()
    async with FakeOllama(responder=gated(gate)) as ollama:
        async with sidecar(tmp_path, S4 | on_ollama(ollama)) as s:
            await chat_of(s).append(*(said(n, tokens=60) for n in range(1, 11)))
        gate.set()
        async with sidecar(tmp_path, S4 | on_ollama(ollama)) as s:
            await s.idle()
            assert bounds(*await episodes_of(chat_of(s))) == [(1, 8)]


async def test_s4_drain_waits_until_no_run_is_pending(tmp_path):
    """WaitIdle returns when the last run has ended, as `Agent.drain()` does."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        await chat.append(*(said(n, tokens=60) for n in range(1, 61)))
        await s.idle()

        assert not (await chat.state()).pending_summarization_id
        assert len(await episodes_of(chat)) == 3


async def test_s4_episodes_are_printed_for_people_and_for_programs(tmp_path):
    """The command is `abridged episodes`."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        assert (await asyncio.to_thread(printed, s, "--json")).code == 1
        await tell(chat, 10, sentiment=0.5, flows=["refund"])
        (episode,) = await episodes_of(chat)
        shown = await asyncio.to_thread(printed, s)
        (line,) = (await asyncio.to_thread(printed, s, "--json")).out.splitlines()

    assert "messages 1-8, window: long, model" in shown.out
    assert "sentiment +0.50, variance 0.00, 4 messages" in shown.out
    assert "flows: refund" in shown.out
    assert json.loads(line)["shortSummary"] == episode.short_summary


def printed(s: Sidecar, *options: str) -> Any:
    return abridged("episodes", "c1", "--address", s.running.grpc_addresses[0], *options)


async def test_s4_episodes_are_listed_in_pages_and_found_by_their_id(tmp_path):
    """Newest first; one that is revoked, or never was, is not found."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        await tell(chat, 26, shifts=(9, 17))
        await s.idle()
        every = await episodes_of(chat)
        page = await s.conversations.ListEpisodes(api.ListEpisodesRequest(conversation_id="c1", page_size=1))
        rest = await episodes_of(chat, page_token=page.next_page_token)

        assert [*page.episodes, *rest] == every
        assert len(every) == 3
        got = await s.conversations.GetEpisode(api.GetEpisodeRequest(conversation_id="c1", episode_id=every[1].id))
        assert got.episode == every[1]

        await s.conversations.RevokeSummary(api.RevokeSummaryRequest(conversation_id="c1", summary_id=every[0].id))
        async with refused("NOT_FOUND", "EPISODE_NOT_FOUND"):
            await s.conversations.GetEpisode(api.GetEpisodeRequest(conversation_id="c1", episode_id=every[0].id))


@pytest.mark.parametrize(
    "bad",
    [
        {"sentiment": 1.5},
        {"sentiment": float("nan")},
        {"flows": [""]},
        {"flows": ["f"] * 65},
        {"tools": ["t" * 257]},
    ],
)
async def test_s4_hints_that_break_a_rule_are_refused(tmp_path, bad):
    """Naming the field."""
    async with sidecar(tmp_path, S4) as s, refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
        await chat_of(s).append(said(1, **bad))

    assert f"messages[0].{next(iter(bad))}" in str(refusal)


async def test_s4_hints_come_back_as_they_were_sent(tmp_path):
    """The hints are in windows and events alike."""
    async with sidecar(tmp_path, S4) as s:
        chat = chat_of(s)
        sent = said(1, is_continuation=False, sentiment=0.25, flows=["refund"], tools=["lookup"])
        await chat.append(sent)

        assert (await chat.context()).messages[0].message == sent
        (event,) = await chat.events("MessageAppended")
        assert event.message == sent
        assert event.message.role == message_pb2.ROLE_USER
