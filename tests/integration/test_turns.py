"""No request that the limits admit holds the event loop: the work in one turn of it stays bounded."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from abridged.service.api import wire
from abridged.v1 import conversation_pb2, message_pb2
from abridged.v1 import conversation_service_pb2 as api
from tests.support.below_grpc import BelowGrpc, below_grpc
from tests.support.sidecar import said
from tests.support.turns import leaves_the_loop

UNLIMITED = 100_000_000
ASSISTANT, USER = message_pb2.ROLE_ASSISTANT, message_pb2.ROLE_USER
DATA = "data:image/png;base64,iVBORw0KGgo="
MIXED = 'The importer reads orders; 数据库 in db-07.example.com, naïve café 😀 {"a": 1} https://x.y/z '


def many_calls() -> list[message_pb2.Message]:
    calls = [message_pb2.ToolCall(id=f"c{n}", name="search", arguments='{"q": "orders"}') for n in range(128)]
    return [message_pb2.Message(id=f"m{n}", role=ASSISTANT, content="x", tool_calls=calls) for n in range(120)]


def many_attachments() -> list[message_pb2.Message]:
    attachments = [message_pb2.Attachment(uri=DATA, media_type="image/png") for _ in range(60)]
    return [message_pb2.Message(id=f"m{n}", role=USER, content="x", attachments=attachments) for n in range(240)]


def mixed_texts() -> list[message_pb2.Message]:
    return [message_pb2.Message(id=f"m{n}", role=USER, content=(MIXED * 30)[:1_700]) for n in range(512)]


def many_labels() -> list[message_pb2.Message]:
    labels = {f"label-{n}": "x" for n in range(16)}
    return [message_pb2.Message(id=f"m{n}", role=USER, content="x", labels=labels) for n in range(512)]


def turns_of_talk(first: int, count: int) -> list[message_pb2.Message]:
    return [
        message_pb2.Message(
            id=f"m{n}", role=USER if n % 2 else ASSISTANT, content=f"Turn {n}: the importer reads orders."
        )
        for n in range(first, first + count)
    ]


def appending(messages: list[message_pb2.Message], conversation_id: str = "c1") -> api.AppendMessagesRequest:
    settings = conversation_pb2.ConversationSettings(context_length=UNLIMITED)
    return api.AppendMessagesRequest(conversation_id=conversation_id, messages=messages, settings=settings)


def read_at_once() -> None:
    """Read all of the largest append, some 50 to 100 ms, which a turn must never hold."""
    wire.messages_of(
        appending(many_calls()), new_id=str, message_bytes_max=1 << 20, batch_messages_max=512, batch_bytes_max=1 << 20
    )


async def asked_for(s: BelowGrpc, request: api.GetContextRequest, _number: int) -> None:
    await s.conversations.GetContext(request)


async def is_light(work: Callable[[int], Awaitable[object]]) -> bool:
    return await leaves_the_loop(work, too_much=read_at_once)


@asynccontextmanager
async def sidecar(folder: Path) -> AsyncIterator[BelowGrpc]:
    settings = {"summarizer.models": ["extractive:"]}
    async with below_grpc(folder, settings, now_us=lambda: time.time_ns() // 1_000) as s:
        yield s


@pytest.mark.parametrize("material", [many_calls, many_attachments, mixed_texts, many_labels])
async def test_the_largest_appends_leave_the_loop_to_others(tmp_path, material):
    """The appends are new, or repeated, or new in one message."""
    async with sidecar(tmp_path) as s:
        messages = material()
        append = s.conversations.AppendMessages

        assert await is_light(lambda number: append(appending(messages, f"c{number}")))
        assert await is_light(lambda _: append(appending(messages, "c0")))
        assert await is_light(lambda number: append(appending([*messages[:-1], said(1_000 + number)], "c0")))


@pytest.mark.parametrize("material", [many_calls, many_attachments, mixed_texts, many_labels])
@pytest.mark.parametrize("rendering", [0, api.RENDERING_OPENAI, api.RENDERING_ANTHROPIC, api.RENDERING_OLLAMA])
async def test_their_windows_leave_the_loop_to_others(tmp_path, material, rendering):
    """The windows come in every form, sent for the first time and again."""
    async with sidecar(tmp_path) as s:
        messages = material()
        for number in range(2):
            await s.conversations.AppendMessages(appending(messages, f"c{number}"))
        sent: list[int] = []

        async def ask(number: int) -> None:
            request = api.GetContextRequest(conversation_id=f"c{min(number, 1)}", rendering=rendering)
            sent.append(len((await s.conversations.GetContext(request)).messages))

        assert await is_light(ask)
        assert await is_light(lambda _: ask(0))
        assert set(sent) == {len(messages)}


async def test_a_window_of_thousands_of_messages_leaves_the_loop_to_others(tmp_path):
    """Sent, clipped, counted anew, shown, and put under a smaller budget, after which a pass is planned."""
    async with sidecar(tmp_path) as s:
        for first in range(1, 6_145, 512):
            await s.conversations.AppendMessages(appending(turns_of_talk(first, 512)))
        named: dict[str, Any] = {"conversation_id": "c1"}
        for options in (
            {},
            {"max_tokens": UNLIMITED},
            {"max_tokens": UNLIMITED, "clip": True},
            {"view": api.CONTEXT_VIEW_ORIGINAL},
        ):
            asked = api.GetContextRequest(**named, **options)
            assert await is_light(partial(asked_for, s, asked))
        assert await is_light(
            lambda number: s.conversations.ReportUsage(
                api.ReportUsageRequest(**named, message_version=6_144 - number, prompt_tokens=200_000)
            )
        )
        assert await is_light(
            lambda number: s.conversations.UpdateConversation(
                api.UpdateConversationRequest(
                    **named,
                    settings=conversation_pb2.ConversationSettings(context_length=100_000 + number),
                    update_mask=FieldMask(paths=["context_length"]),
                )
            )
        )
        assert await is_light(lambda _: s.conversations.GetConversation(api.GetConversationRequest(**named)))


async def test_work_in_one_turn_is_seen():
    """The control: a read of the largest append on the loop is found out."""

    async def work(_number: int) -> None:
        read_at_once()

    assert not await is_light(work)
