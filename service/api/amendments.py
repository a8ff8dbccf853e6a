"""The RPCs that repair, close or reopen a conversation by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from abridged.service.api.views import conversation_shown, current_pass, key_of
from abridged.service.codec.enums import RATINGS
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.policies import Policies
from abridged.service.domain.commands import (
    Amendment,
    CloseConversation,
    PinMessages,
    RateSummary,
    ReopenConversation,
    RevokeSummary,
    RewindConversation,
    UnpinMessages,
)
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import Event, SummarizationRequested, SummaryRevoked
from abridged.v1 import conversation_pb2, conversation_service_pb2

_pb = conversation_service_pb2
_Changing = (
    _pb.PinMessagesRequest
    | _pb.UnpinMessagesRequest
    | _pb.RewindConversationRequest
    | _pb.CloseConversationRequest
    | _pb.ReopenConversationRequest
)
_Command = Amendment | CloseConversation | ReopenConversation


class AmendmentCalls:
    """See the contract."""

    def __init__(self, conversations: Conversations, policies: Policies) -> None:
        self._conversations = conversations
        self._policies = policies

    async def RevokeSummary(self, request: _pb.RevokeSummaryRequest, context: Any) -> _pb.RevokeSummaryResponse:
        key, command = key_of(request.conversation_id), RevokeSummary(request.summary_id)
        state, events = await self._conversations.execute(key, lambda _: command)
        (revoked,) = (event for event in events if isinstance(event, SummaryRevoked))
        return _pb.RevokeSummaryResponse(
            conversation=await conversation_shown(self._conversations, self._policies, key, state),
            summarization=_triggered(state, events),
            revoked_summary_ids=revoked.revoked_ids,
        )

    async def RateSummary(self, request: _pb.RateSummaryRequest, context: Any) -> _pb.RateSummaryResponse:
        command = RateSummary(request.summary_id, RATINGS.to_domain(request.rating), request.comment)
        await self._conversations.execute(key_of(request.conversation_id), lambda _: command)
        return _pb.RateSummaryResponse()

    async def PinMessages(self, request: _pb.PinMessagesRequest, context: Any) -> _pb.PinMessagesResponse:
        shown, triggered = await self._changed(request, PinMessages(tuple(request.numbers)))
        return _pb.PinMessagesResponse(conversation=shown, summarization=triggered)

    async def UnpinMessages(self, request: _pb.UnpinMessagesRequest, context: Any) -> _pb.UnpinMessagesResponse:
        shown, triggered = await self._changed(request, UnpinMessages(tuple(request.numbers)))
        return _pb.UnpinMessagesResponse(conversation=shown, summarization=triggered)

    async def RewindConversation(
        self, request: _pb.RewindConversationRequest, context: Any
    ) -> _pb.RewindConversationResponse:
        expected = request.expected_version if request.HasField("expected_version") else None
        command = RewindConversation(request.to_version, expected)
        shown, triggered = await self._changed(request, command)
        return _pb.RewindConversationResponse(conversation=shown, summarization=triggered)

    async def ForkConversation(
        self, request: _pb.ForkConversationRequest, context: Any
    ) -> _pb.ForkConversationResponse:
        state, events = await self._conversations.fork(
            key_of(request.conversation_id),
            request.fork_id,
            to=request.to_version if request.HasField("to_version") else None,
            expected_version=request.expected_version if request.HasField("expected_version") else None,
        )
        fork = key_of(request.fork_id)
        return _pb.ForkConversationResponse(
            conversation=await conversation_shown(self._conversations, self._policies, fork, state),
            summarization=_triggered(state, events),
            already_forked=not events,
        )

    async def CloseConversation(
        self, request: _pb.CloseConversationRequest, context: Any
    ) -> _pb.CloseConversationResponse:
        shown, _ = await self._changed(request, CloseConversation())
        return _pb.CloseConversationResponse(conversation=shown)

    async def ReopenConversation(
        self, request: _pb.ReopenConversationRequest, context: Any
    ) -> _pb.ReopenConversationResponse:
        shown, triggered = await self._changed(request, ReopenConversation())
        return _pb.ReopenConversationResponse(conversation=shown, summarization=triggered)

    async def _changed(
        self, request: _Changing, command: _Command
    ) -> tuple[conversation_pb2.Conversation, conversation_pb2.Summarization | None]:
        key = key_of(request.conversation_id)
        state, events = await self._conversations.execute(key, lambda _: command)
        shown = await conversation_shown(self._conversations, self._policies, key, state)
        return shown, _triggered(state, events)


def _triggered(state: Conversation, events: Iterable[Event]) -> conversation_pb2.Summarization | None:
    return current_pass(state) if any(isinstance(e, SummarizationRequested) for e in events) else None
