"""The features of the design "Summarization - Architecture", item by item, over the whole path, with its own numbers.

The tests are named for the items that the specification lists of that design.
"""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError

from abridged.service.config.settings import Settings
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import summary_pb2
from tests.integration.test_pass_metrics import counted
from tests.support.answers import gated, record, saying
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.presets import preset
from tests.support.sidecar import ANY_DRAFT, Chat, Sidecar, on_ollama, said, script, sidecar

POLICY = preset("s2", "policy") | ANY_DRAFT
CONTEXT = 16_000


def titled(s_folder, *steps, **settings) -> dict[str, object]:
    """Settings under which the titles are those of a script of their own."""
    models = script(s_folder, *steps, name="titles")["summarizer.models"]
    return POLICY | {"titles.enabled": True, "titles.models": models} | settings


async def title_of(s: Sidecar, chat: Chat, *, after: int = 0) -> str:
    """The title of the next TitleChanged behind an event version."""
    request = api.WatchConversationRequest(conversation_id=chat.id, after_version=after)
    async for item in s.conversations.WatchConversation(request, timeout=PATIENCE_S):
        if item.event.type == "TitleChanged":
            return str(item.event.title_changed.title)
    raise AssertionError("the stream ended before")


@pytest.mark.parametrize(("messages", "tokens"), [(20, 20), (10, 400)])
async def test_s2_thresholds_more_than_20_messages_or_more_than_4000_tokens(tmp_path, messages, tokens):
    """A chat at either number has no pass, and one with the next message."""
    async with sidecar(tmp_path, POLICY) as s:
        chat = s.chat(context_length=CONTEXT)
        await chat.talk(messages, tokens=tokens)
        before = await chat.passes()
        await chat.talk(1, tokens=tokens, wait_s=PATIENCE_S)

        assert before == []
        (only,) = await chat.passes()
        by_number = conversation.TRIGGER_PERIODIC if tokens == 20 else conversation.TRIGGER_RATIO
        assert (only.trigger, only.state) == (by_number, conversation.SUMMARIZATION_STATE_COMPLETED)


async def test_s2_the_last_4_messages_stay_verbatim_and_the_window_is_loaded_smartly(tmp_path):
    """Summary and last four; without a summary, all messages."""
    async with sidecar(tmp_path, POLICY) as s:
        chat = s.chat(context_length=CONTEXT)
        await chat.talk(20, tokens=100)
        whole = await chat.context()
        await chat.talk(1, tokens=100, wait_s=PATIENCE_S)
        window = await chat.context()

        assert [m.number for m in whole.messages] == [*range(1, 21)]
        assert [m.number for m in window.messages] == [0, 18, 19, 20, 21]
        assert window.messages[1].message.content == said(18).content


async def test_s2_iterative_the_next_summary_continues_the_one_before(tmp_path):
    """The next summary's prompt has the earlier summary and the new messages."""
    async with (
        FakeOllama(responder=saying(record("The importer was looked at first."), record())) as ollama,
        sidecar(tmp_path, POLICY | on_ollama(ollama)) as s,
    ):
        chat = s.chat(context_length=CONTEXT)
        await chat.talk(21, tokens=100, wait_s=PATIENCE_S)
        await chat.talk(21, tokens=100, wait_s=PATIENCE_S)

        again = ollama.asked()[1]["messages"][-1]["content"]
        assert "The importer was looked at first." in again
        assert "Turn 18:" in again
        assert "Turn 17:" not in again


async def test_s2_compute_only_nothing_is_written_before_the_one_commit_at_the_end(tmp_path):
    """While the model works the log has the trigger and the claim; then record and end are one event."""
    gate = asyncio.Event()
    async with FakeOllama(responder=gated(gate)) as ollama, sidecar(tmp_path, POLICY | on_ollama(ollama)) as s:
        chat = s.chat(context_length=CONTEXT)
        await chat.talk(21, tokens=100)
        await ollama.until(lambda server: bool(server.asked()))
        during = await chat.events()
        gate.set()
        await s.idle()

        new = (await chat.events())[len(during) :]
        assert [type(event).__name__ for event in during[-2:]] == ["SummarizationRequested", "SummarizationStarted"]
        assert [type(event).__name__ for event in new] == ["SummarizationCompleted"]


async def test_s2_title_a_chat_gets_a_new_title_after_each_summary_by_its_own_model(tmp_path):
    """One call a pass; GetConversation, ListConversations and the log have it."""
    steps = ({"text": "Importer reads orders"}, {"text": '"Title: Hosts of the importer."'})
    async with sidecar(tmp_path, titled(tmp_path, *steps)) as s:
        chat = s.chat(context_length=CONTEXT)
        await chat.talk(21, tokens=100, wait_s=PATIENCE_S)
        first = await title_of(s, chat)
        version = (await chat.state()).event_version
        await chat.talk(21, tokens=100, wait_s=PATIENCE_S)
        second = await title_of(s, chat, after=version)

        assert (first, second) == ("Importer reads orders", "Hosts of the importer")
        # The second may be counted just after its event is seen.
        assert (await counted(s, "abridged_titles", "outcome"))["changed",] in (1, 2)
        assert (await chat.state()).title == second
        listed = await s.conversations.ListConversations(api.ListConversationsRequest(), timeout=PATIENCE_S)
        assert [c.title for c in listed.conversations] == [second]
        (newest, _) = await chat.summaries()
        assert [event.summary_id for event in await chat.events("TitleChanged")][-1] == newest.id
    async with sidecar(tmp_path, POLICY) as s:
        assert (await s.chat().state()).title == second


