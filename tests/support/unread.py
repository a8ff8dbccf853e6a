"""A client that asks and takes nothing: to the server, an answer that stays on its way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from tests.support.sidecar import Chat, Sidecar

UNREAD_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.http2.bdp_probe", 0),  # the window stays at its 64 KiB
    ("grpc.max_receive_message_length", -1),
)


@asynccontextmanager
async def unread_channel(sidecar: Sidecar) -> AsyncIterator[grpc.aio.Channel]:
    """A connection whose client never lets the server send ahead: 64 KiB for all its calls together."""
    async with grpc.aio.insecure_channel(sidecar.running.grpc_addresses[0], options=UNREAD_OPTIONS) as channel:
        yield channel


def unread_append(channel: grpc.aio.Channel, chat: Chat, message: message_pb2.Message) -> Any:
    """AppendMessages with its window, called like `unread_answer`."""
    method: Any = channel.unary_stream("/abridged.v1.ConversationService/AppendMessages")
    request = api.AppendMessagesRequest(conversation_id=chat.id, messages=[message], context=api.ContextOptions())
    return method(request.SerializeToString(), metadata=chat.sidecar.metadata)


def unread_answer(channel: grpc.aio.Channel, chat: Chat, **options: Any) -> Any:
    """GetContext, called so that gRPC does not take the answer by itself: `read` would, and nobody reads."""
    method: Any = channel.unary_stream("/abridged.v1.ConversationService/GetContext")
    request = api.GetContextRequest(conversation_id=chat.id, **options)
    return method(request.SerializeToString(), metadata=chat.sidecar.metadata)
