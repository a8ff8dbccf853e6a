"""Retries of model calls: how often, after which delay, under one deadline for all attempts.

Invariant: only errors whose type is retryable are retried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from abridged.service.models.model import Completion, CompletionRequest, ModelUnavailable, OnProgress, SummaryModel


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of retries. `attempts_max` includes the first attempt. A server that asks for more than
    `retry_after_max_s` is not retried."""

    attempts_max: int = 2
    delay_base_s: float = 0.25
    delay_max_s: float = 10.0
    retry_after_max_s: float = 10.0


OnRetry = Callable[[ModelUnavailable], None]
"""Receives the error of a failed attempt before the wait for the next one."""


def backoff_s(attempt: int, policy: RetryPolicy, rng: Random) -> float:
    """Full jitter: a random delay up to a bound that doubles with each attempt.

    Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    return rng.uniform(0.0, min(policy.delay_max_s, policy.delay_base_s * 2.0 ** (attempt - 1)))


async def complete_with_retry(
    model: SummaryModel,
    request: CompletionRequest,
    *,
    policy: RetryPolicy,
    deadline_s: float,
    rng: Random,
    sleep: Callable[[float], Awaitable[None]],
    clock: Callable[[], float],
    on_retry: OnRetry,
    on_progress: OnProgress,
) -> Completion:
    """The model's answer, after at most `policy.attempts_max` attempts within `deadline_s`. Raises the last error.

    Time in this process's own queue does not count against `deadline_s`.
    """
    until = clock() + deadline_s
    for attempt in range(1, policy.attempts_max):
        try:
            return await model.complete(request, deadline_s=until - clock(), on_progress=on_progress)
        except ModelUnavailable as error:
            until += error.queued_s
            delay_s = max(backoff_s(attempt, policy, rng), error.retry_after_s or 0.0)
            asks_too_much = (error.retry_after_s or 0.0) > policy.retry_after_max_s
            if asks_too_much or delay_s >= until - clock():
                raise
            on_retry(error)
        await sleep(delay_s)
    return await model.complete(request, deadline_s=until - clock(), on_progress=on_progress)
