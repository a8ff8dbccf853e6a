"""The RPCs that return the originals of a record and repair, close or reopen a conversation by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from abridged.v1 import conversation_pb2, conversation_service_pb2
from service.api import wire
from service.api.errors import InvalidRequest
from service.api.fitting import RESPONSE_BYTES_MAX
from service.api.views import conversation_shown, current_pass, key_of
from service.codec.enums import RATINGS
from service.codec.values import message_to_proto
from service.conversations.conversations import Conversations
from service.conversations.policies import Policies
from service.domain.commands import (
    Amendment,
    CloseConversation,
    PinMessages,
    RateSummary,
    ReopenConversation,
    RevokeSummary,
    RewindConversation,
    UnpinMessages,
)
from service.domain.conversation import Conversation, record_named
from service.domain.errors import MessageNotFound, MessageRemoved, SummaryNotFound, WindowTooLarge
from service.domain.events import Event, MessageAppended, SummarizationRequested, SummaryRevoked
from service.domain.ranges import ranges_of, without
from service.domain.record import MessageRange, SummaryRecord
from service.domain.render import RenderedMessage, clipped, rendered_originals

MESSAGE_IDS_MAX = 10_000
"""The most ids that one response names: a record may cover more, and ids have up to 128 characters."""

_pb = conversation_service_pb2
_Changing = (
    _pb.PinMessagesRequest
    | _pb.UnpinMessagesRequest
    | _pb.RewindConversationRequest
    | _pb.CloseConversationRequest
    | _pb.ReopenConversationRequest
)


class Amendments:
    """See the contract: every method's promise is written there."""

    def __init__(self, conversations: Conversations, policies: Policies, *, token_key: bytes) -> None:
        self._conversations = conversations
        self._policies = policies
        self._token_key = token_key

    async def expand(self, request: _pb.ExpandSummaryRequest) -> _pb.ExpandSummaryResponse:
        key = key_of(request.conversation_id)
        state = await self._conversations.state(key)
        listed = ",".join(map(str, request.numbers.numbers)) or f"{request.messages.first}-{request.messages.last}"
        scope = f"expand/{key.namespace}/{key.name}/{request.summary_id}/{listed}"
        cursor = wire.read_page_token(self._token_key, scope, request.page_token)
        asked = without(_asked_for(state, request), state.removed)
        left = without(asked, (MessageRange(0, cursor),))
        messages, more = await self._conversations.log.originals_page(
            key,
            head=state.event_version,
            within=left,
            limit=wire.page_size(request.page_size),
            bytes_max=RESPONSE_BYTES_MAX,
        )
        count = self._conversations.counting.by_model(state.settings.model).count
        page, too_large = await asyncio.to_thread(
            _page_within, messages, state.settings.calibration_factor, request.max_tokens, count
        )
        taken = len(page) + len(too_large)
        more = more or taken < len(messages)
        return _pb.ExpandSummaryResponse(
            messages=[
                _pb.ContextMessage(
                    message=message_to_proto(m.message), number=m.number, tokens=m.tokens, clipped=m.clipped
                )
                for m in page
            ],
            next_page_token=wire.write_page_token(self._token_key, scope, messages[taken - 1].number) if more else "",
            too_large=[
                _pb.TooLargeMessage(message_id=m.message.id, number=m.number, tokens=m.tokens) for m in too_large
            ],
        )

    async def message_ids(self, state: Conversation, record: SummaryRecord) -> tuple[Sequence[str], bool]:
        """The ids of the messages that the record covers, and whether it covers more than a response names."""
        covered = without(record.covered, state.removed)
        return await self._conversations.log.message_ids(
            key_of(state.id), head=state.event_version, within=covered, limit=MESSAGE_IDS_MAX
        )

    async def revoke(self, request: _pb.RevokeSummaryRequest) -> _pb.RevokeSummaryResponse:
        key, command = key_of(request.conversation_id), RevokeSummary(request.summary_id)
        state, events = await self._conversations.execute(key, lambda _: command)
        (revoked,) = (event for event in events if isinstance(event, SummaryRevoked))
        return _pb.RevokeSummaryResponse(
            conversation=await conversation_shown(self._conversations, self._policies, key, state),
            summarization=_triggered(state, events),
            revoked_summary_ids=revoked.revoked_ids,
        )

    async def rate(self, request: _pb.RateSummaryRequest) -> _pb.RateSummaryResponse:
        command = RateSummary(request.summary_id, RATINGS.to_domain(request.rating), request.comment)
        await self._conversations.execute(key_of(request.conversation_id), lambda _: command)
        return _pb.RateSummaryResponse()

    async def pin(self, request: _pb.PinMessagesRequest) -> _pb.PinMessagesResponse:
        shown, triggered = await self._changed(request, PinMessages(tuple(request.numbers)))
        return _pb.PinMessagesResponse(conversation=shown, summarization=triggered)

    async def unpin(self, request: _pb.UnpinMessagesRequest) -> _pb.UnpinMessagesResponse:
        shown, triggered = await self._changed(request, UnpinMessages(tuple(request.numbers)))
        return _pb.UnpinMessagesResponse(conversation=shown, summarization=triggered)

    async def rewind(self, request: _pb.RewindConversationRequest) -> _pb.RewindConversationResponse:
        expected = request.expected_version if request.HasField("expected_version") else None
        command = RewindConversation(request.to_version, expected)
        shown, triggered = await self._changed(request, command)
        return _pb.RewindConversationResponse(conversation=shown, summarization=triggered)

    async def close(self, request: _pb.CloseConversationRequest) -> _pb.CloseConversationResponse:
        shown, _ = await self._changed(request, CloseConversation())
        return _pb.CloseConversationResponse(conversation=shown)

    async def reopen(self, request: _pb.ReopenConversationRequest) -> _pb.ReopenConversationResponse:
        shown, triggered = await self._changed(request, ReopenConversation())
        return _pb.ReopenConversationResponse(conversation=shown, summarization=triggered)

    async def _changed(
        self, request: _Changing, command: Amendment | CloseConversation | ReopenConversation
    ) -> tuple[conversation_pb2.Conversation, conversation_pb2.Summarization | None]:
        key = key_of(request.conversation_id)
        state, events = await self._conversations.execute(key, lambda _: command)
        shown = await conversation_shown(self._conversations, self._policies, key, state)
        return shown, _triggered(state, events)


