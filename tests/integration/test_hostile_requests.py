"""Requests that were made to cost more than they weigh: each is refused with a reason, and the sidecar stays well."""

from __future__ import annotations

import asyncio
import gc
import io
import weakref
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from abridged.observability.logs import LogSettings, configure_logs
from abridged.service.api.intake import READING_MAX
from abridged.service.api.wire import MASK_PATHS_MAX
from abridged.service.domain.errors import ConversationNotFound
from abridged.v1 import conversation_service_pb2 as api
from tests.support.edge_server import Silent, edge_server
from tests.support.flood import APPEND, ATTACKS
from tests.support.patience import PATIENCE_S
from tests.support.refusal import Refusal, refusal_of, refused
from tests.support.sidecar import said, sidecar

TOKENS = {
    "server.tokens": [{"token": name, "namespace": name, "scopes": ["append", "read"]} for name in ("alpha", "beta")]
}
ALPHA, BETA = ([("authorization", f"Bearer {name}")] for name in ("alpha", "beta"))

ANSWERS = {"health": "NOT_FOUND", "no credential": "UNAUTHENTICATED", "gzip": "UNIMPLEMENTED", "breaks no rule": "OK"}
"""The status of an attack, by the first of these that is in its name; INVALID_ARGUMENT elsewhere."""


async def silent(never: asyncio.Event) -> AsyncIterator[bytes]:
    """A request that does not come."""
    await never.wait()
    yield b""


@pytest.mark.parametrize("name", ATTACKS)
async def test_each_attack_is_refused_with_a_reason(tmp_path, name):
    """The sidecar serves the next call."""
    attack = ATTACKS[name]
    async with sidecar(tmp_path, TOKENS | {"policy.enabled": False}, metadata=ALPHA) as s:
        send: Any = s.channel.unary_unary(attack.method)
        compression = grpc.Compression.Gzip if attack.is_compressed else None
        call = send(
            attack.request,
            metadata=ALPHA if attack.has_credential else [],
            compression=compression,
            timeout=PATIENCE_S,
        )
        refusal = Refusal("OK", "none is needed")
        try:
            await call
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)

        assert refusal.code == next((answer for part, answer in ANSWERS.items() if part in name), "INVALID_ARGUMENT")
        assert refusal.reason or "health" in name
        assert (await s.chat().append(said(1))).message_version == 1


async def test_the_request_of_a_caller_without_a_credential_is_never_read(tmp_path):
    """The answer comes before the request does, and does not depend on its size."""
    never = asyncio.Event()
    async with sidecar(tmp_path, TOKENS) as s:
        async with refused("UNAUTHENTICATED", "UNAUTHENTICATED"):
            calling: Any = s.channel.stream_unary(APPEND)
            await calling(silent(never), timeout=PATIENCE_S)
        async with refused("UNAUTHENTICATED", "UNAUTHENTICATED"):
            sending: Any = s.channel.unary_unary(APPEND)
            await sending(bytes(20 << 20), timeout=PATIENCE_S)


async def test_a_call_takes_one_request_and_no_other(tmp_path):
    """A call that ends without any is refused; bytes after the first are never read."""
    request = api.AppendMessagesRequest(conversation_id="c1", messages=[said(1)]).SerializeToString()
    async with sidecar(tmp_path) as s:
        calling: Any = s.channel.stream_unary(APPEND, response_deserializer=api.AppendMessagesResponse.FromString)
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await calling(iter(()), timeout=PATIENCE_S)

        assert refusal.text == "no request came"
        assert (await calling(iter((request, b"no request")), timeout=PATIENCE_S)).message_version == 1


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_compressed_request_is_refused_however_small_it_would_become(tmp_path, compression):
    """The request could become anything; the answer says to send it as it is."""
    async with sidecar(tmp_path) as s:
        async with refused("UNIMPLEMENTED", "NOT_IMPLEMENTED") as refusal:
            await s.conversations.AppendMessages(
                api.AppendMessagesRequest(conversation_id="c1", messages=[said(1, "x" * 500)]),
                compression=compression,
                timeout=PATIENCE_S,
            )

        assert "compressed" in refusal.text


