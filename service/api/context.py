"""GetContext: which window, in which form, and what it is worth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from abridged.v1 import conversation_pb2, conversation_service_pb2
from eventlog.event import StreamId
from service.api.sent_window import sent_window
from service.api.wire import context_message, usage_of
from service.codec.enums import HELD_BY, OMISSIONS, SUMMARY_ROLES
from service.conversations.cache import Sent
from service.conversations.conversations import Conversations
from service.domain.conversation import Conversation
from service.domain.errors import TooLarge, WindowTooLarge
from service.domain.events import MessageAppended
from service.domain.policy import Policy, SummaryRole
from service.domain.ranges import without
from service.domain.record import MessageRange
from service.domain.render import RenderedMessage, clipped, rendered_originals, rendered_window
from service.domain.render_json import RenderedJson, Rendering, render_json
from service.domain.triggers import held_by
from service.turn import aside

__all__ = ["ORIGINAL_BYTES_MAX", "ORIGINAL_MESSAGES_MAX", "ContextQuery", "context_of"]

ORIGINAL_MESSAGES_MAX = 20_000
"""Messages of one answer with the ORIGINAL view; longer conversations are read with ReadEvents."""

ORIGINAL_BYTES_MAX = 16 << 20
"""Stored bytes of those messages: what bounds an answer's time and memory, however long the messages are."""

_pb = conversation_service_pb2
_RENDERINGS = {
    _pb.RENDERING_OPENAI: Rendering.OPENAI,
    _pb.RENDERING_ANTHROPIC: Rendering.ANTHROPIC,
    _pb.RENDERING_OLLAMA: Rendering.OLLAMA,
}
_NOT_RENDERED = RenderedJson("", ())


@dataclass(frozen=True, slots=True)
class ContextQuery:
    """What is asked for. `max_tokens` 0 is no limit of the caller's."""

    role: SummaryRole
    original: bool
    max_tokens: int
    clip: bool
    rendering: Rendering | None

    @classmethod
    def of(cls, request: _pb.GetContextRequest, *, default_role: SummaryRole) -> ContextQuery:
        """The query of a valid request."""
        asked = request.summary_role != conversation_pb2.SUMMARY_ROLE_UNSPECIFIED
        return cls(
            role=SUMMARY_ROLES.to_domain(request.summary_role) if asked else default_role,
            original=request.view == _pb.CONTEXT_VIEW_ORIGINAL,
            max_tokens=request.max_tokens,
            clip=request.clip,
            rendering=_RENDERINGS.get(request.rendering),
        )


async def context_of(
    conversations: Conversations,
    key: StreamId,
    state: Conversation,
    query: ContextQuery,
    policy: Policy,
    count_bytes: Callable[[int], None],
) -> bytes:
    """The answer: a GetContextResponse, serialized.

    `count_bytes` hears, from any thread, of the texts that it is made of before it is made.
    Raises WindowTooLarge when it cannot be within `max_tokens`, TooLarge when there are more originals than one answer
    holds, and what `count_bytes` raises.
    """
    answering = _Answering(state, query, policy, conversations.now_us())
    if query.original:
        events = await conversations.log.originals(
            key,
            head=state.event_version,
            limit=ORIGINAL_MESSAGES_MAX + 1,
            within=without((MessageRange(1, state.message_version),), state.removed),
            bytes_max=ORIGINAL_BYTES_MAX,
            on_read=count_bytes,
        )
        if len(events) > ORIGINAL_MESSAGES_MAX:
            raise TooLarge("messages", size=len(events), limit=ORIGINAL_MESSAGES_MAX)
        # A window is bounded by its model's context, the originals only by the limits above.
        return await asyncio.to_thread(answering.originals, events, conversations.counting.counter.count)
    count_bytes(conversations.window_bytes(key))
    if query.clip:
        # Large texts are counted for their excerpts: too much for the event loop.
        return await asyncio.to_thread(answering.clipped, conversations.counting.counter.count)
    before = conversations.sent(key)
    answer, sent = await aside(conversations.window_weight(key), lambda: answering.window(before))
    conversations.keep_sent(key, state, sent)
    return answer


@dataclass(frozen=True, slots=True)
class _Answering:
    """What an answer is made of, in any thread."""

    state: Conversation
    query: ContextQuery
    policy: Policy
    now_us: int

    def window(self, before: Sent) -> tuple[bytes, Sent]:
        """The window, of which `before` was sent last; and what is sent now."""
        window = sent_window(self.state, self.query.role, before)
        tokens = sum([m.tokens for m in window.messages])
        if 0 < self.query.max_tokens < tokens:
            raise WindowTooLarge(tokens=tokens, limit=self.query.max_tokens)
        return window.data + self._around(window.messages, tokens), window.kept

    def originals(self, events: Sequence[MessageAppended], count: Callable[[str], int]) -> bytes:
        """Every message as it came."""
        return self._limited(rendered_originals(events, self.state.settings.calibration_factor), count)

    def clipped(self, count: Callable[[str], int]) -> bytes:
        """The window with excerpts where they are needed."""
        return self._limited(rendered_window(self.state, self.query.role), count)

    def _limited(self, rendered: tuple[RenderedMessage, ...], count: Callable[[str], int]) -> bytes:
        limit = self.query.max_tokens
        tokens = sum(m.tokens for m in rendered)
        if 0 < limit < tokens:
            if not self.query.clip:
                raise WindowTooLarge(tokens=tokens, limit=limit)
            rendered = clipped(rendered, limit=limit, count=count)
            tokens = sum(m.tokens for m in rendered)
        return b"".join(map(context_message, rendered)) + self._around(rendered, tokens)

    def _around(self, rendered: tuple[RenderedMessage, ...], tokens: int) -> bytes:
        """All but the messages themselves, which cost so many tokens."""
        state, query = self.state, self.query
        usage = usage_of(state)
        if query.original or query.max_tokens:
            usage.window_tokens = tokens
            usage.ratio = (tokens + usage.overhead_tokens) / usage.budget_tokens
        made = render_json([m.message for m in rendered], query.rendering) if query.rendering else _NOT_RENDERED
        numbers = {m.message.id: m.number for m in rendered} if made.omitted else {}
        live = state.live if not query.original else None
        held = held_by(state, self.policy, self.now_us)
        return _pb.GetContextResponse(
            usage=usage,
            over_limit=usage.ratio > 1,
            held_by=HELD_BY.to_proto(held) if held else conversation_pb2.HELD_BY_UNSPECIFIED,
            compacted=live is not None,
            summary_id=live.id if live else "",
            depth=live.depth if live else None,
            pending_summarization_id=state.pending.pass_id if state.pending else "",
            message_version=state.message_version,
            epoch=state.epoch,
            rendered_json=made.text,
            omitted_attachments=[
                _pb.OmittedAttachment(
                    message_id=o.message_id,
                    number=numbers[o.message_id],
                    index=o.place,
                    reason=OMISSIONS.to_proto(o.reason),
                )
                for o in made.omitted
            ],
        ).SerializeToString()
