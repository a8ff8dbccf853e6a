"""Where the gRPC server listens: TCP ports that nobody else has, unix sockets that are really ours.

gRPC would let a second server share a port (SO_REUSEPORT) and would take over a living unix socket; both are refused.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

__all__ = ["NO_REUSE", "AddressTaken", "bind", "guarded"]

NO_REUSE = ("grpc.so_reuseport", 0)
"""The server option without which two sidecars would share a port and its calls."""

_UNIX = "unix:"
SOCKET_MODE = 0o660


class AddressTaken(Exception):
    """Another process listens at the address, or it cannot be bound."""


def guarded(address: str, resources: ExitStack) -> None:
    """Make sure that a unix socket's path is ours before it is bound: lock it, and remove what a dead server left."""
    if not address.startswith(_UNIX):
        return
    path = Path(address.removeprefix(_UNIX))
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    resources.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise AddressTaken(f"another process listens at {address}") from error
    path.unlink(missing_ok=True)
    resources.callback(path.unlink, missing_ok=True)


def bind(server: Any, address: str) -> str:
    """Bind and answer the address with its real port; a socket is for its owner and group alone."""
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise AddressTaken(f"cannot listen at {address}") from error
    if address.startswith(_UNIX):
        os.chmod(address.removeprefix(_UNIX), SOCKET_MODE)
        return address
    return f"{address.rpartition(':')[0]}:{port}"
