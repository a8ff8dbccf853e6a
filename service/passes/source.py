"""Reads the source of a pass: its messages, or the records that it merges, from the window or from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from eventlog.event import StreamId
from service.conversations.conversations import Conversations
from service.domain.conversation import Conversation, ShownRecord, record_named
from service.domain.events import MessageAppended, PassPlan, Trigger
from service.domain.ledger import NOTHING_FOUND, LedgerFinds
from service.domain.message import Message, Role
from service.domain.ranges import partitioned, ranges_of, without
from service.domain.record import FormName, MessageRange
from service.domain.sizes import ledger_limits, ledger_tokens, ledger_tokens_max
from service.domain.tokens import TokenCounter, calibrated_tokens
from service.summarizer.finds import finds_of
from service.summarizer.summarizer import PassWork

SOURCE_MESSAGES_MAX: Final = 100_000


async def work_of(conversations: Conversations, key: StreamId, plan: PassPlan, counter: TokenCounter) -> PassWork:
    """The work of the plan, as the conversation is now."""
    state = await conversations.state(key)
    previous = record_named(state, plan.base_id) if plan.base_id else None
    replaces = record_named(state, plan.replaces_id) if plan.replaces_id else None
    settings = state.settings
    names = plan.merged_ids if plan.form is FormName.DIGEST else ()
    found = (record_named(state, name) for name in names)
    merged = tuple(ShownRecord(r, state.sources[r.id], short=bool(r.short_summary)) for r in found if r)
    messages = tuple(map(_as_message, merged)) if merged else await _chat(conversations, key, state, plan.source)
    finds = await _finds(conversations, key, state, plan, counter)

    def in_ledger(text: str, tokens: int) -> frozenset[str]:
        without = state.window_tokens - ledger_tokens(state) - plan.replaced_tokens
        tokens = calibrated_tokens(tokens, max(1.0, settings.calibration_factor))
        limit, _ = ledger_limits(state, plan.policy, window_tokens=without + tokens, record_tokens=tokens)
        ledger = state.ledger.after(finds._replace(limit_tokens=limit, memory_tokens=limit), text)
        return frozenset(entry.key for entry in ledger.in_window)

    return PassWork(
        key.name,
        plan,
        messages,
        previous,
        settings.model,
        replaces,
        settings.calibration_factor,
        overlap=await _chat(conversations, key, state, plan.overlap) if plan.overlap else (),
        merged=merged,
        finds=finds,
        in_ledger=in_ledger,
    )


async def _chat(
    conversations: Conversations, key: StreamId, state: Conversation, ranges: tuple[MessageRange, ...]
) -> tuple[MessageAppended, ...]:
    """The messages of these ranges, from the window if it has them all as they were appended, else from the log."""
    inside, _ = partitioned(state.window, ranges)
    messages: Sequence[MessageAppended] = inside
    if len(inside) < sum(map(len, ranges)) or any(m.cleared_tokens for m in inside):
        messages = await conversations.log.originals(
            key, head=state.event_version, limit=SOURCE_MESSAGES_MAX, within=ranges
        )
    return tuple(m for m in messages if m.message.role is not Role.SYSTEM)


async def _finds(
    conversations: Conversations, key: StreamId, state: Conversation, plan: PassPlan, counter: TokenCounter
) -> LedgerFinds:
    """The identifiers of the messages that leave the window by the pass, as they were appended; by a remake none
    does."""
    if plan.trigger is Trigger.REMAKE or not ledger_tokens_max(state, plan.policy):
        return NOTHING_FOUND
    inside, staying = partitioned(state.window, without(plan.covered, ranges_of(state.pins)))
    ranges = ranges_of(m.number for m in inside)
    leaving = await _chat(conversations, key, state, ranges) if ranges else ()
    counter = counter.of(state.settings.model)
    source = counter.source_for(state.settings.model)
    find = partial(finds_of, leaving, staying, state.ledger, counter=counter, source=source)
    return await asyncio.to_thread(find)


def _as_message(shown: ShownRecord) -> MessageAppended:
    """A record as a message of a transcript, with the number of its first message."""
    record = shown.record
    text = record.short_summary if shown.short else record.summary
    message = Message(id=record.id, role=Role.ASSISTANT, content=text)
    return MessageAppended(record.covered[0].first, message, shown.tokens, shown.source)
