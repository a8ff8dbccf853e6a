"""GetContext: chooses the window and its form, and adds its figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from abridged.eventlog.event import StreamId
from abridged.service.api.sent_window import sent_window
from abridged.service.api.wire import pass_ahead_to_proto, sent_message, usage_of
from abridged.service.codec.enums import HELD_BY, HISTORY_TOOLS, OMISSIONS, SUMMARY_ROLES
from abridged.service.codec.records import ledger_to_proto
from abridged.service.codec.values import system_prompt_to_proto
from abridged.service.conversations.cache import NOTHING_SENT, Sent
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.prefixes import NO_PREFIXES, Prefixes, ResponseForm, segment_digest
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import TooLarge, WindowTooLarge
from abridged.service.domain.events import SYSTEM_PROMPT_ID, MessageAppended, SystemPrompt
from abridged.service.domain.history_tools import HistoryTool, tools_json
from abridged.service.domain.notice import pass_ahead
from abridged.service.domain.policy import Policy, SummaryRole
from abridged.service.domain.profiles.profile import DecisionContext
from abridged.service.domain.profiles.registry import profile_of
from abridged.service.domain.ranges import without
from abridged.service.domain.record import MessageRange
from abridged.service.domain.render import RenderedMessage, clipped, rendered_originals, rendered_window
from abridged.service.domain.render_json import RenderedJson, Rendering, render_json
from abridged.service.domain.triggers import held_by
from abridged.service.turn import run_off_loop
from abridged.v1 import conversation_pb2, conversation_service_pb2

ORIGINAL_MESSAGES_MAX = 20_000
"""Messages of one response with the ORIGINAL view; read longer conversations with ReadEvents."""

ORIGINAL_BYTES_MAX = 16 << 20
"""Stored bytes of those messages: bounds a response's time and memory, however long the messages are."""

_pb = conversation_service_pb2
_RENDERINGS = {
    _pb.RENDERING_OPENAI: Rendering.OPENAI,
    _pb.RENDERING_ANTHROPIC: Rendering.ANTHROPIC,
    _pb.RENDERING_OLLAMA: Rendering.OLLAMA,
}


class ContextQuery(NamedTuple):
    """The parts of a window that a caller asks for. `max_tokens` 0 is no limit of the caller's."""

    role: SummaryRole
    original: bool
    max_tokens: int
    clip: bool
    rendering: Rendering | None
    cache_marks: bool
    tools: frozenset[HistoryTool]
    ledger: bool
    notice: bool

    @property
    def form(self) -> ResponseForm:
        """Return the choices that the bytes of a window depend on."""
        return ResponseForm(self.role, self.rendering, self.cache_marks)

    @classmethod
    def of(cls, request: _pb.GetContextRequest | _pb.ContextOptions, *, default_role: SummaryRole) -> ContextQuery:
        """The query of a valid request, or of one's options."""
        asked = request.summary_role != conversation_pb2.SUMMARY_ROLE_UNSPECIFIED
        return cls(
            role=SUMMARY_ROLES.to_domain(request.summary_role) if asked else default_role,
            original=request.view == _pb.CONTEXT_VIEW_ORIGINAL,
            max_tokens=request.max_tokens,
            clip=request.clip,
            rendering=_RENDERINGS.get(request.rendering),
            cache_marks=request.cache_marks and request.rendering == _pb.RENDERING_ANTHROPIC,
            tools=frozenset(map(HISTORY_TOOLS.to_domain, request.with_tools)),
            ledger=request.with_ledger,
            notice=request.with_notice,
        )


async def context_of(
    conversations: Conversations,
    key: StreamId,
    state: Conversation,
    query: ContextQuery,
    policy: Policy,
    count_bytes: Callable[[int], None],
) -> bytes:
    """A GetContextResponse, serialized.

    `count_bytes` is called, from any thread, with the bytes of its texts before it is made.
    Raises WindowTooLarge when it cannot be within `max_tokens`, TooLarge when there are more originals than fit one
    response, and what `count_bytes` raises.
    """
    answering = Answering(state, query, policy, conversations.now_us())
    count_text = conversations.counting.by_model(state.settings.model).count
    if query.original:
        events = await conversations.log.originals(
            key,
            state,
            limit=ORIGINAL_MESSAGES_MAX + 1,
            within=without((MessageRange(1, state.message_version),), state.removed),
            bytes_max=ORIGINAL_BYTES_MAX,
            on_read=count_bytes,
        )
        if len(events) > ORIGINAL_MESSAGES_MAX:
            raise TooLarge("messages", size=len(events), limit=ORIGINAL_MESSAGES_MAX)
        # A window is bounded by its model's context, the originals only by the limits above.
        return await asyncio.to_thread(answering.originals, events, count_text)
    count_bytes(conversations.window_bytes(key))
    if query.clip:
        # Large texts are counted for their excerpts: too much for the event loop.
        before = conversations.sent(key)
        answer, sent = await asyncio.to_thread(answering.clipped, before, count_text)
    else:
        before = conversations.sent(key)
        answer, sent = await run_off_loop(conversations.window_weight(key), lambda: answering.window(before))
    conversations.keep_sent(key, state, sent)
    return answer


def window_of(state: Conversation, policy: Policy, now_us: int) -> _pb.GetContextResponse:
    """The whole window of a state, without options, to a caller to whom none was sent before."""
    query = ContextQuery.of(_pb.GetContextRequest(), default_role=policy.summary_role)
    data, _ = Answering(state, query, policy, now_us).window(NOTHING_SENT)
    return _pb.GetContextResponse.FromString(data)


