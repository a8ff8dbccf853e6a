"""A circuit breaker: after repeated failures of a host it refuses calls at once, then lets one trial through.

Invariant: in HALF_OPEN at most one call runs, and its outcome decides between CLOSED and OPEN. A call that ends without
an outcome (cancelled, out of time) only frees the trial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class BreakerState(StrEnum):
    """The state of a breaker, which tells whether calls go through."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """`failures_max` failures in a row open the circuit for `open_s` seconds."""

    failures_max: int = 5
    open_s: float = 30.0


class CircuitBreaker:
    """Counts failures in a row. `on_change` is called with each new state, on the event loop's thread."""

    def __init__(
        self, policy: BreakerPolicy, *, clock: Callable[[], float], on_change: Callable[[BreakerState], None]
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._on_change = on_change
        self._failures = 0
        self._opened_at: float | None = None
        self._trial_running = False
        self._state = BreakerState.CLOSED

    @property
    def state(self) -> BreakerState:
        """The current state; an open circuit whose time is over is half open."""
        if self._state is BreakerState.OPEN and self._open_left_s() <= 0:
            self._move(BreakerState.HALF_OPEN)
        return self._state

    def refusal_s(self) -> float | None:
        """Seconds until the next attempt; None if a call may be made now."""
        match self.state:
            case BreakerState.CLOSED:
                return None
            case BreakerState.HALF_OPEN:
                return self._policy.open_s if self._trial_running else None
            case BreakerState.OPEN:
                return self._open_left_s()

    def began(self) -> None:
        """A call starts; `refusal_s` was None."""
        if self.state is BreakerState.HALF_OPEN:
            self._trial_running = True

    def succeeded(self) -> None:
        """The host answered, even if it refused the request."""
        self._trial_running = False
        self._failures = 0
        self._opened_at = None
        self._move(BreakerState.CLOSED)

    def failed(self) -> None:
        self._trial_running = False
        self._failures += 1
        # A failed trial opens again at once: the count that opened the circuit is still there.
        if self._failures >= self._policy.failures_max:
            self._opened_at = self._clock()
            self._move(BreakerState.OPEN)

    def abandoned(self) -> None:
        """The call ended without an outcome."""
        self._trial_running = False

    def _open_left_s(self) -> float:
        if self._opened_at is None:
            return 0.0
        return self._opened_at + self._policy.open_s - self._clock()

    def _move(self, state: BreakerState) -> None:
        if state is not self._state:
            self._state = state
            self._on_change(state)
