"""Passes that no append triggers: after a wait, after silence, or to remake a fallback record once a model is back.

The state after every commit says when they are due, so nothing here needs to survive a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any, NamedTuple

import structlog

from abridged.eventlog.event import StreamId
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.commands import ApplyRules, EndWait, RemakeFallback
from abridged.service.domain.conversation import Conversation, next_remake
from abridged.service.domain.events import Trigger
from abridged.service.domain.policy import WAIT_S_MAX
from abridged.service.passes.commits import TRANSIENT, CommitPauses

PROBE_FIRST_S = 15.0
PROBE_MAX_S = 60.0
"""A host that is busy for an hour is found idle within a minute: a probe costs it two small questions."""

_log = structlog.get_logger()


class _Armed(NamedTuple):
    """A timer for `at_us`: the end of a wait, as the log has it, or of a silence, for which it may be too early."""

    at_us: int
    handle: asyncio.TimerHandle


class Wakeups:
    """Times waits, silences and remakes. `has_time` returns whether a model is idle. Lives on one event loop."""

    def __init__(
        self, conversations: Conversations, *, has_time: Callable[[], Awaitable[bool]], pauses: CommitPauses
    ) -> None:
        self._conversations = conversations
        self._has_time = has_time
        self._pauses = pauses
        self._waits: dict[StreamId, _Armed] = {}
        self._silences: dict[StreamId, _Armed] = {}
        self._fallbacks: dict[StreamId, None] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._probe: asyncio.TimerHandle | None = None
        self._probe_after_s = PROBE_FIRST_S
        self._stopping = False

    async def stop(self) -> None:
        """Request no further passes."""
        self._stopping = True
        for armed in (*self._waits.values(), *self._silences.values()):
            armed.handle.cancel()
        if self._probe:
            self._probe.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def woken(self) -> None:
        """Return when every pass whose time has come has been requested, or found to be none."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def changed(self, key: StreamId, state: Conversation) -> None:
        """Act on the state after a commit."""
        if state.pending is None and state.waiting(self._conversations.now_us()):
            self.end_wait_at(key, state.wait_until_us)
        elif (armed := self._waits.pop(key, None)) is not None:
            armed.handle.cancel()
        self.ask_after_silence(key, self._conversations.idle_from_us(state))
        if next_remake(state) is not None:
            self.remake_later(key)
        else:
            self._fallbacks.pop(key, None)

    def loaded(self, key: StreamId, state: Conversation) -> None:
        """Act on a state read from the log, without replacing what is known of it."""
        waits = state.failures_in_row and state.wait_until_us and not state.closed
        if state.pending is None and waits and key not in self._waits:
            self.end_wait_at(key, state.wait_until_us)
        if asked_us := self._conversations.idle_from_us(state):
            self.ask_after_silence(key, asked_us)
        if next_remake(state) is not None:
            self.remake_later(key)

    def ask_after_silence(self, key: StreamId, at_us: int) -> None:
        """Apply the rules at this time unless another is given before; 0 for never. A timer that runs is kept: every
        message moves the time on."""
        armed = self._silences.pop(key, None)
        if not at_us or self._stopping:
            if armed is not None:
                armed.handle.cancel()
        elif armed is not None and armed.at_us <= at_us:
            self._silences[key] = armed._replace(at_us=at_us)
        else:
            if armed is not None:
                armed.handle.cancel()
            left_s = max(0.0, (at_us - self._conversations.now_us()) / 1e6)
            handle = asyncio.get_running_loop().call_later(left_s, self._silent, key)
            self._silences[key] = _Armed(at_us, handle)

    def end_wait_at(self, key: StreamId, at_us: int) -> None:
        """Request a pass at the end of the wait, measured by a steady clock from now."""
        armed = self._waits.get(key)
        if self._stopping or (armed is not None and armed.at_us == at_us):
            return
        if armed is not None:
            armed.handle.cancel()
        left_s = (at_us - self._conversations.now_us()) / 1e6
        # No wait is as long as that: the clock was set back since.
        delay_s = max(0.0, left_s) if left_s <= WAIT_S_MAX else 0.0
        handle = asyncio.get_running_loop().call_later(delay_s, self._end_wait, key, at_us)
        self._waits[key] = _Armed(at_us, handle)

    def remake_later(self, key: StreamId) -> None:
        """Have a fallback record of the live chain remade when a model is available and idle."""
        self._fallbacks.setdefault(key)
        self._schedule_probe()

    def model_answered(self) -> None:
        """Remake the fallback record that has waited longest, if the model has time; a success leads to the next."""
        if self._fallbacks and not self._stopping:
            self._spawn(self._remake_next(), None)

    def _end_wait(self, key: StreamId, at_us: int) -> None:
        self._waits.pop(key, None)
        self._spawn(self._wait_ended(key, at_us), key)

    def _silent(self, key: StreamId) -> None:
        at_us = self._silences.pop(key).at_us
        if at_us > self._conversations.now_us():
            self.ask_after_silence(key, at_us)
        else:
            self._spawn(self._silence_ended(key), key)

    async def _silence_ended(self, key: StreamId) -> None:
        if await self._asked(key, ApplyRules()) is None and key not in self._silences:
            self.ask_after_silence(key, self._later_us())

    async def _wait_ended(self, key: StreamId, at_us: int) -> None:
        if await self._asked(key, EndWait(at_us)) is None:
            self.end_wait_at(key, self._later_us())

    def _later_us(self) -> int:
        return self._conversations.now_us() + int(self._pauses.max_s * 1e6)

    async def _remake_next(self) -> bool:
        """Request the next remake. Returns whether the model had time and the window had room for it."""
        if not self._fallbacks or not await self._has_time():
            return False
        key = next(iter(self._fallbacks), None)
        if key is None:
            return False
        del self._fallbacks[key]
        state = await self._asked(key, RemakeFallback())
        if state is None or next_remake(state) is not None:
            # Not now, or not yet: it stays one of those that are still to be remade.
            self.remake_later(key)
        return state is not None and state.pending is not None and state.pending.trigger is Trigger.REMAKE

    async def _asked(self, key: StreamId, command: ApplyRules | EndWait | RemakeFallback) -> Conversation | None:
        """The state after the command; None if the log cannot take it now."""
        try:
            state, _ = await self._conversations.execute(key, lambda _: command)
        except TRANSIENT as error:
            _not_requested(key, error)
            return None
        return state

    def _schedule_probe(self) -> None:
        if self._fallbacks and self._probe is None and not self._stopping:
            loop = asyncio.get_running_loop()
            self._probe = loop.call_later(self._probe_after_s, lambda: self._spawn(self._probe_model(), None))

    async def _probe_model(self) -> None:
        """Request a remake, less and less often while none succeeds, as long as there are fallback records."""
        self._probe = None
        try:
            requested = await self._remake_next()
            self._probe_after_s = PROBE_FIRST_S if requested else min(PROBE_MAX_S, 2 * self._probe_after_s)
        finally:
            self._schedule_probe()

    def _spawn(self, work: Coroutine[Any, Any, object], key: StreamId | None) -> None:
        def ended(task: asyncio.Task[object]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                _not_requested(key, error)

        # In no span: whose pass or append it is that wakes this work is no matter of its conversation.
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._tasks.add(task)
        task.add_done_callback(ended)


def _not_requested(key: StreamId | None, error: BaseException) -> None:
    name = key.name if key else ""
    _log.warning("pass.not_requested", conversation_id=name, error_type=type(error).__name__)
