"""The RPCs that erase conversations, and redact messages."""

from __future__ import annotations

from typing import Any

from abridged.service.api.auth import current_caller
from abridged.service.api.errors import InvalidRequest
from abridged.service.api.views import key_of
from abridged.service.conversations.erasures import Erased, Erasures
from abridged.service.conversations.redactions import Redactions
from abridged.v1 import conversation_service_pb2

_pb = conversation_service_pb2


class ErasureCalls:
    """See the contract."""

    def __init__(self, erasures: Erasures, redactions: Redactions) -> None:
        self._erasures = erasures
        self._redactions = redactions

    async def EraseConversation(
        self, request: _pb.EraseConversationRequest, context: Any
    ) -> _pb.EraseConversationResponse:
        erased = await self._erasures.of(key_of(request.conversation_id), forks=request.forks, dry_run=request.dry_run)
        return _pb.EraseConversationResponse(erasure=_shown(erased))

    async def EraseConversations(
        self, request: _pb.EraseConversationsRequest, context: Any
    ) -> _pb.EraseConversationsResponse:
        if not request.labels and not request.user_id:
            raise InvalidRequest((("labels", "must be set, or user_id"),))
        erased = await self._erasures.matching(
            current_caller().namespace,
            labels=sorted(request.labels.items()),
            user_id=request.user_id,
            dry_run=request.dry_run,
        )
        return _pb.EraseConversationsResponse(erasure=_shown(erased))

    async def RedactMessages(self, request: _pb.RedactMessagesRequest, context: Any) -> _pb.RedactMessagesResponse:
        key = key_of(request.conversation_id)
        redacted = await self._redactions.of(key, request.numbers, forks=request.forks, dry_run=request.dry_run)
        return _pb.RedactMessagesResponse(**redacted._asdict())


def _shown(erased: Erased) -> _pb.Erasure:
    return _pb.Erasure(**erased._asdict())
