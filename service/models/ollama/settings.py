"""How to call Ollama: clocks, limits and the context window, one value object for all hosts."""

from __future__ import annotations

from dataclasses import dataclass, field

from service.models.breaker import BreakerPolicy

__all__ = ["OllamaSettings"]


@dataclass(frozen=True, slots=True)
class OllamaSettings:
    """Settings of the provider. Times are in seconds.

    The defaults are for hosts without a GPU, where a prompt of some thousand tokens takes minutes to the first byte of
    its answer.

    Attributes:
        connect_s: Timeout to connect.
        first_byte_s: Timeout to the first byte: the server's queue and prompt processing; also, separately, the longest
            wait for a model that is loading.
        stall_s: Timeout between two lines of an answer.
        probe_s: Timeout of a question about the host or a model.
        load_s: How long a load may take, whether or not a call still waits for it.
        calls_max: Concurrent calls per host.
        queue_max: Calls that may wait for a host.
        num_ctx: The window that every call asks for, at most the model's own. A constant, because a change makes the
            server reload the model.
        breaker: When a failing host is no longer called.
        bearer_token: Sent as Authorization header; empty for none.
    """

    connect_s: float = 5.0
    first_byte_s: float = 300.0
    stall_s: float = 30.0
    probe_s: float = 5.0
    load_s: float = 900.0
    calls_max: int = 1
    queue_max: int = 16
    num_ctx: int = 16_384
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    bearer_token: str = field(default="", repr=False)
