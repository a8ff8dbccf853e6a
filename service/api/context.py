"""GetContext: which window, in which form, and what it is worth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from abridged.v1 import conversation_pb2, conversation_service_pb2
from eventlog.event import StreamId
from service.api.wire import context_messages, usage_of
from service.codec.enums import HELD_BY, OMISSIONS, SUMMARY_ROLES
from service.conversations.conversations import Conversations
from service.domain.conversation import Conversation
from service.domain.errors import TooLarge, WindowTooLarge
from service.domain.policy import Policy, SummaryRole
from service.domain.render import RenderedMessage, clipped, rendered_originals, rendered_window
from service.domain.render_json import RenderedJson, Rendering, render_json
from service.domain.triggers import held_by

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
) -> _pb.GetContextResponse:
    """The answer. `count_bytes` hears, from any thread, of the texts that it is made of before it is made.

    Raises WindowTooLarge when it cannot be within `max_tokens`, TooLarge when there are more originals than one answer
    holds, and what `count_bytes` raises.
    """
    now_us, count = conversations.now_us(), conversations.counting.counter.count
    if not query.original:
        count_bytes(conversations.window_bytes(key))
        rendered = rendered_window(state, query.role)
        if not query.clip:
            return _answer(rendered, state, query, policy, now_us, count)
        # Large texts are counted for their excerpts: too much for the event loop.
        return await asyncio.to_thread(_answer, rendered, state, query, policy, now_us, count)
    events = await conversations.log.originals(
        key,
        head=state.event_version,
        limit=ORIGINAL_MESSAGES_MAX + 1,
        bytes_max=ORIGINAL_BYTES_MAX,
        on_read=count_bytes,
    )
    if len(events) > ORIGINAL_MESSAGES_MAX:
        raise TooLarge("messages", size=len(events), limit=ORIGINAL_MESSAGES_MAX)
    # A window is bounded by its model's context, the originals only by the limits above: too much for the event loop.
    return await asyncio.to_thread(
        lambda: _answer(
            rendered_originals(events, state.settings.calibration_factor), state, query, policy, now_us, count
        )
    )


def _answer(
    rendered: tuple[RenderedMessage, ...],
    state: Conversation,
    query: ContextQuery,
    policy: Policy,
    now_us: int,
    count: Callable[[str], int],
) -> _pb.GetContextResponse:
    rendered = _limited(rendered, query, count)
    usage = usage_of(state)
    if query.original or query.max_tokens:
        usage.window_tokens = sum(m.tokens for m in rendered)
        usage.ratio = (usage.window_tokens + usage.overhead_tokens) / usage.budget_tokens
    made = render_json([m.message for m in rendered], query.rendering) if query.rendering else _NOT_RENDERED
    numbers = {m.message.id: m.number for m in rendered} if made.omitted else {}
    live = state.live if not query.original else None
    held = held_by(state, policy, now_us)
    return _pb.GetContextResponse(
        messages=context_messages(rendered),
        usage=usage,
        over_limit=usage.ratio > 1,
        held_by=HELD_BY.to_proto(held) if held else conversation_pb2.HELD_BY_UNSPECIFIED,
        compacted=live is not None,
        summary_id=live.id if live else "",
        depth=live.depth if live else None,
        pending_summarization_id=state.pending.pass_id if state.pending else "",
        message_version=state.message_version,
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
    )


def _limited(
    rendered: tuple[RenderedMessage, ...], query: ContextQuery, count: Callable[[str], int]
) -> tuple[RenderedMessage, ...]:
    if not query.max_tokens:
        return rendered
    if query.clip:
        return clipped(rendered, limit=query.max_tokens, count=count)
    tokens = sum(m.tokens for m in rendered)
    if tokens > query.max_tokens:
        raise WindowTooLarge(tokens=tokens, limit=query.max_tokens)
    return rendered
