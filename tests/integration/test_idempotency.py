"""Repeating a call is safe: by message ids, by request id, with an expected version, and from many writers at once."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from tests.support.answers import hanging
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refusal_of, refused
from tests.support.sidecar import on_ollama, said, sidecar

WRITERS = 32


async def test_the_same_messages_again_append_nothing(tmp_path):
    """The answer has their numbers and says that they were there."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        first = await chat.append(said(1), said(2))

        again = await chat.append(said(1), said(2))

        assert [(m.number, m.position, m.already_appended) for m in again.messages] == [(1, 0, True), (2, 0, True)]
        assert again.message_version == first.message_version == 2
        assert len(await chat.events("MessageAppended")) == 2


async def test_a_batch_that_is_partly_known_appends_the_rest(tmp_path):
    """The messages keep their order, each at its place."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1), said(3))

        answer = await chat.append(said(1), said(2), said(3), said(4))

        assert [(m.id, m.number, m.already_appended) for m in answer.messages] == [
            ("m1", 1, True),
            ("m2", 3, False),
            ("m3", 2, True),
            ("m4", 4, False),
        ]
        assert answer.message_version == 4


async def test_a_repeat_after_a_restart_is_still_known(tmp_path):
    """Idempotency is permanent: it lies in the log, not in memory."""
    async with sidecar(tmp_path) as s:
        await s.chat().append(said(1))

    async with sidecar(tmp_path) as s:
        answer = await s.chat().append(said(1), said(2))

        assert [(m.number, m.already_appended) for m in answer.messages] == [(1, True), (2, False)]


async def test_a_known_id_with_other_content_refuses_the_whole_batch(tmp_path):
    """One changed message writes nothing, and is named."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))

        async with refused("ALREADY_EXISTS", "MESSAGE_ID_REUSED") as refusal:
            await chat.append(said(2), said(1, "something else"))

        assert refusal.metadata == {"message_ids": "m1"}
        assert refusal.text == "the message id m1 was used before with other content"
        assert (await chat.state()).message_version == 1


async def test_some_of_many_ids_that_were_used_are_named(tmp_path):
    """The message stays short whatever the batch; the metadata have them all."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(*(said(n) for n in range(1, 6)))

        async with refused("ALREADY_EXISTS", "MESSAGE_ID_REUSED") as refusal:
            await chat.append(*(said(n, "something else") for n in range(1, 6)))

        assert refusal.text == "the message ids m1, m2, m3 and 2 more were used before with other content"
        assert refusal.metadata == {"message_ids": "m1,m2,m3,m4,m5"}


@pytest.mark.parametrize(
    "changed",
    [
        {"token_count": 5},
        {"name": "bob"},
        {"labels": {"a": "b"}},
        {"role": message_pb2.ROLE_SYSTEM},
        {"user_id": "u"},
    ],
)
async def test_every_field_of_a_message_counts_as_its_content(tmp_path, changed):
    """The whole message as sent is compared, not only the text."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))
        other = said(1)
        other.MergeFrom(message_pb2.Message(**changed))

        async with refused("ALREADY_EXISTS", "MESSAGE_ID_REUSED"):
            await chat.append(other)


async def test_the_same_id_may_be_used_in_another_conversation(tmp_path):
    """Message ids are unique within their conversation."""
    async with sidecar(tmp_path) as s:
        await s.chat("c1").append(said(1))

        answer = await s.chat("c2").append(said(1, "something else"))

        assert not answer.messages[0].already_appended


async def test_a_request_id_makes_messages_without_ids_repeatable(tmp_path):
    """The server's ids are the same the second time."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        nameless = [message_pb2.Message(role=message_pb2.ROLE_USER, content=f"hello {n}") for n in range(3)]
        first = await chat.append(*nameless, request_id="r1")

        again = await chat.append(*nameless, request_id="r1")

        assert [m.id for m in again.messages] == [m.id for m in first.messages]
        assert [m.number for m in again.messages] == [1, 2, 3]
        assert all(m.already_appended for m in again.messages)
        assert again.message_version == 3


async def test_equal_messages_without_ids_and_request_id_are_two_messages(tmp_path):
    """People do say the same thing twice."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        nameless = message_pb2.Message(role=message_pb2.ROLE_USER, content="yes")

        answer = await chat.append(nameless, nameless)

        assert answer.message_version == 2
        assert len({m.id for m in answer.messages}) == 2


async def test_a_request_id_with_other_content_is_refused(tmp_path):
    """Other text, another number of messages: nothing is written."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        hello, bye = (message_pb2.Message(role=message_pb2.ROLE_USER, content=text) for text in ("hello", "bye"))
        await chat.append(hello, request_id="r1")

        for other in ([bye], [hello, bye]):
            async with refused("ALREADY_EXISTS", "REQUEST_ID_REUSED"):
                await chat.append(*other, request_id="r1")

        assert (await chat.state()).message_version == 1


async def test_a_request_id_may_be_used_in_another_conversation(tmp_path):
    """The request id is a key of the conversation that it writes to."""
    async with sidecar(tmp_path) as s:
        await s.chat("c1").append(said(1), request_id="r1")

        answer = await s.chat("c2").append(said(2), request_id="r1")

        assert answer.message_version == 1


async def test_an_expected_version_counts_messages(tmp_path):
    """Passes and settings never make a client's version stale."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.talk(14, wait_s=PATIENCE_S)
        await chat.update(["title"], title="new")

        answer = await chat.append(said(15), expected_version=14)

        assert answer.message_version == 15


