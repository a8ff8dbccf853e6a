"""Shows a conversation and its passes in responses."""

from __future__ import annotations

from functools import partial

from abridged.eventlog.event import StreamId
from abridged.service.api import wire
from abridged.service.api.auth import current_caller
from abridged.service.codec.values import ranges_to_proto
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.policies import Policies
from abridged.service.conversations.table import row_of
from abridged.service.domain.conversation import Conversation, EndedPass
from abridged.service.domain.policy import Policy
from abridged.service.domain.triggers import held_by
from abridged.service.turn import run_off_loop
from abridged.v1 import conversation_pb2


def key_of(conversation_id: str) -> StreamId:
    """The conversation in the caller's own namespace: others cannot even be named."""
    return StreamId(current_caller().namespace, conversation_id)


async def conversation_shown(
    conversations: Conversations, policies: Policies, key: StreamId, state: Conversation
) -> conversation_pb2.Conversation:
    """The conversation with everything that its state says and the caller may read: labels are texts of others, and a
    title is made from messages."""
    view = partial(conversation_view, key, state, policies.of(state.settings), conversations.now_us())
    shown = await run_off_loop(conversations.window_weight(key), view)
    if not current_caller().may("read"):
        shown.ClearField("title")
        shown.ClearField("settings")
    return shown


def conversation_view(key: StreamId, state: Conversation, policy: Policy, now_us: int) -> conversation_pb2.Conversation:
    """The conversation with everything that its state says."""
    held = held_by(state, policy, now_us)
    shown = wire.conversation_view(row_of(key, state), state.settings, held_by=held)
    shown.epoch = state.epoch
    shown.pinned_numbers.extend(sorted(state.pins))
    shown.removed.extend(ranges_to_proto(state.removed))
    return shown


def pass_named(state: Conversation, pass_id: str) -> conversation_pb2.Summarization | None:
    """The pass, pending or over; None if the conversation has none of this id.

    A caller who may not read gets a receipt without its items: they are texts of others.
    """
    if state.pending is not None and state.pending.pass_id == pass_id:
        return current_pass(state)
    ended = ended_pass(state, pass_id)
    if ended is None:
        return None
    shown = wire.ended_pass(ended)
    if not current_caller().may("read"):
        for line in shown.receipt.lines:
            line.ClearField("items")
    return shown


def current_pass(state: Conversation) -> conversation_pb2.Summarization | None:
    """The pending pass."""
    return None if state.pending is None else wire.pending_pass(state.pending, state.pending_since_us)


def ended_pass(state: Conversation, pass_id: str) -> EndedPass | None:
    """The pass of this id that is over."""
    return next((ended for ended in reversed(state.passes) if ended.plan.pass_id == pass_id), None)