@dataclass(frozen=True, slots=True)
class Answering:
    """The parts of a response. Runs in any thread."""

    state: Conversation
    query: ContextQuery
    policy: Policy
    now_us: int

    def window(self, before: Sent) -> tuple[bytes, Sent]:
        """The window, of which `before` was sent last; and what is sent now."""
        sent = sent_window(self.state, self.query.role, before)
        tokens = sum([part.tokens for part in sent.parts])
        if 0 < self.query.max_tokens < tokens:
            raise WindowTooLarge(tokens=tokens, limit=self.query.max_tokens)
        around, prefixes = self._around(sent.messages, tokens, sent.digests, before.prefixes)
        return b"".join([*[part.data for part in sent.parts], around]), sent.after(prefixes)

    def clipped(self, before: Sent, count: Callable[[str], int]) -> tuple[bytes, Sent]:
        """The window with excerpts where they are needed; and what was sent before, with what this response is."""
        data, prefixes = self._whole(
            self._limited(rendered_window(self.state, self.query.role), count), before.prefixes
        )
        return data, before.after(prefixes)

    def originals(self, events: Sequence[MessageAppended], count: Callable[[str], int]) -> bytes:
        """Every message as appended."""
        rendered = self._limited(rendered_originals(events, self.state.settings.calibration_factor), count)
        return self._whole(rendered, NO_PREFIXES)[0]

    def _whole(self, rendered: Sequence[RenderedMessage], before: Prefixes) -> tuple[bytes, Prefixes]:
        """The response with these messages, and what `before` becomes."""
        sent = [sent_message(m) for m in rendered]
        digests = b"".join([digest for _, digest in sent])
        around, prefixes = self._around(rendered, sum([m.tokens for m in rendered]), digests, before)
        return b"".join([*[data for data, _ in sent], around]), prefixes

    def _limited(
        self, rendered: tuple[RenderedMessage, ...], count: Callable[[str], int]
    ) -> tuple[RenderedMessage, ...]:
        limit = self.query.max_tokens
        tokens = sum(m.tokens for m in rendered)
        if not 0 < limit < tokens:
            return rendered
        if not self.query.clip:
            raise WindowTooLarge(tokens=tokens, limit=limit)
        return clipped(rendered, limit=limit, count=count)

    def _around(
        self, rendered: Sequence[RenderedMessage], tokens: int, digests: bytes, before: Prefixes
    ) -> tuple[bytes, Prefixes]:
        """Return everything but the messages themselves, which cost `tokens` and have these digests, and the
        successor of `before`."""
        state, query = self.state, self.query
        usage = usage_of(state, state.settings)
        if query.original or query.max_tokens:
            usage.window_tokens = tokens
            usage.ratio = (tokens + usage.overhead_tokens) / usage.budget_tokens
        made = _in_form(rendered, query, state.settings.system_prompt)
        if made is not None and not query.original:
            digests = b"".join([segment_digest(entry.text.encode()) for entry in made.entries])
        stable = before.stable(query.form, digests)
        numbers = {m.message.id: m.number for m in rendered} if made and made.omitted else {}
        live = state.live if not query.original else None
        held = held_by(state, self.policy, self.now_us)
        ahead = pass_ahead(state, self._context()) if query.notice and not query.original else None
        response = _pb.GetContextResponse(
            usage=usage,
            over_limit=usage.ratio > 1,
            held_by=HELD_BY.to_proto(held) if held else conversation_pb2.HELD_BY_UNSPECIFIED,
            compacted=live is not None,
            summary_id=live.id if live else "",
            depth=live.depth if live else None,
            pending_summarization_id=state.pending.pass_id if state.pending else "",
            message_version=state.message_version,
            epoch=state.epoch,
            stable_messages=stable if made is None else max(0, stable - len(made.system)),
            stable_tokens=tokens - sum([m.tokens for m in rendered[stable:]])
            if made is None
            else _tokens(rendered, made, stable, state.settings.overhead - state.settings.overhead_tokens),
            rendered_json="" if made is None else made.text(marked=stable if query.cache_marks else 0),
            tools_json=tools_json(query.tools, query.rendering) if query.tools and query.rendering else "",
            omitted_attachments=[
                _pb.OmittedAttachment(
                    message_id=o.message_id,
                    number=numbers[o.message_id],
                    index=o.place,
                    reason=OMISSIONS.to_proto(o.reason),
                )
                for o in (made.omitted if made else ())
            ],
            ledger=ledger_to_proto(state.ledger.in_window) if query.ledger and not query.original else (),
            system_prompt=system_prompt_to_proto(state.settings.system_prompt),
            pass_ahead=pass_ahead_to_proto(ahead) if ahead else None,
        )
        return response.SerializeToString(), before.after(query.form, digests)

    def _context(self) -> DecisionContext:
        return DecisionContext(profile_of(self.policy.profile), self.policy, self.now_us, "")


def _in_form(
    rendered: Sequence[RenderedMessage], query: ContextQuery, prompt: SystemPrompt | None
) -> RenderedJson | None:
    if query.rendering is None:
        return None
    messages = [*([prompt.message] if prompt else ()), *(m.message for m in rendered)]
    return render_json(messages, query.rendering, cache_marks=query.cache_marks)


def _tokens(rendered: Sequence[RenderedMessage], made: RenderedJson, stable: int, prompt_tokens: int) -> int:
    """The tokens of the first `stable` entries of a rendering."""
    tokens = {m.message.id: m.tokens for m in rendered} | {SYSTEM_PROMPT_ID: prompt_tokens}
    # A message may be in several entries: a system prompt is a block each.
    return sum(tokens[id_] for id_ in {id_ for entry in made.entries[:stable] for id_ in entry.message_ids})
