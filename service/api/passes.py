"""The RPCs of passes: force one, get one, list them."""

from __future__ import annotations

from typing import Any

from abridged.service.api import wire
from abridged.service.api.contexts import ContextCalls
from abridged.service.api.pages import Pages
from abridged.service.api.views import key_of, pass_named
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.commands import RequestPass
from abridged.service.domain.errors import PassNotFound
from abridged.service.passes.reactor import Reactor
from abridged.v1 import conversation_service_pb2

_pb = conversation_service_pb2


class PassCalls:
    """See the contract."""

    def __init__(self, conversations: Conversations, reactor: Reactor, contexts: ContextCalls, pages: Pages) -> None:
        self._conversations = conversations
        self._reactor = reactor
        self._contexts = contexts
        self._pages = pages

    async def SummarizeConversation(
        self, request: _pb.SummarizeConversationRequest, context: Any
    ) -> _pb.SummarizeConversationResponse:
        key = key_of(request.conversation_id)
        if (await self._conversations.state(key)).due_pass is None:
            self._reactor.require_room(key.namespace)
        state, _ = await self._conversations.execute(key, lambda _: RequestPass())
        plan = state.pending
        assert plan is not None, "a forced pass is requested, is under way already, or was refused"
        since_us = state.pending_since_us
        if request.HasField("wait"):
            state = await self._contexts.waited(key, wire.seconds(request.wait), context)
        return _pb.SummarizeConversationResponse(
            summarization=pass_named(state, plan.pass_id) or wire.pending_pass(plan, since_us)
        )

    async def GetSummarization(
        self, request: _pb.GetSummarizationRequest, context: Any
    ) -> _pb.GetSummarizationResponse:
        state = await self._conversations.state(key_of(request.conversation_id))
        found = pass_named(state, request.summarization_id)
        if found is None:
            raise PassNotFound(request.summarization_id)
        return _pb.GetSummarizationResponse(summarization=found)

    async def ListSummarizations(
        self, request: _pb.ListSummarizationsRequest, context: Any
    ) -> _pb.ListSummarizationsResponse:
        key = key_of(request.conversation_id)
        state = await self._conversations.state(key)
        # A pending pass has the place that it will have when it is over.
        pending = [] if state.pending is None else [wire.pending_pass(state.pending, state.pending_since_us)]
        over = len(state.passes)
        page, token = self._pages.newest_first(
            "summarizations",
            key,
            request,
            count=over + len(pending),
            entry=lambda place: wire.ended_pass(state.passes[place]) if place < over else pending[0],
        )
        return _pb.ListSummarizationsResponse(summarizations=page, next_page_token=token)
