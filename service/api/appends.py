"""The RPCs that append: one batch, or a stream of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from google.rpc.status_pb2 import Status

from abridged.service.api import wire
from abridged.service.api.auth import current_caller
from abridged.service.api.contexts import ContextCalls
from abridged.service.api.errors import InvalidRequest
from abridged.service.api.items import Items, in_order
from abridged.service.api.validation import ALL_LISTED_FIELDS_MAX, Validation
from abridged.service.api.views import key_of, pass_named
from abridged.service.codec.values import system_prompt_from_proto
from abridged.service.conversations.append_request import AppendRequest
from abridged.service.conversations.chat_models import ChatModels
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.events import SystemPrompt
from abridged.service.domain.message import Message
from abridged.service.turn import run_off_loop
from abridged.v1 import conversation_pb2, conversation_service_pb2

_pb = conversation_service_pb2
_NOTHING_ASKED = wire.requested(conversation_pb2.ConversationSettings())


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one append, and of the appends of a stream that are under way."""

    message_bytes_max: int
    batch_messages_max: int
    batch_bytes_max: int
    ingest_window: int


class AppendCalls:
    """See the contract. `stopping` ends the streams. A response with a window is serialized already."""

    def __init__(
        self,
        conversations: Conversations,
        models: ChatModels,
        contexts: ContextCalls,
        limits: RequestLimits,
        validation: Validation,
        *,
        new_id: Callable[[], str],
        stopping: asyncio.Event,
    ) -> None:
        self._conversations = conversations
        self._models = models
        self._contexts = contexts
        self._limits = limits
        self._validation = validation
        self._new_id = new_id
        self._stopping = stopping

    async def AppendMessages(
        self, request: _pb.AppendMessagesRequest, context: Any
    ) -> _pb.AppendMessagesResponse | bytes:
        if request.HasField("context"):
            current_caller().require("read")
        key = key_of(request.conversation_id)
        messages, contents, prompt = await run_off_loop(wire.parts(request), partial(self._read, request))
        sent = wire.requested(request.settings) if request.HasField("settings") else None
        opening = sent or _NOTHING_ASKED
        if prompt is not None:
            opening = replace(opening, system_prompt=prompt if prompt.content else None)
        appended = await self._conversations.append(
            key,
            AppendRequest(
                messages=messages,
                contents=contents,
                open_with=lambda: self._models.opening(key.namespace, opening),
                asked=opening if sent is not None else None,
                request_id=request.request_id,
                expected_version=request.expected_version if request.HasField("expected_version") else None,
                system_prompt=prompt,
                replace_after=request.replace_after if request.HasField("replace_after") else None,
            ),
        )
        state = appended.state
        plan, since_us = state.due_pass, state.pending_since_us
        if plan is not None and request.HasField("wait"):
            state = await self._contexts.waited(key, wire.seconds(request.wait), context)
        # Positions count the events of all namespaces.
        sees_positions = current_caller().may("read-all")
        response = _pb.AppendMessagesResponse(
            messages=[
                _pb.AppendedMessage(
                    id=m.id,
                    number=m.number,
                    position=m.position if sees_positions else 0,
                    already_appended=m.already_appended,
                )
                for m in appended.messages
            ],
            message_version=appended.state.message_version,
            usage=wire.usage_of(state, state.settings),
            summarization=None
            if plan is None
            else pass_named(state, plan.pass_id) or wire.pending_pass(plan, since_us),
            settings_ignored=sent is not None and not state.settings.includes(sent),
        )
        if not request.HasField("context"):
            return response
        return await self._contexts.after_append(
            key, state, response, request.context, waited_for=plan.pass_id if plan else "", context=context
        )

    def _read(
        self, request: _pb.AppendMessagesRequest
    ) -> tuple[tuple[Message, ...], dict[str, bytes], SystemPrompt | None]:
        """The messages, each in its canonical form by its id, and the system prompt that came with them."""
        prompt = None
        if request.HasField("rendered"):
            prompt = wire.read_rendered(request, messages_max=self._limits.batch_messages_max)
            wire.require_prompt(prompt, bytes_max=self._limits.message_bytes_max)
            self._validation.check(request, fields=lambda: ALL_LISTED_FIELDS_MAX)
        if request.HasField("settings"):
            opening = system_prompt_from_proto(request.settings.system_prompt)
            wire.require_prompt(opening, bytes_max=self._limits.message_bytes_max)
        messages, contents = wire.messages_of(
            request,
            new_id=self._new_id,
            message_bytes_max=self._limits.message_bytes_max,
            batch_messages_max=self._limits.batch_messages_max,
            batch_bytes_max=self._limits.batch_bytes_max,
        )
        return messages, contents, prompt

    async def IngestMessages(self, items: Items, context: Any) -> AsyncIterator[_pb.IngestMessagesResponse]:
        async def append(request: _pb.IngestMessagesRequest) -> _pb.AppendMessagesResponse | bytes:
            if request.append.HasField("context"):
                raise InvalidRequest((("append.context", "is for AppendMessages; call GetContext"),))
            return await self.AppendMessages(request.append, context)

        outcomes = in_order(
            items,
            append,
            lambda request: str(request.append.conversation_id),
            window=self._limits.ingest_window,
            stopping=self._stopping,
        )
        async with aclosing(outcomes):
            async for outcome in outcomes:
                if isinstance(outcome, Status):
                    refusal = _pb.AppendRefusal(code=outcome.code, message=outcome.message, details=outcome.details)
                    yield _pb.IngestMessagesResponse(refusal=refusal)
                else:
                    yield _pb.IngestMessagesResponse(appended=outcome)
