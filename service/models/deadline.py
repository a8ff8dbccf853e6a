"""The deadline of a request, shared by everything that the request waits for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

from abridged.service.models.model import ModelUnavailable


class DeadlineOver(ModelUnavailable):
    """The caller's time is up, which says nothing about the host."""


class Deadline:
    """A deadline. `paused_s` is how long it was paused."""

    def __init__(self, seconds: float, *, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = clock() + seconds
        self.paused_s = 0.0

    @property
    def left_s(self) -> float:
        """Seconds left; 0 if the time is up."""
        return max(0.0, self._until - self._clock())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in the body does not count."""
        began = self._clock()
        try:
            yield
        finally:
            passed_s = self._clock() - began
            self._until += passed_s
            self.paused_s += passed_s

    def over(self, host: str) -> DeadlineOver:
        """The error to raise when time is up."""
        return DeadlineOver(f"{host}: no answer within {round(self._seconds, 2):g} s, the time of this request")

    def rest(self, host: str) -> AbstractAsyncContextManager[None]:
        """Cancel the body at the deadline, with DeadlineOver."""
        return self.limit(math.inf, host, "")

    @asynccontextmanager
    async def limit(
        self, seconds: float, host: str, says: str, *, error: type[ModelUnavailable] = ModelUnavailable
    ) -> AsyncIterator[None]:
        """Cancel the body after `seconds`, with `error` and the message `says`, or at the deadline, with
        DeadlineOver."""
        left_s = self.left_s
        try:
            async with asyncio.timeout(min(seconds, left_s)) as timer:
                yield
        except TimeoutError as late:
            if not timer.expired():
                raise
            if left_s < seconds:
                raise self.over(host) from late
            raise error(f"{host}: {says} within {seconds:g} s") from late