async def test_a_wrong_expected_version_writes_nothing_and_tells_both(tmp_path):
    """0 means that the conversation must be new."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1), expected_version=0)

        for expected in (0, 2):
            async with refused("ABORTED", "WRONG_EXPECTED_VERSION") as refusal:
                await chat.append(said(9), expected_version=expected)
            assert refusal.metadata == {"expected": str(expected), "actual": "1"}

        assert (await chat.state()).message_version == 1


async def test_a_wrong_expected_version_opens_no_conversation(tmp_path):
    """A conversation that must have messages does not begin to exist."""
    async with sidecar(tmp_path) as s:
        async with refused("ABORTED", "WRONG_EXPECTED_VERSION"):
            await s.chat().append(said(1), expected_version=3)

        async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
            await s.chat().state()


@pytest.mark.parametrize("request_id", ["", "r1"])
async def test_a_retry_after_success_is_no_version_conflict(tmp_path, request_id):
    """The server looks for known messages before the version: the client whose answer was lost gets it now."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))
        await chat.append(said(2), said(3), expected_version=1, request_id=request_id)
        await chat.append(said(4))

        again = await chat.append(said(2), said(3), expected_version=1, request_id=request_id)

        assert [(m.number, m.already_appended) for m in again.messages] == [(2, True), (3, True)]
        assert again.message_version == 4


async def test_a_partly_known_batch_with_a_stale_version_is_refused(tmp_path):
    """The call writes nothing new under an expectation that does not hold."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1), said(2))

        async with refused("ABORTED", "WRONG_EXPECTED_VERSION"):
            await chat.append(said(2), said(3), expected_version=1)


async def test_many_writers_of_one_conversation_lose_and_repeat_nothing(tmp_path):
    """Each sends everything twice; numbers and positions have no gap."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000)

        async def write(writer: int) -> list[int]:
            numbers = []
            for turn in range(4):
                message = said(writer * 100 + turn)
                answers = await asyncio.gather(chat.append(message), chat.append(message))
                assert answers[0].messages[0].number == answers[1].messages[0].number
                assert sorted(a.messages[0].already_appended for a in answers) == [False, True]
                numbers.append(answers[0].messages[0].number)
            return numbers

        numbers = await asyncio.gather(*(write(n) for n in range(1, WRITERS + 1)))

        flat = sorted(n for some in numbers for n in some)
        assert flat == list(range(1, 4 * WRITERS + 1))
        assert all(some == sorted(some) for some in numbers), "a writer's messages keep its order"
        assert [e.number for e in await chat.events("MessageAppended")] == flat


async def test_of_writers_with_one_expected_version_one_wins(tmp_path):
    """Optimistic concurrency: the others hear of it, and may decide again."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(said(1))

        outcomes = await asyncio.gather(
            *(chat.append(said(n), expected_version=1) for n in range(2, 2 + WRITERS)), return_exceptions=True
        )

        refusals = [refusal_of(o) for o in outcomes if isinstance(o, grpc.aio.AioRpcError)]
        assert len(refusals) == WRITERS - 1
        assert {r.reason for r in refusals} == {"WRONG_EXPECTED_VERSION"}
        assert (await chat.state()).message_version == 2


async def test_a_call_that_was_cancelled_is_answered_from_its_commit(tmp_path):
    """A client gone in the middle: the commit that was under way is finished, a retry finds it."""
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat()
        asked = asyncio.ensure_future(chat.talk(14, wait_s=PATIENCE_S))
        await ollama.until(lambda o: bool(o.asked()))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        chat.count = 0

        again = await chat.talk(14)

        assert all(m.already_appended for m in again.messages)
        assert again.message_version == 14


async def test_calls_that_are_cancelled_anywhere_leave_all_or_nothing(tmp_path):
    """A client may go at any moment: its retry makes the batch whole, once."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=1_000_000)
        for turn in range(40):
            batch = [said(turn * 10 + n) for n in range(1, 4)]
            asked = asyncio.ensure_future(chat.append(*batch))
            for _ in range(turn):
                await asyncio.sleep(0)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            answer = await chat.append(*batch)
            assert len({m.already_appended for m in answer.messages}) == 1
            assert answer.message_version == 3 * (turn + 1)


async def test_a_client_that_retries_with_grpcs_own_policy_is_safe(tmp_path):
    """The same bytes sent again are the same append."""
    async with sidecar(tmp_path) as s:
        request = api.AppendMessagesRequest(conversation_id="c1", messages=[said(1)], request_id="r")

        answers = [await s.conversations.AppendMessages(request) for _ in range(3)]

        assert [a.messages[0].already_appended for a in answers] == [False, True, True]
        assert {a.messages[0].number for a in answers} == {1}
