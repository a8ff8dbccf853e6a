"""The plan's tests of its summarizer service and its drift test, item by item, over the whole path.

The plan numbers its list "unit (service) 1 to 5" and "drift 1"; the tests are named for the items.
"""

from __future__ import annotations

import pytest

from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2, summary_pb2
from tests.support.answers import record, saying
from tests.support.ollama_behaviour import BEHAVIOURS
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.presets import preset
from tests.support.refusal import refused
from tests.support.sidecar import Chat, Sidecar, on_ollama, said, sidecar

TECHNICAL = (
    "The importer in src/import/orders.py raises OrderParseError for orders_2024.csv since version 3.4.1.",
    "We decided to pin parser 3.3.9 until 2026-03-14 and to open ticket OPS-4411 for the fix.",
    "Who owns the retry queue on db-07.example.com?",
    "Dana will rewrite parse_header() by Friday; the budget is 1200 EUR.",
)


async def technical_chat(s: Sidecar, turns: int = 20) -> Chat:
    """A thread of technical and decision content that crosses its trigger in one batch."""
    chat = s.chat()
    await chat.append(
        *(said(n, f"{TECHNICAL[n % 4]} Turn {n}.", tokens=120) for n in range(1, turns + 1)), wait_s=PATIENCE_S
    )
    return chat


@pytest.mark.parametrize("model", ["scripted:default", "extractive:"])
async def test_s1_unit_1_mixed_technical_and_decision_content_makes_a_valid_record(tmp_path, model):
    """Produces valid schema for mixed technical and decision content."""
    async with sidecar(tmp_path, {"summarizer.models": [model]}) as s:
        chat = await technical_chat(s)

        (made,) = await chat.summaries()

        assert made.summary.strip()
        assert len(made.key_points) <= 30
        assert {"src/import/orders.py", "OPS-4411"} & set(made.context.domain_entities) or "OPS-4411" in str(made)
        assert all(len(text) <= 1_000 for text in (s.text for s in (*made.key_points, *made.context.decisions)))
        assert made.covered_message_count > 0
        assert (made.depth, made.parent_id) == (0, "")


async def test_s1_unit_1_a_models_structured_facets_are_kept_beside_those_that_code_finds(tmp_path):
    """Decisions, action items, open questions and entities come through the wire into the record. A decision that only
    repeats a message stands there in the message's words.
    """
    answer = record(
        "The importer failed on orders_2024.csv and the parser was pinned.",
        key_points=["OrderParseError since version 3.4.1"],
        participants=["Dana"],
        decisions=["Pin parser 3.3.9 until 2026-03-14"],
        action_items=[{"task": "Rewrite parse_header()", "owner": "Dana", "due": "Friday"}],
        unresolved=["Who owns the retry queue on db-07.example.com?"],
        domain_entities=["src/import/orders.py", "OPS-4411"],
    )
    async with FakeOllama(responder=saying(answer)) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = await technical_chat(s)

        (made,) = await chat.summaries()

        context = made.context
        (decision,) = context.decisions
        assert "pin parser 3.3.9 until 2026-03-14" in decision.text
        (item,) = context.action_items
        assert ("rewrite parse_header()" in item.task, item.owner, item.due) == (True, "Dana", "Friday")
        assert any("Who owns the retry queue on db-07.example.com?" in point.text for point in context.unresolved)
        assert "Dana" in context.participants
        assert {"src/import/orders.py", "OPS-4411"} <= {*context.domain_entities}
        assert all(s.message_numbers for s in (*context.decisions, *context.action_items, *context.unresolved))
        assert made.provenance == summary_pb2.PROVENANCE_MODEL
        assert made.model == "ollama:qwen2.5:3b"


async def test_s1_unit_2_empty_arrays_are_fine_when_there_were_no_decisions(tmp_path):
    """Handles empty arrays gracefully when no decisions."""
    async with FakeOllama(responder=saying(record())) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat()
        done = (await chat.talk(14, wait_s=PATIENCE_S)).summarization

        (made,) = await chat.summaries()

        assert done.state == conversation.SUMMARIZATION_STATE_COMPLETED
        context = made.context
        assert not (context.decisions or context.action_items or context.unresolved or made.key_points)
        text = (await chat.context()).messages[0].message.content
        assert "Decisions" not in text


