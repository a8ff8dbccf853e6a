"""A window that always holds: what a client gets while models hang, fail, answer badly and come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import product

import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import summary_pb2
from tests.support.answers import gated, hanging, record, saying
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_responder import Ask, Piece, count_tokens
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import ANY_DRAFT, on_ollama, said, sidecar

DEAD = {"summarizer.models": ["ollama:x"], "ollama.hosts": ["127.0.0.1:9"]}
COMPLETED = conversation.SUMMARIZATION_STATE_COMPLETED
REMAKE = conversation.TRIGGER_REMAKE


async def test_a_window_over_its_budget_is_not_handed_out_while_a_model_hangs(tmp_path):
    """Extraction stands in for the pass that is under way, and the host hears that its answer is not needed."""
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat()
        await chat.talk(14)
        await ollama.until(lambda o: bool(o.asked()))
        assert (await chat.context()).pending_summarization_id
        over = await chat.talk(4)
        assert over.usage.ratio > 1

        window = await chat.context()

        assert (window.over_limit, window.compacted, window.usage.ratio < 0.8) == (False, True, True)
        (made,) = await chat.summaries()
        assert made.provenance == summary_pb2.PROVENANCE_EXTRACTIVE
        (ended,) = await chat.passes()
        assert (ended.state, list(ended.models_tried)) == (COMPLETED, ["ollama:qwen2.5:3b", "extractive:default"])
        await ollama.until(lambda o: o.working == 0)


async def test_whoever_waits_gets_the_models_record(tmp_path):
    """The stand-in is for those that cannot wait any longer."""
    gate = asyncio.Event()
    async with FakeOllama(responder=gated(gate)) as ollama, sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT) as s:
        chat = s.chat()
        await chat.talk(18)
        waiting = asyncio.ensure_future(chat.context(wait_s=PATIENCE_S))
        await ollama.until(lambda o: bool(o.asked()))
        gate.set()

        assert (await waiting).compacted
        assert (await chat.summaries())[0].provenance == summary_pb2.PROVENANCE_MODEL


async def test_a_full_window_does_not_queue_behind_slow_models(tmp_path):
    """All places of passes are taken by models that hang, and one more conversation is over its budget."""
    settings = {"summarizer.concurrent_passes": 1}
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama) | settings) as s:
        await s.chat("slow").talk(14)
        await ollama.until(lambda o: bool(o.asked()))
        full = s.chat("full")
        await full.talk(20)

        window = await full.context()

        assert (window.over_limit, window.compacted) == (False, True)
        assert len(ollama.asked()) == 1


@pytest.mark.parametrize("fallback", [conversation.FALLBACK_EMERGENCY, conversation.FALLBACK_ALWAYS])
async def test_no_window_is_over_its_budget_in_an_outage(tmp_path, fallback):
    """A message a call, thrice the budget, and the model away from start to end."""
    async with sidecar(tmp_path, DEAD) as s:
        chat = s.chat(policy={"fallback": fallback})
        for number in range(1, 60):
            await chat.append(said(number, tokens=100))
            window = await chat.context()
            assert not window.over_limit, f"message {number}: {window.usage.ratio:.2f}"

        made = await chat.summaries()
        assert {r.provenance for r in made} == {summary_pb2.PROVENANCE_EXTRACTIVE}


async def test_remakes_in_vain_do_not_hold_back_a_model_that_is_back(tmp_path):
    """Two of them, each larger than what both stand for; the next pass comes at the trigger, as if nothing had been."""
    ways = map("".join, product("bdfg", "aeiou", "lmnr", "aeiou"))
    wordy = [record(", ".join(f"the exporter writes table orders {way}" for way in ways) + ".")] * 4

    async def respond(ask: Ask) -> AsyncIterator[Piece]:
        exporting = "exporter" in ask.prompt and wordy
        yield Piece(content=wordy.pop() if exporting else record())
        yield Piece(done_reason="stop")

    async with sidecar(tmp_path, DEAD) as s:
        chat = s.chat(policy={"fallback": conversation.FALLBACK_ALWAYS})
        turns = [said(n, f"Turn {n}: the exporter writes table orders_{n}.", tokens=120) for n in range(1, 15)]
        await chat.append(*turns, wait_s=PATIENCE_S)

    # Room for what is too wordy: it is to be whole, and to save nothing.
    roomy = ANY_DRAFT | {"summarizer.num_predict": 4_000}
    async with FakeOllama(responder=respond) as ollama, sidecar(tmp_path, on_ollama(ollama) | roomy) as s:
        chat = s.chat()
        chat.count = 14
        for name in ("wake", "wake-again"):
            await s.chat(name).talk(14, wait_s=PATIENCE_S)
            async with asyncio.timeout(PATIENCE_S):
                while len([p for p in await chat.passes() if p.trigger == REMAKE]) < (2 if "again" in name else 1):
                    await s.idle()
        await s.idle()
        assert [p.skip_reason for p in (await chat.passes())[:2]] == [conversation.SKIP_REASON_NO_GAIN] * 2
        assert (await chat.state()).failures_in_row == 1

        for _ in range(20):
            await chat.talk(1, tokens=120, wait_s=PATIENCE_S)
            newest = (await chat.passes())[0]
            if newest.trigger != REMAKE:
                break
        assert (newest.trigger, newest.state) == (conversation.TRIGGER_RATIO, COMPLETED)
        assert newest.token_ratio < 0.9


async def test_a_prompt_that_does_not_fit_is_asked_again_in_halves_and_the_next_one_is_planned_right(tmp_path):
    """The model makes three tokens of one of ours: a prompt that overflowed once does not come again."""
    models = [FakeModel(token_ratio=3.0)]
    async with (
        FakeOllama(responder=saying(record()), models=models) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT | {"ollama.num_ctx": 8_192}) as s,
    ):
        chat = s.chat(context_length=60_000)
        text = "The importer reads orders from the queue and goes on with the next one of them. "
        await chat.append(*(said(n, text * 30) for n in range(1, 14)))
        assert (await chat.summarize()).state == COMPLETED
        first = len(ollama.asked())

        await chat.append(*(said(n, text * 30) for n in range(14, 27)))
        assert (await chat.summarize()).state == COMPLETED

        lengths = [3 * sum(count_tokens(m["content"]) for m in body["messages"]) for body in ollama.asked()]
        assert max(lengths[:first]) > 8_192 > max(lengths[first:])


async def test_a_pass_has_one_bound_on_calls(tmp_path):
    """Repairs and parts count together; a call over it is not begun, and the failure says so."""
    settings = {"policy.pass_calls_max": 8, "ollama.num_ctx": 4_096, "policy.fallback": "never"}
    async with FakeOllama(responder=saying(record())) as ollama, sidecar(tmp_path, on_ollama(ollama) | settings) as s:
        chat = s.chat(context_length=60_000)
        await chat.append(said(1, "The importer reads orders from the queue and goes on. " * 2_500))
        await chat.talk(13, tokens=20)

        ended = await chat.summarize()

        assert ended.state == conversation.SUMMARIZATION_STATE_FAILED
        assert "a pass has 8" in ended.cause
        assert len(ollama.asked()) == 0


async def test_a_summary_that_is_too_long_loses_list_items_before_it_is_refused(tmp_path):
    """Key points go first, those at the end; a record that fits is committed at the first answer."""
    points = [f"Turn {n}: the importer reads table orders_{n} on host db-{n:02d}." for n in range(2, 13)]
    answer = record("The user and the assistant settled how the importer reads orders.", key_points=points)
    async with FakeOllama(responder=saying(answer)) as ollama, sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT) as s:
        chat = s.chat(overhead_tokens=1_200)
        await chat.append(said(1, tokens=20))
        await chat.talk(14, wait_s=PATIENCE_S)

        made = (await chat.summaries())[0]
        assert made.summary.startswith("The user and the assistant")
        assert 0 < len(made.key_points) < 11
        assert [point.text for point in made.key_points] == points[: len(made.key_points)]
        assert len(ollama.asked()) == 1


async def test_a_listed_extraction_is_a_stand_in_and_is_made_anew(tmp_path):
    """The model that the list begins with is missing, then it is there."""
    both = ["ollama:qwen2.5:3b", "extractive:default"]
    async with (
        FakeOllama(models=[]) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | {"summarizer.models": both}) as s,
    ):
        chat = s.chat()
        await chat.talk(14, wait_s=PATIENCE_S)
        (ended,) = await chat.passes()
        assert list(ended.models_tried) == both
        assert (await chat.state()).failures_in_row == 0
    async with (
        FakeOllama(responder=saying(record())) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | {"summarizer.models": both} | ANY_DRAFT) as s,
    ):
        await s.chat("other").talk(14, wait_s=PATIENCE_S)
        chat = s.chat()
        async with asyncio.timeout(PATIENCE_S):
            while (await chat.summaries())[0].provenance != summary_pb2.PROVENANCE_MODEL:
                await s.idle()
        assert (await chat.passes())[0].trigger == REMAKE


async def test_a_pass_that_nobody_wants_leaves_its_model(tmp_path):
    """Switching passes off ends the call on the wire, not only the pass in the log."""
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat()
        await chat.talk(14)
        await ollama.until(lambda o: bool(o.asked()))

        await chat.update(["policy.enabled"], policy={"enabled": False})

        await ollama.until(lambda o: o.working == 0)
        assert (await chat.passes())[0].error_class == conversation.ERROR_CLASS_CANCELLED


@pytest.mark.parametrize(
    "text", ["数据库迁移失败了然后我们重新开始处理订单队列" * 40, "0123456789abcdef" * 60], ids=["unspaced", "digits"]
)
async def test_an_extract_of_text_without_sentences_fits_its_room(tmp_path, text):
    """A text that cannot be shortened by leaving sentences out is cut."""
    async with sidecar(tmp_path, DEAD) as s:
        chat = s.chat()
        await chat.append(*(said(n, text, tokens=120) for n in range(1, 21)))
        await chat.append(*(said(n, tokens=800) for n in (21, 22)))

        window = await chat.context()

        assert (window.compacted, window.over_limit) == (True, False)


async def test_two_reads_of_a_full_window_leave_the_line_of_extracts_free(tmp_path):
    """The entry that one of them leaves over does not have a model asked there."""
    settings = {"summarizer.concurrent_passes": 1}
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama) | settings) as s:
        await s.chat("slow").talk(14)
        await ollama.until(lambda o: bool(o.asked()))
        for name in ("one", "two", "three"):
            full = s.chat(name, policy={"tail_token_ratio": 0.3})
            await full.talk(20)
            first, second = await asyncio.gather(full.context(), full.context())
            assert (first.over_limit, second.over_limit) == (False, False)
            await full.talk(12)

        last = s.chat("last")
        await last.talk(20)
        assert not (await last.context()).over_limit
        assert len(ollama.asked()) == 1
