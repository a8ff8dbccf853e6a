"""How a call to a sidecar fails, and how often it is made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a call is made, and the pauses in between, which double: full jitter, or what the server asks for."""

    attempts_max: int = 4
    pause_base_s: float = 0.1
    pause_max_s: float = 2.0

    def pause_s(self, attempt: int, error: SidecarError, *, uniform: Callable[[float, float], float]) -> float | None:
        """Seconds until the next attempt, None at the end. `attempt` counts from 1."""
        if not error.retryable or attempt >= self.attempts_max:
            return None
        if error.retry_after_s is not None:
            return min(error.retry_after_s, self.pause_max_s) + uniform(0.0, self.pause_base_s)
        return uniform(0.0, min(self.pause_max_s, self.pause_base_s * 2.0 ** (attempt - 1)))


DEFAULT_PATIENCE = Patience()


class SidecarError(Exception):
    """A call failed.

    `code` is the gRPC status, `reason` our reason, empty when no sidecar answered. `violations` has the fields of an
    INVALID_ARGUMENT with what is wrong with each.
    """

    def __init__(
        self,
        code: str,
        reason: str,
        message: str,
        *,
        metadata: Mapping[str, str],
        violations: tuple[tuple[str, str], ...] = (),
        retry_after_s: float | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.metadata = metadata
        self.violations = violations
        self.retry_after_s = retry_after_s
        self.retryable = retryable