@pytest.mark.parametrize(
    "step",
    [
        {"error": "unavailable"},
        {"text": "I'm sorry, I cannot do that."},
        {"text": '{"title": "x"}'},
        {"text": "word " * 40},
        {"text": "Booking of flight QX7788 to Oslo"},
    ],
)
async def test_s2_title_a_bad_one_is_left_out_and_fails_nothing(tmp_path, step):
    """No host, a refusal, JSON, a text without end, an invented name; asked once, and never again for this pass."""
    steps = (step, {"text": "Importer reads orders"})
    async with sidecar(tmp_path, titled(tmp_path, *steps)) as s:
        chat = s.chat(context_length=CONTEXT)
        done = (await chat.talk(21, tokens=100, wait_s=PATIENCE_S)).summarization
        # Titles are made one after the other, so this one comes behind the bad one.
        other = s.chat("other", context_length=CONTEXT)
        await other.talk(21, tokens=100, wait_s=PATIENCE_S)

        assert await title_of(s, other) == "Importer reads orders"
        outcome = "failed" if "error" in step else "refused"
        assert (await counted(s, "abridged_titles", "outcome"))[outcome,] == 1
        assert done.state == conversation.SUMMARIZATION_STATE_COMPLETED
        assert ((await chat.state()).title, await chat.events("TitleChanged")) == ("", [])


async def test_s2_title_no_pass_waits_for_it(tmp_path):
    """The title's model never answers; passes go on, and the sidecar stops."""
    async with sidecar(tmp_path, titled(tmp_path, {"hang": True})) as s:
        chat = s.chat(context_length=CONTEXT)
        for _ in range(2):
            done = (await chat.talk(21, tokens=100, wait_s=PATIENCE_S)).summarization
            assert done.state == conversation.SUMMARIZATION_STATE_COMPLETED
        assert len(await chat.summaries()) == 2


async def test_s2_title_of_the_client_stays(tmp_path):
    """No model is asked where the client has set one, and one that it sets later comes before the generated one."""
    steps = ({"text": "Importer reads orders"}, {"text": "Hosts of the importer"})
    async with sidecar(tmp_path, titled(tmp_path, *steps)) as s:
        mine = s.chat("mine", context_length=CONTEXT, title="Mine")
        await mine.talk(21, tokens=100, wait_s=PATIENCE_S)
        chat = s.chat(context_length=CONTEXT)
        await chat.talk(21, tokens=100, wait_s=PATIENCE_S)
        generated = await title_of(s, chat)
        assert generated == "Importer reads orders", "the first call was for this conversation"
        await chat.update(["title"], title="Later")

        assert ((await mine.state()).title, await mine.events("TitleChanged")) == ("Mine", [])
        assert (await chat.state()).title == "Later"
        await chat.update(["title"], title="")
        assert (await chat.state()).title == generated


async def test_s2_title_any_profile_can_switch_titles_on(tmp_path):
    """CHAIN does so here, with the summarizer's models, which are asked once more."""
    answers = saying(record(), "The importer reads orders")
    async with (
        FakeOllama(responder=answers) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | {"titles.enabled": True}) as s,
    ):
        chat = s.chat()
        await chat.talk(14, wait_s=PATIENCE_S)

        assert await title_of(s, chat) == "The importer reads orders"
        assert len(ollama.asked()) == 2
        assert "name conversations" in ollama.asked()[1]["messages"][0]["content"]


def test_s2_title_by_extraction_is_refused_naming_the_setting():
    """Extraction writes no titles, whatever the data."""
    with pytest.raises(ValidationError, match="titles need a model"):
        Settings.model_validate({"titles": {"enabled": True, "models": ["extractive:default"]}})


async def test_s2_debt_a_record_has_figures_of_its_quality_and_takes_feedback(tmp_path):
    """The design has neither; here checks measure each record, and users rate it."""
    async with sidecar(tmp_path, POLICY) as s:
        chat = s.chat(context_length=CONTEXT)
        await chat.talk(21, tokens=100, wait_s=PATIENCE_S)
        (made,) = await chat.summaries()
        rated = api.RateSummaryRequest(conversation_id=chat.id, summary_id=made.id, rating=summary_pb2.RATING_BAD)
        await s.conversations.RateSummary(rated, timeout=PATIENCE_S)

        assert made.quality.reduction > 0.2
        shown = api.GetSummaryRequest(conversation_id=chat.id, summary_id=made.id)
        assert (await s.conversations.GetSummary(shown, timeout=PATIENCE_S)).rating == summary_pb2.RATING_BAD


async def test_s2_debt_the_models_own_count_corrects_what_is_estimated(tmp_path):
    """Four characters a token is nobody's tokenizer: a usage report moves the threshold to where it is."""
    async with sidecar(tmp_path, POLICY) as s:
        chat = s.chat(context_length=CONTEXT)
        await chat.append(*(said(n, f"Turn {n}: " + "orders were read again. " * 40) for n in range(1, 17)))
        window = await chat.context()
        before = await chat.passes()
        report = api.ReportUsageRequest(
            conversation_id=chat.id,
            message_version=window.message_version,
            prompt_tokens=3 * window.usage.window_tokens,
        )
        await s.conversations.ReportUsage(report, timeout=PATIENCE_S)
        await s.idle()

        assert before == []
        assert len(await chat.passes()) == 1
