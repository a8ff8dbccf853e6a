"""Evidence of a record's statements, as clients read it: numbers that expand to messages that say so."""

from __future__ import annotations

import grpc
import pytest

from abridged.v1 import conversation_service_pb2 as api
from tests.support.answers import record, saying
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import ANY_DRAFT, Chat, on_ollama, said, sidecar

DECISION = "The parser stays pinned to 3.3.9 until the rewrite by Dana."
ANSWER = record(
    "Dana and the user settled the parser.", decisions=[DECISION, "Sell the villa."], key_points=["Opera is popular."]
)


async def expanded(chat: Chat, *numbers: int) -> list[tuple[int, str]]:
    request = api.ExpandSummaryRequest(conversation_id=chat.id, numbers=api.MessageNumbers(numbers=numbers))
    page = await chat.sidecar.conversations.ExpandSummary(request, timeout=PATIENCE_S)
    return [(m.number, m.message.content) for m in page.messages]


async def compressed(chat: Chat) -> None:
    """A chat whose fourth message says the decision."""
    texts = {4: "Then the parser stays pinned to 3.3.9 until Dana has done the rewrite."}
    await chat.append(
        *(said(n, texts.get(n, f"Thank you, turn {n}."), tokens=120) for n in range(1, 15)), wait_s=PATIENCE_S
    )


async def test_a_statement_names_messages_that_expand(tmp_path):
    """A decision has its message; a point and a decision without any are gone, and both count."""
    async with FakeOllama(responder=saying(ANSWER)) as ollama, sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT) as s:
        chat = s.chat()
        await compressed(chat)
        (made,) = await chat.summaries()
        request = api.GetSummaryRequest(conversation_id=chat.id, summary_id=made.id)
        found = (await s.conversations.GetSummary(request, timeout=PATIENCE_S)).summary

        assert [(d.text, list(d.message_numbers)) for d in found.context.decisions] == [(DECISION, [4])]
        assert not found.key_points
        assert found.quality.unsupported_statements == 2
        (message,) = await expanded(chat, 4)
        assert message[1].startswith("Then the parser stays pinned")


async def test_messages_expand_by_number_in_order_and_once(tmp_path):
    """Apart from each other, given in any order; one that was never appended is not found."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(*(said(n, f"turn {n}") for n in range(1, 9)))

        assert [number for number, _ in await expanded(chat, 7, 2, 2, 3)] == [2, 3, 7]
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await expanded(chat, 3, 99)
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_chain_keeps_the_evidence_of_what_it_repeats(tmp_path):
    """The second record repeats the decision; its evidence is the message that the first one covers."""
    async with FakeOllama(responder=saying(ANSWER)) as ollama, sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT) as s:
        chat = s.chat()
        await compressed(chat)
        await chat.append(*(said(n, f"Good, turn {n}.", tokens=120) for n in range(15, 30)), wait_s=PATIENCE_S)

        newest, *older = await chat.summaries()

        assert older
        assert newest.covered[0].first > 4
        assert [list(d.message_numbers) for d in newest.context.decisions] == [[4]]


async def test_statements_by_extraction_name_the_messages_that_they_quote(tmp_path):
    """A statement names all of them, within the record's range."""
    async with sidecar(tmp_path, {"summarizer.models": ["extractive:"]}) as s:
        chat = s.chat()
        told = {3: "We decided to pin parser 3.3.9 until the audit is over.", 5: "Who owns the retry queue on db-07?"}
        messages = [said(n, told.get(n), tokens=120) for n in range(1, 21)]
        await chat.append(*messages, wait_s=PATIENCE_S)

        (made,) = await chat.summaries()

        covered = {n for r in made.covered for n in range(r.first, r.last + 1)}
        context = made.context
        named = [list(s.message_numbers) for s in (*made.key_points, *context.decisions, *context.unresolved)]
        assert named
        assert all(named)
        assert covered.issuperset(number for numbers in named for number in numbers)
        assert made.quality.unsupported_statements == 0


async def test_a_rewind_takes_statements_with_their_messages(tmp_path):
    """A record whose messages are removed is out of use, and the numbers that it names are removed messages."""
    async with FakeOllama(responder=saying(ANSWER)) as ollama, sidecar(tmp_path, on_ollama(ollama) | ANY_DRAFT) as s:
        chat = s.chat()
        await compressed(chat)
        (made,) = await chat.summaries()

        rewind = api.RewindConversationRequest(conversation_id=chat.id, to_version=3)
        await s.conversations.RewindConversation(rewind, timeout=PATIENCE_S)

        request = api.GetSummaryRequest(conversation_id=chat.id, summary_id=made.id)
        found = await s.conversations.GetSummary(request, timeout=PATIENCE_S)
        assert (found.live, found.revoked) == (False, True)
        with pytest.raises(grpc.aio.AioRpcError):
            await expanded(chat, 4)