async def test_s1_unit_3_a_transport_failure_is_retried_once_and_then_fails_safe(tmp_path):
    """Transport failure: retry once, then fail safe."""
    async with FakeOllama(behaviour=BEHAVIOURS["busy"]) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat()
        done = (await chat.talk(14, wait_s=PATIENCE_S)).summarization

        assert len(ollama.asked()) == done.attempts == 2
        assert (done.error_class, done.retryable) == (conversation.ERROR_CLASS_TRANSPORT, True)
        assert [m.message.id for m in (await chat.context()).messages] == [f"m{n}" for n in range(1, 15)]
        assert await chat.summaries() == []


async def test_s1_unit_3_a_transport_failure_that_passes_leaves_a_record(tmp_path):
    """The one retry is worth something."""
    async with (
        FakeOllama(behaviour=BEHAVIOURS["busy-once"], responder=saying(record())) as ollama,
        sidecar(tmp_path, on_ollama(ollama)) as s,
    ):
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization

        assert (done.state, done.attempts) == (conversation.SUMMARIZATION_STATE_COMPLETED, 2)


async def test_s1_unit_4_malformed_json_fails_the_pass_without_another_call(tmp_path):
    """Validation failure (malformed JSON): not ok, and with repair_attempts 0 not retried, as the plan has it."""
    async with FakeOllama(responder=saying('{"summary": "cut')) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat(policy={"repair_attempts": 0})
        done = (await chat.talk(14, wait_s=PATIENCE_S)).summarization

        assert len(ollama.asked()) == done.attempts == 1
        assert (done.state, done.error_class) == (
            conversation.SUMMARIZATION_STATE_FAILED,
            conversation.ERROR_CLASS_INVALID,
        )
        assert not done.retryable
        (event,) = await chat.events("SummarizationFailed")
        assert event.output_bytes == len('{"summary": "cut')
        assert len(event.output_hash) == 16


async def test_s1_unit_4_one_informed_repair_is_our_default(tmp_path):
    """The reasons go back to the model once, with another seed."""
    async with FakeOllama(responder=saying("not JSON", record())) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        done = (await s.chat().talk(14, wait_s=PATIENCE_S)).summarization

        assert (done.state, done.attempts) == (conversation.SUMMARIZATION_STATE_COMPLETED, 2)
        first, second = ollama.asked()
        assert first["options"]["seed"] != second["options"]["seed"]
        assert "was not accepted" in second["messages"][-1]["content"]
        assert "was not accepted" not in first["messages"][-1]["content"]