def record_ever(state: Conversation, record_id: str) -> SummaryRecord:
    """The record, in use or revoked. Raises SummaryNotFound."""
    record = record_named(state, record_id) or next((r for r in state.revoked if r.id == record_id), None)
    if record is None:
        raise SummaryNotFound(record_id)
    return record


def _asked_for(state: Conversation, request: _pb.ExpandSummaryRequest) -> tuple[MessageRange, ...]:
    what = request.WhichOneof("what")
    if what == "summary_id":
        return record_ever(state, request.summary_id).covered
    if what == "numbers":
        ranges = ranges_of(request.numbers.numbers)
    else:
        asked = request.messages
        if not 1 <= asked.first <= asked.last:
            raise InvalidRequest((("messages", "must begin at 1 or later and not end before it begins"),))
        ranges = (MessageRange(asked.first, asked.last),)
    if ranges[-1].last > state.message_version:
        raise MessageNotFound(ranges[-1].last)
    if not without(ranges, state.removed):
        raise MessageRemoved(ranges[0].first)
    return ranges


def _page_within(
    messages: Sequence[MessageAppended], factor: float, max_tokens: int, count: Callable[[str], int]
) -> tuple[tuple[RenderedMessage, ...], tuple[RenderedMessage, ...]]:
    """The first messages that take at most so many tokens, and those before them that do not fit even excerpted.

    A message that takes more by itself is excerpted, on a page of its own.
    """
    rendered = rendered_originals(messages, factor)
    if not max_tokens:
        return rendered, ()
    page: list[RenderedMessage] = []
    too_large: list[RenderedMessage] = []
    left = max_tokens
    for m in rendered:
        if m.tokens <= left:
            page.append(m)
            left -= m.tokens
        elif page:
            break
        else:
            try:
                return clipped((m,), limit=max_tokens, count=count), tuple(too_large)
            except WindowTooLarge:
                too_large.append(m)
    return tuple(page), tuple(too_large)


def _triggered(state: Conversation, events: Iterable[Event]) -> conversation_pb2.Summarization | None:
    return current_pass(state) if any(isinstance(e, SummarizationRequested) for e in events) else None
