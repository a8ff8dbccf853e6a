"""Commits a pass: its claim, its record, or its end without one.

If the log is busy or full, or another writer came first, the commit is retried a bounded number of times. All other
errors would only repeat, so they are raised at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Final

import structlog

from abridged.eventlog.errors import EventLogError, LogFull, LogUnavailable, WrongExpectedVersion
from abridged.eventlog.event import StreamId
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.commands import CompletePass, FailPass, ReleasePass, StartPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import DomainError
from abridged.service.domain.events import Event, PassPlan, SummarizationStarted
from abridged.service.summarizer.summarizer import PassFailed, PassResult

TRANSIENT: Final = (LogFull, LogUnavailable, WrongExpectedVersion)
"""Errors that pass by themselves: the same step can be committed later."""

ATTEMPTS_MAX = 8
RELEASE_S = 1.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CommitPauses:
    """Seconds between attempts at one step: `first_s`, doubled each time, at most `max_s`, which also separates two
    rounds of attempts."""

    first_s: float = 0.25
    max_s: float = 30.0

    def after(self, attempt: int) -> float:
        """The pause after attempt number `attempt`, from 0."""
        return min(self.max_s, self.first_s * 2.0**attempt)


class PassCommits:
    """Commits passes, step by step. `hash_key` keys the hashes of refused model output."""

    def __init__(self, conversations: Conversations, *, pauses: CommitPauses, hash_key: bytes) -> None:
        self._conversations = conversations
        self._pauses = pauses
        self._hash_key = hash_key

    async def claim(self, key: StreamId, plan: PassPlan) -> Conversation | None:
        """Claim the pass and return the state after it; None if it is not wanted and has ended instead.

        Raises PassSuperseded if it is no longer pending, or an EventLogError.
        """
        state, events = await self._committed(key, StartPass(plan.pass_id))
        return state if isinstance(events[0], SummarizationStarted) else None

    async def release(self, key: StreamId, plan: PassPlan) -> None:
        """Give the claim back at shutdown, in one attempt: a failure costs only the claim."""
        try:
            async with asyncio.timeout(RELEASE_S):
                await self._conversations.execute(key, lambda _: ReleasePass(plan.pass_id))
        except (DomainError, EventLogError, TimeoutError) as error:
            _log.warning("pass.not_released", conversation_id=key.name, error_type=type(error).__name__)

    async def complete(self, key: StreamId, plan: PassPlan, result: PassResult) -> tuple[Conversation, list[Event]]:
        """Commit the record, or that it saves too little or is not wanted. Raises as `claim` does."""
        return await self._committed(
            key,
            CompletePass(
                pass_id=plan.pass_id,
                record=result.record,
                source=result.source,
                fallback=result.fallback,
                model_failed=result.failure is not None and not result.interrupted,
                interrupted=result.interrupted,
                tried=result.tried,
                finds=result.finds,
                leaving=result.leaving,
                rules=result.rules,
            ),
        )

    async def fail(self, key: StreamId, plan: PassPlan, failure: PassFailed) -> None:
        """End the pass without a record. Raises as `claim` does."""
        await self._committed(
            key,
            FailPass(
                pass_id=plan.pass_id,
                error_class=failure.error_class,
                attempts=failure.attempts,
                retryable=failure.retryable,
                output_bytes=len(failure.output.encode()),
                output_hash=_output_hash(self._hash_key, failure.output),
                cause=failure.cause,
                asked=failure.asked,
                tried=failure.tried,
            ),
        )

    async def _committed(
        self, key: StreamId, command: StartPass | CompletePass | FailPass
    ) -> tuple[Conversation, list[Event]]:
        for attempt in range(ATTEMPTS_MAX - 1):
            try:
                return await self._conversations.execute(key, lambda _: command)
            except TRANSIENT as error:
                _log.warning("pass.commit_delayed", conversation_id=key.name, error_type=type(error).__name__)
            await asyncio.sleep(self._pauses.after(attempt))
        return await self._conversations.execute(key, lambda _: command)


def _output_hash(key: bytes, output: str) -> bytes:
    """A keyed hash of a bad answer, by which two can be compared and neither guessed."""
    return hashlib.blake2b(output.encode(), key=key, digest_size=16).digest() if output else b""
