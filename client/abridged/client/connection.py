"""The one way to a sidecar that both clients go: options of the channel, credential, stubs, retries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import grpc

from abridged.client.errors import DEFAULT_PATIENCE, Patience, SidecarError, error_of_call
from abridged.v1 import (
    conversation_service_pb2_grpc,
    event_log_service_pb2_grpc,
    server_info_service_pb2_grpc,
    text_service_pb2_grpc,
)

ADDRESS = "127.0.0.1:7420"
"""The address of a sidecar that no setting moves."""

RECEIVE_BYTES_MAX = 256 << 20
HEALTH = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"
"""A HealthCheckResponse that says SERVING."""

OPTIONS = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    # A sidecar is never behind the proxy that the environment names for the web.
    ("grpc.enable_http_proxy", 0),
    # Each client has one channel; sharing the process's connection pool would share another one's backoff.
    ("grpc.use_local_subchannel_pool", 1),
    # A sidecar that starts is there within a second; gRPC's own first pause is as long.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # The retries here know what the sidecar says of them; two loops would multiply.
    ("grpc.enable_retries", 0),
)

_STUBS: dict[str, Any] = {
    "ConversationService": conversation_service_pb2_grpc.ConversationServiceStub,
    "EventLogService": event_log_service_pb2_grpc.EventLogServiceStub,
    "ServerInfoService": server_info_service_pb2_grpc.ServerInfoServiceStub,
    "TextService": text_service_pb2_grpc.TextServiceStub,
}


@dataclass(frozen=True, slots=True)
class Connection:
    """The address, the credential and the limits with which a client makes its calls.

    Attributes:
        address: `host:port` or `unix:/path`.
        token: The credential; empty for a sidecar without tokens.
        deadline_s: Seconds of each attempt of a call, beside what the call waits for.
        patience: The number of attempts of a call, and the pauses in between.
    """

    address: str = ADDRESS
    token: str = field(default="", repr=False)
    deadline_s: float = 30.0
    patience: Patience = DEFAULT_PATIENCE

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The credential as every call sends it."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def pause_s(self, attempt: int, error: SidecarError) -> float:
        """Seconds until the next attempt. Raises the error if no attempt follows."""
        pause_s = self.patience.pause_s(attempt, error)
        if pause_s is None:
            raise error
        return pause_s

    def error(self, error: grpc.RpcError) -> SidecarError:
        """The failure of a call, in the contract's words."""
        return error_of_call(error, self.address)

    def not_serving(self) -> SidecarError:
        """The error of a sidecar that answers, and says that it does not serve yet, or no longer."""
        return SidecarError(
            "UNAVAILABLE", "", f"{self.address}: the sidecar answers, but does not serve", metadata={}, retryable=True
        )

    def ended(self) -> SidecarError:
        """The error of a stream without an end that has ended: the sidecar stops."""
        return SidecarError("UNAVAILABLE", "", f"{self.address}: the sidecar stops", metadata={}, retryable=True)


def stubs(channel: Any) -> dict[str, Any]:
    """The contract's stubs of a channel, by service."""
    return {name: stub(channel) for name, stub in _STUBS.items()}
