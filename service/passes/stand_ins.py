"""Brings a window below its emergency ratio while its reader waits: extraction stands in for the due pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

from abridged.eventlog.event import StreamId
from abridged.observability.stages import Stage
from abridged.service.conversations.changes import Changes
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.commands import ApplyRules
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.policy import Policy
from abridged.service.domain.triggers import may_stand_in
from abridged.service.passes.reactor import Reactor

STAND_INS_MAX = 4
"""Extractive passes that one reader may wait for: the pending one, and those that its end requests."""


class StandIns:
    """Extraction in place of the model that a reader has waited for: a window that no chat model takes is of no use."""

    def __init__(self, conversations: Conversations, reactor: Reactor, changes: Changes) -> None:
        self._conversations = conversations
        self._reactor = reactor
        self._changes = changes

    async def relieve(
        self,
        key: StreamId,
        state: Conversation,
        policy: Policy,
        *,
        patience_s: float,
        waiting: Callable[[], AbstractContextManager[object]],
    ) -> Conversation:
        """Return the state with its window below the emergency ratio, where extraction brings it there within
        `patience_s` seconds, else the newest one. Each wait is within a `waiting`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        for _ in range(STAND_INS_MAX):
            if state.pending is None and may_stand_in(state, policy):
                # The operator's policy may be another one since the last event: the rules are asked once more.
                state, _ = await self._conversations.execute(key, lambda _: ApplyRules())
            plan, left_s = state.due_pass, until - loop.time()
            if plan is None or left_s <= 0 or not may_stand_in(state, policy):
                return state
            self._reactor.stand_in(key, plan.pass_id)
            with waiting():
                state = await self._changes.until(
                    key,
                    lambda: self._conversations.state(key),
                    _ended_is(plan.pass_id),
                    timeout_s=left_s,
                    waiting=Stage.STAND_IN,
                )
        return state


def _ended_is(pass_id: str) -> Callable[[Conversation], bool]:
    return lambda state: state.pending is None or state.pending.pass_id != pass_id