async def test_requests_that_do_not_come_keep_no_other_namespace_out(tmp_path):
    """Nor their own one, when they are gone."""
    never = asyncio.Event()
    async with sidecar(tmp_path, TOKENS, metadata=BETA) as s:
        calling: Any = s.channel.stream_unary(APPEND)
        waiting = [calling(silent(never), metadata=ALPHA, timeout=PATIENCE_S) for _ in range(2 * READING_MAX)]

        assert (await s.chat().append(said(1))).message_version == 1
        for call in waiting:
            call.cancel()
        s.metadata = ALPHA
        assert (await s.chat().append(said(1))).message_version == 1


async def test_a_batch_over_its_limit_is_told_the_limit_and_a_far_larger_request_is_not_parsed(tmp_path):
    """The second is refused by its bytes alone: a request may have twice the largest append."""
    async with sidecar(tmp_path, {"server.batch_bytes_max": 100_000, "server.message_bytes_max": 100_000}) as s:
        for count, limit in ((3, "100000"), (4, "200000")):
            async with refused("INVALID_ARGUMENT", "TOO_LARGE") as refusal:
                await s.chat().append(*(said(n, "x" * 60_000) for n in range(count)))
            assert refusal.metadata["limit"] == limit


async def test_a_mask_names_no_more_fields_than_there_could_be(tmp_path):
    """Each costs a copy of the field that it names."""
    async with sidecar(tmp_path) as s:
        await s.chat().append(said(1))

        await s.chat().update(["labels"] * MASK_PATHS_MAX)
        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await s.chat().update(["labels"] * (MASK_PATHS_MAX + 1))
        assert list(refusal.fields) == ["update_mask"]


# ---- what a refused call had in hand


class _Held:
    """Something large that a handler works with."""


class _Handlers(Silent):
    """Methods that end in an error while a local of theirs holds something."""

    def __init__(self) -> None:
        self.held: list[weakref.ref[_Held]] = []

    def _hold(self) -> _Held:
        held = _Held()
        self.held.append(weakref.ref(held))
        return held

    async def GetConversation(self, request: Any, context: Any) -> Any:
        held = self._hold()
        raise ConversationNotFound(str(id(held)))

    async def GetSummary(self, request: Any, context: Any) -> Any:
        held = self._hold()
        await context.abort(grpc.StatusCode.NOT_FOUND, f"by itself, with {id(held)}")

    async def ListSummaries(self, request: Any, context: Any) -> Any:
        raise MemoryError

    async def WatchConversation(self, request: Any, context: Any) -> Any:
        held = self._hold()
        yield api.WatchConversationResponse()
        raise ConversationNotFound(str(id(held)))


async def test_what_a_refused_call_had_in_hand_is_let_go_at_once():
    """A hundred refused requests of a megabyte would otherwise stay until the garbage collector comes by."""
    handlers = _Handlers()
    gc.disable()
    try:
        async with edge_server(handlers) as stub:
            async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
                await stub.GetConversation(api.GetConversationRequest(conversation_id="c1"))
            with pytest.raises(grpc.aio.AioRpcError, match="by itself"):
                await stub.GetSummary(api.GetSummaryRequest(conversation_id="c1", summary_id="s"))
            async with refused("NOT_FOUND", "CONVERSATION_NOT_FOUND"):
                async for _ in stub.WatchConversation(api.WatchConversationRequest(conversation_id="c1")):
                    pass

        assert [held() for held in handlers.held] == [None] * 3
    finally:
        gc.enable()


async def test_a_server_out_of_memory_asks_for_a_retry():
    """The caller did nothing wrong, and the operator hears of it."""
    lines = io.StringIO()
    undo = configure_logs(LogSettings(level="debug", style="json"), lines)
    try:
        async with edge_server(_Handlers()) as stub, refused("RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS") as refusal:
            await stub.ListSummaries(api.ListSummariesRequest(conversation_id="c1"))
    finally:
        undo()

    assert refusal.retry_s
    assert "memory" in refusal.text
    assert "MemoryError" in lines.getvalue()
