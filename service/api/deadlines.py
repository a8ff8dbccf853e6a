"""Sets, for each method, the time of a call whose client sets no deadline: more than all that it may wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

from abridged.service.api.errors import DeadlinePassed
from abridged.service.api.wire import IDLE_WITHOUT_DEADLINE_S, WAIT_WITHOUT_DEADLINE_S

WORK_S = 30.0
_WAITS_S: Mapping[str, float] = {
    "abridged.v1.ConversationService/AppendMessages": WAIT_WITHOUT_DEADLINE_S,
    # Of each of its appends.
    "abridged.v1.ConversationService/IngestMessages": WAIT_WITHOUT_DEADLINE_S,
    # For a version, for a pass, and for extraction to stand in.
    "abridged.v1.ConversationService/GetContext": 3 * WAIT_WITHOUT_DEADLINE_S,
    "abridged.v1.ConversationService/SummarizeConversation": WAIT_WITHOUT_DEADLINE_S,
    "abridged.v1.ServerInfoService/WaitIdle": IDLE_WITHOUT_DEADLINE_S,
}
"""Seconds that a call without a deadline may wait, beside WORK_S for its work."""


def default_deadline_s(method: str) -> float:
    """Seconds that a call of `method` may take whose client sets no deadline."""
    return WORK_S + _WAITS_S.get(method, 0.0)


async def in_time(handling: Awaitable[Any], seconds: float) -> Any:
    """Return the result of `handling`. Raises DeadlinePassed when it takes longer."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await handling
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise DeadlinePassed("the deadline of the method has passed") from error
