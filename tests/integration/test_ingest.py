"""IngestMessages over a real channel: a stream of appends, each with its own result, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc

from abridged.client import AsyncConversations, SidecarError
from abridged.v1 import conversation_pb2
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1.message_pb2 import ROLE_USER, Message
from tests.integration.test_pass_metrics import counted
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import Sidecar, said, sidecar

GRANTS = [
    {"token": "full", "namespace": "one"},
    {"token": "reader", "namespace": "one", "scopes": ["read"]},
]


def item(name: str, *numbers: int, **fields: Any) -> api.IngestMessagesRequest:
    """An append of messages with these numbers."""
    append = api.AppendMessagesRequest(conversation_id=name, messages=[said(n) for n in numbers], **fields)
    return api.IngestMessagesRequest(append=append)


async def results(s: Sidecar, items: Iterable[api.IngestMessagesRequest]) -> list[Any]:
    """Return the results of a stream of these."""
    call = s.conversations.IngestMessages(iter(items), metadata=s.metadata, timeout=PATIENCE_S)
    return [result async for result in call]


def ids(result: Any) -> list[str]:
    """The messages of a result."""
    return [m.id for m in result.appended.messages]


async def test_each_append_has_its_result_in_the_order_of_the_stream(tmp_path):
    """Large and small ones, to several conversations, whose messages keep their order too."""
    async with sidecar(tmp_path, {"server.ingest_window": 8}) as s:
        items = []
        for number in range(1, 61):
            content = "a long line of a log; " * (8_000 if number % 7 == 0 else 1)
            append = api.AppendMessagesRequest(
                conversation_id=f"c{number % 3}",
                messages=[said(number, content)],
                settings=conversation_pb2.ConversationSettings(context_length=1_000_000),
            )
            items.append(api.IngestMessagesRequest(append=append))

        found = await results(s, items)

        assert [ids(result) for result in found] == [[f"m{number}"] for number in range(1, 61)]
        for place in range(3):
            kept = (await s.chat(f"c{place}").context()).messages
            assert [m.message.id for m in kept] == [f"m{n}" for n in range(1, 61) if n % 3 == place]


async def test_an_append_that_is_refused_leaves_the_stream_and_the_others_as_they_are(tmp_path):
    """The refusal may be by rules, size, version or id: each status is in its place, with the unary call's reason."""
    async with sidecar(tmp_path) as s:
        large = api.AppendMessagesRequest(conversation_id="c1", messages=[said(9, "x" * 300_000)])
        reused = api.AppendMessagesRequest(conversation_id="c1", messages=[said(1, "something else")])
        found = await results(
            s,
            [
                item("c1", 1),
                item("no/id", 2),
                api.IngestMessagesRequest(),
                api.IngestMessagesRequest(append=large),
                item("c1", 3, expected_version=7),
                api.IngestMessagesRequest(append=reused),
                item("c1", 4, context=api.ContextOptions()),
                item("c1", 5),
            ],
        )

        assert [result.refusal.code for result in found] == [0, 3, 3, 3, 10, 6, 3, 0]
        assert [m.number for result in (found[0], found[-1]) for m in result.appended.messages] == [1, 2]


async def test_a_message_larger_than_any_request_has_its_status_too(tmp_path):
    """The stream reads and drops it, and serves the next one."""
    async with sidecar(tmp_path) as s:
        append = api.AppendMessagesRequest(conversation_id="c1", messages=[said(1, "x" * (3 << 20))])
        found = await results(s, [api.IngestMessagesRequest(append=append), item("c1", 2)])

        assert [result.WhichOneof("result") for result in found] == ["refusal", "appended"]


async def test_a_stream_needs_the_credential_of_an_append(tmp_path):
    """Once, for all of it."""
    async with sidecar(tmp_path, {"server.tokens": GRANTS}) as s:
        for token, code, reason in (
            ("reader", "PERMISSION_DENIED", "PERMISSION_DENIED"),
            ("nobody", "UNAUTHENTICATED", "UNAUTHENTICATED"),
        ):
            s.metadata = [("authorization", f"Bearer {token}")]
            async with refused(code, reason):
                await results(s, [item("c1", 1)])
        s.metadata = [("authorization", "Bearer full")]

        assert ids((await results(s, [item("c1", 1)]))[0]) == ["m1"]


