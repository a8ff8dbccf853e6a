"""Following a log that other processes write to, whose primary may take its last events with it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from structlog.testing import capture_logs

from abridged.eventlog.log import EventLog
from abridged.eventlog.memory import MemoryEventLog
from abridged.eventlog.subscription import CommitWakeUp
from abridged.service.conversations.changes import Changes
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.following import Following
from abridged.service.domain.conversation import Conversation, initial_state
from tests.support.event_logs import A, Clock, append, event
from tests.support.patience import PATIENCE_S


class _Promoted(MemoryEventLog):
    """A log that ends before the events that it had: a standby took its primary's place without them."""

    lost = 0

    def head(self) -> int:
        return super().head() - self.lost


class _AnyState:
    async def state(self, _key: object) -> Conversation:
        return initial_state()


async def test_a_head_that_falls_is_followed_from_there():
    """Positions are given out anew, and whoever waits for what gets them is woken."""
    log = _Promoted(clock_us=Clock())
    for number in range(1, 4):
        log.submit(append(event(number), expected=number - 1)).result()
    changes, wake_up = Changes(), CommitWakeUp(cast(EventLog, log))
    conversations = cast(Conversations, _AnyState())
    holds = False

    with ThreadPoolExecutor(1) as executor, capture_logs() as lines:
        following = asyncio.create_task(Following(cast(EventLog, log), executor, wake_up, changes, conversations).run())
        await _turns()
        log.lost = 2
        log.submit(append(event(4), expected=3)).result()
        await _turns()
        waiting = asyncio.create_task(
            changes.until(A, lambda: conversations.state(A), lambda _: holds, timeout_s=PATIENCE_S)
        )
        await _turns()
        holds = True
        log.submit(append(event(5), expected=4)).result()

        async with asyncio.timeout(PATIENCE_S / 2):
            await waiting
        following.cancel()
        wake_up.close()

    assert lines == []


async def _turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)
