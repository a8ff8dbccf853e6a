"""The RPCs that archive conversations, and take them back."""

from __future__ import annotations

from typing import Any

from abridged.service.api.auth import current_caller
from abridged.service.api.errors import InvalidRequest
from abridged.service.api.views import conversation_shown, key_of
from abridged.service.conversations.archives import Archives
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.policies import Policies
from abridged.v1 import conversation_service_pb2

_pb = conversation_service_pb2


class ArchiveCalls:
    """See the contract."""

    def __init__(self, archives: Archives, conversations: Conversations, policies: Policies) -> None:
        self._archives = archives
        self._conversations = conversations
        self._policies = policies

    async def ArchiveConversations(
        self, request: _pb.ArchiveConversationsRequest, context: Any
    ) -> _pb.ArchiveConversationsResponse:
        if bool(request.conversation_id) is request.HasField("closed_for"):
            raise InvalidRequest((("conversation_id", "must be set, or closed_for"),))
        if request.conversation_id:
            done = await self._archives.of(key_of(request.conversation_id), dry_run=request.dry_run)
        else:
            done = await self._archives.unchanged_since(
                self._conversations.now_us() - request.closed_for.ToMicroseconds(),
                namespace=current_caller().namespace,
                dry_run=request.dry_run,
            )
        return _pb.ArchiveConversationsResponse(**done._asdict())

    async def UnarchiveConversation(
        self, request: _pb.UnarchiveConversationRequest, context: Any
    ) -> _pb.UnarchiveConversationResponse:
        key = key_of(request.conversation_id)
        state = await self._archives.unarchive(key)
        shown = await conversation_shown(self._conversations, self._policies, key, state)
        return _pb.UnarchiveConversationResponse(conversation=shown)