async def test_s1_unit_5_each_record_has_the_next_depth_and_its_parents_id(tmp_path):
    """Depth increment logic increments parentId and depth."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        for _ in range(3):
            await chat.talk(14, wait_s=PATIENCE_S)

        newest_first = await chat.summaries()

        chain = list(reversed(newest_first))[:3]
        assert [r.depth for r in chain] == [0, 1, 2]
        assert [r.parent_id for r in chain] == ["", chain[0].id, chain[1].id]
        assert [r.covered[0].first for r in chain[1:]] == [r.covered[-1].last + 1 for r in chain[:2]]


@pytest.mark.parametrize("model", ["scripted:default", "extractive:"])
async def test_s1_drift_1_an_early_technical_term_is_there_after_the_second_summarization(tmp_path, model):
    """Summarize, add messages that refer to an early technical term: it is still present after the second pass."""
    term = "reconcile_ledger.rs"
    async with sidecar(tmp_path, {"summarizer.models": [model]}) as s:
        chat = s.chat()
        await chat.append(
            said(1, f"The bug sits in {term}, where the totals of account 4711 are added twice.", tokens=120),
            *(said(n, f"We looked at table batch_{n} and found nothing new.", tokens=120) for n in range(2, 15)),
            wait_s=PATIENCE_S,
        )
        first = (await chat.context()).messages[0]
        assert first.tag == "summary-depth:0"
        assert term in first.message.content

        await chat.append(
            *(
                said(n, f"Looking at {term} again: batch_{n} goes through it too.", tokens=120)
                if n == 15
                else said(n, f"Table batch_{n} was read without a finding.", tokens=120)
                for n in range(15, 29)
            ),
            wait_s=PATIENCE_S,
        )

        window = await chat.context()
        assert window.messages[0].tag == f"summary-depth:{window.depth}"
        assert window.depth >= 1
        assert term in window.messages[0].message.content
        assert all(m.message.role != message_pb2.ROLE_SYSTEM for m in window.messages[1:])


async def test_thanks_are_covered_and_not_in_the_prompt(tmp_path):
    """Mechanical messages cost a model nothing, and leave the window with the rest; one that may be consent is read."""
    async with FakeOllama() as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat(policy={"min_range_tokens": 1})
        await chat.append(
            *(said(n, tokens=50) for n in range(1, 4)),
            said(4, "The import is done, as you asked.", tokens=50),
            said(5, "Thank you very much!", tokens=50),
            said(6, "Shall I delete the old table?", tokens=50),
            said(7, "Many thanks!", tokens=50),
            *(said(n, tokens=50) for n in range(8, 16)),
        )

        await chat.summarize()
        record = (await chat.summaries())[0]

        prompts = "".join(m["content"] for asked in ollama.asked() for m in asked["messages"])
        assert "The import is done" in prompts
        assert "Thank you very much" not in prompts
        assert "Many thanks" in prompts
        assert any(r.first <= 5 <= r.last for r in record.covered)


async def test_s1_preserve_recent_6_messages_are_kept_whatever_their_tokens(tmp_path):
    """The preset bounds the tail by messages alone; half of the window does not."""
    async with sidecar(tmp_path, preset("s1", "policy")) as s:
        chat = s.chat(context_length=8_192)
        turns = [said(n, tokens=70 if n <= 34 else 700) for n in range(1, 41)]
        await chat.append(*turns, wait_s=PATIENCE_S)
        await s.idle()
        (made,) = await chat.summaries()

        assert [(r.first, r.last) for r in made.covered] == [(1, 34)]
        assert [m.number for m in (await chat.context()).messages if not m.tag] == [*range(35, 41)]


@pytest.mark.parametrize("aborts", [False, True])
async def test_s1_abort_on_failure_is_a_setting_too(tmp_path, aborts):
    """The operator's setting serves a caller that asks for it in no call; off, the original messages are served."""
    settings = preset("s1", "policy") | {"policy.abort_on_failure": aborts}
    async with FakeOllama(responder=saying("not JSON")) as ollama, sidecar(tmp_path, settings | on_ollama(ollama)) as s:
        chat = s.chat()
        await chat.talk(14)
        if aborts:
            async with refused("FAILED_PRECONDITION", "SUMMARIZATION_FAILED"):
                await chat.context(wait_s=PATIENCE_S)
        else:
            assert len((await chat.context(wait_s=PATIENCE_S)).messages) == 14


async def test_s1_original_message_ids_come_in_one_call(tmp_path):
    """The call returns those of a record and of all that it covers, and none unless it asks."""
    async with sidecar(tmp_path, preset("s1", "policy")) as s:
        chat = await technical_chat(s, turns=512)
        await s.idle()
        newest = (await chat.summaries())[0]
        asked = api.GetSummaryRequest(conversation_id=chat.id, summary_id=newest.id, with_message_ids=True)
        told = await s.conversations.GetSummary(asked)
        asked.with_message_ids = False

        covered = [f"m{n}" for r in newest.covered for n in range(r.first, r.last + 1)]
        assert len(covered) > 500
        assert (list(told.message_ids), told.more_message_ids) == (covered, False)
        assert not (await s.conversations.GetSummary(asked)).message_ids
