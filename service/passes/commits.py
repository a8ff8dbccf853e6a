"""Commits a pass: its claim, its record, or its end without one.

The commit is retried a bounded number of times if the log is busy or full, or another writer came first. All other
errors would only repeat, so they are raised at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from abridged.eventlog.errors import EventLogError, LogFull, LogUnavailable, WrongExpectedVersion
from abridged.eventlog.event import StreamId
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.commands import CompletePass, FailPass, ReleasePass, StartPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import DomainError
from abridged.service.domain.events import Event, PassPlan, SummarizationStarted
from abridged.service.passes.claims import RELEASE_S, Claim, Claims
from abridged.service.summarizer.summarizer import PassFailed, PassResult

TRANSIENT: Final = (LogFull, LogUnavailable, WrongExpectedVersion)
"""Errors that pass by themselves: the same step can be committed later."""

ATTEMPTS_MAX = 8

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


class Claimed(NamedTuple):
    """A claim that is in the log: the state after it, and when it was sent, by the loop's clock."""

    state: Conversation
    claim: Claim
    sent_s: float


class PassCommits:
    """Commits passes, step by step, while their claims hold. `hash_key` keys the hashes of refused model output."""

    def __init__(self, conversations: Conversations, *, claims: Claims, pauses: CommitPauses, hash_key: bytes) -> None:
        self._conversations = conversations
        self._claims = claims
        self._pauses = pauses
        self._hash_key = hash_key

    async def claim(self, key: StreamId, plan: PassPlan, *, after: int) -> Claimed | None:
        """Claim the pass in the place of the claim with the token `after`; None if it is not wanted and has ended.

        Raises PassSuperseded if it is no longer pending or another process has claimed it, or an EventLogError.
        """
        sent_s = 0.0

        def start(_state: Conversation) -> StartPass:
            nonlocal sent_s
            sent_s = asyncio.get_running_loop().time()
            return StartPass(plan.pass_id, self._claims.owner, after)

        state, events = await self._committed(key, start)
        if not isinstance(events[0], SummarizationStarted):
            return None
        return Claimed(state, Claim(key, plan.pass_id, state.claim_token), sent_s)

    async def release(self, claim: Claim) -> None:
        """Give the claim back at shutdown, in one attempt: a failure costs only the claim."""
        try:
            async with asyncio.timeout(RELEASE_S):
                await self._conversations.execute(claim.key, lambda _: ReleasePass(claim.pass_id, claim.token))
        except (DomainError, EventLogError, TimeoutError) as error:
            _log.warning("pass.not_released", conversation_id=claim.key.name, error_type=type(error).__name__)

    async def complete(self, claim: Claim, result: PassResult) -> tuple[Conversation, list[Event]]:
        """Commit the record, or that it saves too little or is not wanted. Raises as `claim` does."""
        command = CompletePass(
            pass_id=claim.pass_id,
            token=claim.token,
            record=result.record,
            source=result.source,
            fallback=result.fallback,
            model_failed=result.failure is not None and not result.interrupted,
            interrupted=result.interrupted,
            tried=result.tried,
            finds=result.finds,
            leaving=result.leaving,
            rules=result.rules,
        )
        return await self._committed(claim.key, lambda _: command, held=claim)

    async def fail(self, claim: Claim, failure: PassFailed, *, is_held: bool) -> None:
        """End the pass without a record, even if the process does not hold its claim. Raises as `claim` does."""
        command = FailPass(
            pass_id=claim.pass_id,
            token=claim.token,
            error_class=failure.error_class,
            attempts=failure.attempts,
            retryable=failure.retryable,
            output_bytes=len(failure.output.encode()),
            output_hash=_output_hash(self._hash_key, failure.output),
            cause=failure.cause,
            asked=failure.asked,
            tried=failure.tried,
        )
        await self._committed(claim.key, lambda _: command, held=claim if is_held else None)

    async def _committed(
        self,
        key: StreamId,
        command: Callable[[Conversation], StartPass | CompletePass | FailPass],
        held: Claim | None = None,
    ) -> tuple[Conversation, list[Event]]:
        """Commit, in several attempts if it must be; none is made after the lapse of a claim that has to be `held`."""
        for attempt in range(ATTEMPTS_MAX):
            if held is not None:
                self._claims.require(held)
            if attempt == ATTEMPTS_MAX - 1:
                break
            try:
                return await self._conversations.execute(key, command)
            except TRANSIENT as error:
                _log.warning("pass.commit_delayed", conversation_id=key.name, error_type=type(error).__name__)
            await asyncio.sleep(self._pauses.after(attempt))
        return await self._conversations.execute(key, command)


def _output_hash(key: bytes, output: str) -> bytes:
    """A keyed hash of a bad answer, by which two can be compared and neither guessed."""
    return hashlib.blake2b(output.encode(), key=key, digest_size=16).digest() if output else b""
