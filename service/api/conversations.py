"""The RPCs of conversations as such: state, lists, settings, usage."""

from __future__ import annotations

import asyncio
from typing import Any

from abridged.eventlog.event import StreamId
from abridged.service.api import wire
from abridged.service.api.auth import current_caller
from abridged.service.api.errors import InvalidRequest
from abridged.service.api.pages import Pages, fitting, page_size
from abridged.service.api.views import conversation_shown, current_pass, key_of
from abridged.service.codec.values import settings_from_bytes
from abridged.service.conversations.chat_models import ChatModels
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.policies import Policies
from abridged.service.conversations.row import Row
from abridged.service.conversations.table import ConversationTable, ListQuery
from abridged.service.domain.commands import ChangeSettings, ReportUsage
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import ConversationIsArchived
from abridged.service.domain.events import SummarizationRequested, UsageReported
from abridged.service.telemetry.telemetry import Telemetry
from abridged.v1 import conversation_pb2, conversation_service_pb2

_pb = conversation_service_pb2


class ConversationCalls:
    """See the contract."""

    def __init__(
        self,
        conversations: Conversations,
        table: ConversationTable,
        models: ChatModels,
        policies: Policies,
        telemetry: Telemetry,
        pages: Pages,
    ) -> None:
        self._conversations = conversations
        self._table = table
        self._models = models
        self._policies = policies
        self._telemetry = telemetry
        self._pages = pages

    async def GetConversation(self, request: _pb.GetConversationRequest, context: Any) -> _pb.GetConversationResponse:
        key = key_of(request.conversation_id)
        try:
            return _pb.GetConversationResponse(conversation=await self._view(key, await self._conversations.state(key)))
        except ConversationIsArchived:
            row = await asyncio.to_thread(self._table.row, key)
            return _pb.GetConversationResponse(conversation=_of_row(row) if row is not None else None)

    async def ListConversations(
        self, request: _pb.ListConversationsRequest, context: Any
    ) -> _pb.ListConversationsResponse:
        namespace = current_caller().namespace
        labels = tuple(sorted(request.labels.items()))
        closed = request.closed if request.HasField("closed") else None
        scope = f"conversations/{namespace}/{labels}/{request.min_ratio}/{closed}"
        size = page_size(request.page_size)
        query = ListQuery(
            namespace=namespace,
            limit=size + 1,
            before=self._pages.cursor(scope, request.page_token),
            labels=labels,
            min_ratio=request.min_ratio,
            closed=closed,
        )
        rows, page = await asyncio.to_thread(self._listed, query)
        last = rows[len(page) - 1].position if len(page) < len(rows) else 0
        return _pb.ListConversationsResponse(
            conversations=page,
            next_page_token=self._pages.token(scope, last),
        )

    async def UpdateConversation(
        self, request: _pb.UpdateConversationRequest, context: Any
    ) -> _pb.UpdateConversationResponse:
        def command(state: Conversation) -> ChangeSettings:
            wanted = wire.masked(state.settings, request.settings, request.update_mask)
            wire.require_prompt(wanted.system_prompt, bytes_max=wire.PROMPT_BYTES_MAX)
            changed = self._models.opening(key.namespace, wanted)
            return ChangeSettings(
                settings=wire.with_kept(changed, state.settings),
                expected_version=request.expected_version if request.HasField("expected_version") else None,
            )

        key = key_of(request.conversation_id)
        state, events = await self._conversations.execute(key, command)
        triggered = any(isinstance(e, SummarizationRequested) for e in events)
        return _pb.UpdateConversationResponse(
            conversation=await self._view(key, state), summarization=current_pass(state) if triggered else None
        )

    async def ReportUsage(self, request: _pb.ReportUsageRequest, context: Any) -> _pb.ReportUsageResponse:
        if request.cached_tokens > request.prompt_tokens:
            raise InvalidRequest((("cached_tokens", "must be at most prompt_tokens"),))
        key = key_of(request.conversation_id)
        state, events = await self._conversations.execute(
            key,
            lambda state: ReportUsage(
                message_version=request.message_version,
                summary_id=request.summary_id,
                prompt_tokens=request.prompt_tokens,
                epoch=request.epoch,
                taught=self._models.taught(key.namespace, state.settings.model),
            ),
        )
        if request.HasField("cached_tokens") and any(isinstance(event, UsageReported) for event in events):
            self._telemetry.prompt_reported(request.prompt_tokens, cached_tokens=request.cached_tokens)
        return _pb.ReportUsageResponse(usage=wire.usage_of(state, state.settings))

    def _listed(self, query: ListQuery) -> tuple[list[Row], list[conversation_pb2.Conversation]]:
        """One row more than is shown at most, and what is shown of the first."""
        rows = self._table.page(query)
        shown = map(_of_row, rows[: query.limit - 1])
        return rows, fitting(shown, lambda view: view.ByteSize())

    async def _view(self, key: StreamId, state: Conversation) -> conversation_pb2.Conversation:
        return await conversation_shown(self._conversations, self._policies, key, state)


def _of_row(row: Row) -> conversation_pb2.Conversation:
    return wire.conversation_view(row, settings_from_bytes(row.settings))
