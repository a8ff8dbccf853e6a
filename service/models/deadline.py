"""The time that a caller gives to one request, shared by everything that the request waits for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

from service.models.model import ModelUnavailable

__all__ = ["Deadline", "DeadlineOver"]


class DeadlineOver(ModelUnavailable):
    """The time that the caller gave was up; it says nothing about the host."""


class Deadline:
    """A point in time after which nothing of the request goes on. `paused_s` is how long it was held up."""

    def __init__(self, seconds: float, *, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = clock() + seconds
        self.paused_s = 0.0

    @property
    def left_s(self) -> float:
        """Seconds left, 0 when the time is up."""
        return max(0.0, self._until - self._clock())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time that passes in the body does not count."""
        began = self._clock()
        try:
            yield
        finally:
            passed_s = self._clock() - began
            self._until += passed_s
            self.paused_s += passed_s

    def over(self, host: str) -> DeadlineOver:
        """The error that says so."""
        return DeadlineOver(f"{host}: the request's {self._seconds:g} s were over")

    def rest(self, host: str) -> AbstractAsyncContextManager[None]:
        """Cancel the body when the time is up, with DeadlineOver."""
        return self.limit(math.inf, host, "")

    @asynccontextmanager
    async def limit(
        self, seconds: float, host: str, says: str, *, error: type[ModelUnavailable] = ModelUnavailable
    ) -> AsyncIterator[None]:
        """Cancel the body after `seconds`, or earlier when the deadline comes first.

        Raises `error` with `says` in the first case, DeadlineOver in the second.
        """
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