async def test_each_append_of_a_stream_is_counted_by_its_status(tmp_path):
    """The call is counted once, as OK, however many of its appends are refused."""
    async with sidecar(tmp_path) as s:
        found = await results(
            s, [item("c1", 1), item("c1", 2), item("not an id", 3), item("c1", 4, expected_version=9)]
        )

        assert [result.WhichOneof("result") for result in found] == ["appended", "appended", "refusal", "refusal"]
        counts = await counted(s, "abridged_ingested_appends", "code")
        assert counts == {("OK",): 2, ("INVALID_ARGUMENT",): 1, ("ABORTED",): 1}


async def test_what_a_cancelled_stream_has_appended_is_known_when_it_is_sent_again(tmp_path):
    """The second stream ends with every message once, whatever became of the first."""
    async with sidecar(tmp_path) as s:
        items = [item("c1", number) for number in range(1, 41)]
        call = s.conversations.IngestMessages(timeout=PATIENCE_S)
        for one in items[:20]:
            await call.write(one)
        first = [await call.read() for _ in range(5)]
        call.cancel()

        again = await results(s, items)

        assert [ids(result) for result in first] == [[f"m{n}"] for n in range(1, 6)]
        assert all(result.appended.messages[0].already_appended for result in again[:5])
        assert [result.appended.messages[0].number for result in again] == list(range(1, 41))


async def test_a_stop_gives_what_was_read_its_result_and_then_ends_the_stream(tmp_path):
    """UNAVAILABLE, with a reason that says to come back."""
    async with sidecar(tmp_path, {"server.shutdown_grace_s": PATIENCE_S}) as s:
        call = s.conversations.IngestMessages(timeout=PATIENCE_S)
        for number in range(1, 11):
            await call.write(item("c1", number))
        found = [await call.read()]
        stopping = asyncio.ensure_future(s.stop())
        async with refused("UNAVAILABLE", "SERVER_STOPPING"):
            await read_to_the_end(call, found)
        await stopping

        assert [ids(result) for result in found] == [[f"m{n}"] for n in range(1, len(found) + 1)]
    async with sidecar(tmp_path) as s:
        assert (await s.chat().state()).message_version == len(found)


async def read_to_the_end(call: Any, found: list[Any]) -> None:
    """Add every result; raises the error in which the stream ends."""
    async with asyncio.timeout(PATIENCE_S):
        while (result := await call.read()) is not grpc.aio.EOF:
            found.append(result)
        await call.initial_metadata()
        if (code := await call.code()) is not grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(code, await call.initial_metadata(), await call.trailing_metadata())


async def test_the_client_ingests_and_hands_over_refusals_as_errors(tmp_path):
    """One batch after another, from an iterator."""

    async def batches() -> AsyncIterator[tuple[str, list[Message]]]:
        for number, name in enumerate(("a", "no/id", "b"), 1):
            yield name, [Message(id=f"m{number}", role=ROLE_USER, content=f"Turn {number}.")]

    async with sidecar(tmp_path) as s, AsyncConversations(s.running.grpc_addresses[0]) as client:
        found = [result async for result in client.ingest(batches())]

        good, bad, other = found
        assert isinstance(bad, SidecarError)
        assert (bad.code, bad.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
        assert not isinstance(good, SidecarError)
        assert not isinstance(other, SidecarError)
        assert [good.messages[0].id, other.messages[0].id] == ["m1", "m3"]


async def test_a_closed_conversation_refuses_its_appends_alone(tmp_path):
    """Appends to other conversations of the same stream go on."""
    async with sidecar(tmp_path) as s:
        await s.chat("a").append(said(1))
        await s.conversations.CloseConversation(api.CloseConversationRequest(conversation_id="a"))

        found = await results(s, [item("a", 2), item("b", 1)])

        assert [result.WhichOneof("result") for result in found] == ["refusal", "appended"]
        assert found[0].refusal.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
