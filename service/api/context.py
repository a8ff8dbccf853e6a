"""GetContext: which window, in which form, and what it is worth."""

from __future__ import annotations

from dataclasses import dataclass

from abridged.v1 import conversation_pb2, conversation_service_pb2
from eventlog.event import StreamId
from service.api.wire import context_messages, usage_of
from service.codec.enums import SUMMARY_ROLES
from service.conversations import Conversations
from service.domain.conversation import Conversation
from service.domain.errors import WindowTooLarge
from service.domain.policy import DepthLimit, Policy, SummaryRole
from service.domain.render import RenderedMessage, clipped, rendered_originals, rendered_window
from service.domain.render_json import Rendering, render_json
from service.domain.window import compressible

__all__ = ["ORIGINAL_MESSAGES_MAX", "ContextQuery", "context_of", "over_limit"]

ORIGINAL_MESSAGES_MAX = 20_000
"""Messages of one answer with the ORIGINAL view; longer conversations are read with ReadEvents."""

_pb = conversation_service_pb2
_RENDERINGS = {
    _pb.RENDERING_OPENAI: Rendering.OPENAI,
    _pb.RENDERING_ANTHROPIC: Rendering.ANTHROPIC,
    _pb.RENDERING_OLLAMA: Rendering.OLLAMA,
}


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
    conversations: Conversations, key: StreamId, state: Conversation, query: ContextQuery, policy: Policy
) -> _pb.GetContextResponse:
    """The answer; raises WindowTooLarge when it cannot be within `max_tokens`."""
    if query.original:
        events = await conversations.log.originals(key, lambda _: True, limit=ORIGINAL_MESSAGES_MAX + 1)
        if len(events) > ORIGINAL_MESSAGES_MAX:
            raise WindowTooLarge(tokens=state.original_tokens, limit=ORIGINAL_MESSAGES_MAX)
        rendered = rendered_originals(events, state.settings.calibration_factor)
    else:
        rendered = rendered_window(state, query.role)
    rendered = _limited(rendered, query)
    usage = usage_of(state)
    if query.original or query.max_tokens:
        usage.window_tokens = sum(m.tokens for m in rendered)
        usage.ratio = (usage.window_tokens + usage.overhead_tokens) / usage.budget_tokens
    reason = over_limit(state, policy, now_us=conversations.now_us())
    is_over = usage.ratio > 1
    live = state.live if not query.original else None
    return _pb.GetContextResponse(
        messages=context_messages(rendered),
        usage=usage,
        over_limit=is_over,
        over_limit_reason=_pb.OverLimit.Value(f"OVER_LIMIT_{reason}") if is_over and reason else 0,  # type: ignore[arg-type]  # 0 stands for UNSPECIFIED
        compacted=live is not None,
        summary_id=live.id if live else "",
        depth=live.depth if live else -1,
        pending_summarization_id=state.pending.pass_id if state.pending else "",
        message_version=state.message_version,
        rendered_json=render_json([m.message for m in rendered], query.rendering) if query.rendering else "",
    )


def over_limit(state: Conversation, policy: Policy, *, now_us: int) -> str:
    """Why a window past its trigger is not made smaller now: a name of OverLimit, empty when nothing holds it."""
    if state.ratio < policy.trigger_token_ratio:
        return ""
    if state.pending:
        return "PASS_PENDING"
    if not policy.enabled:
        return "DISABLED"
    if state.waiting(now_us):
        return "WAITING_AFTER_FAILURE"
    if compressible(state, policy, tail_messages=policy.preserve_recent) is None:
        return "IRREDUCIBLE"
    deepest = state.live is not None and state.live.depth + 1 >= policy.max_summary_chain_depth
    return "DEPTH_LIMIT" if deepest and policy.on_depth_limit is DepthLimit.HALT else ""


def _limited(rendered: tuple[RenderedMessage, ...], query: ContextQuery) -> tuple[RenderedMessage, ...]:
    if not query.max_tokens:
        return rendered
    if query.clip:
        return clipped(rendered, limit=query.max_tokens)
    tokens = sum(m.tokens for m in rendered)
    if tokens > query.max_tokens:
        raise WindowTooLarge(tokens=tokens, limit=query.max_tokens)
    return rendered
