"""One call of a model as a fact, for metrics, spans and logs; it holds no text of any message or answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ModelCall", "OnCall"]


@dataclass(frozen=True, slots=True)
class ModelCall:
    """What one request to one host came to.

    `finish_reason` is empty when the call failed, `error_class` is empty when it did not; CANCELLED means that the
    caller went away. Token counts are the server's, 0 when it gave none.
    """

    provider: str
    model: str
    host: str
    input_tokens: int
    output_tokens: int
    duration_s: float
    finish_reason: str
    error_class: str


OnCall = Callable[[ModelCall], None]
