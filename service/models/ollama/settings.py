"""How Ollama is called: clocks, limits and the context window, one value object for all hosts."""

from __future__ import annotations

from dataclasses import dataclass, field

from service.models.breaker import BreakerPolicy

__all__ = ["OllamaSettings"]


@dataclass(frozen=True, slots=True)
class OllamaSettings:
    """Settings of the provider.

    The defaults are for hosts without a GPU, where a prompt of some thousand tokens takes minutes before the first byte
    of its answer. `first_byte_s` covers the server's queue and prompt processing, and separately the wait for a model
    that loads; the load itself may go on for `load_s`. `num_ctx` is the window that every call asks for, capped by the
    model's own: one constant, because a change makes the server load the model anew. `bearer_token` goes out as
    Authorization header.
    """

    connect_s: float = 5.0
    first_byte_s: float = 300.0
    stall_s: float = 30.0
    probe_s: float = 5.0
    load_s: float = 900.0
    calls_max: int = 1
    queue_max: int = 32
    num_ctx: int = 16_384
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    bearer_token: str = field(default="", repr=False)
