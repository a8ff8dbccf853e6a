"""Clocks and limits of calls to a model server: one value object for all hosts of a provider."""

from __future__ import annotations

from dataclasses import dataclass, field

from abridged.service.models.breaker import BreakerPolicy


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Settings of every provider. Times are in seconds.

    Attributes:
        connect_s: Timeout to connect.
        first_byte_s: Timeout to the first byte: the server's queue and prompt processing.
        stall_s: Timeout between two lines of an answer.
        probe_s: Timeout of a question about the host or a model.
        calls_max: Concurrent calls per host.
        queue_max: Calls that may wait for a host.
        breaker: The policy by which a failing host is no longer called.
        bearer_token: Sent as Authorization header; empty for none.
    """

    connect_s: float = 5.0
    first_byte_s: float = 300.0
    stall_s: float = 30.0
    probe_s: float = 5.0
    calls_max: int = 1
    queue_max: int = 16
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    bearer_token: str = field(default="", repr=False)
