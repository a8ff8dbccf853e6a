"""Opens the addresses of the gRPC server: TCP ports that no other process has, unix sockets that are really ours.

gRPC would let a second server share a port (SO_REUSEPORT) and would take over a living unix socket; both are refused.
Each address is tried before gRPC gets it, since gRPC does not say why it cannot bind, and prints its own lines.

    ListenError
    ├── AddressTaken      another process listens there
    └── AddressUnusable   nobody could listen there: no such host or folder, no permission
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

NO_REUSE = ("grpc.so_reuseport", 0)
"""The server option without which two sidecars would share a port and its calls."""

_UNIX = "unix:"
SOCKET_MODE = 0o660
SOCKET_PATH_BYTES_MAX = 107
"""The longest path that fits into the kernel's sockaddr_un with its end."""


class ListenError(Exception):
    """The server cannot listen at an address; `setting` names where that is from."""

    def __init__(self, message: str, *, setting: str = "server.listen") -> None:
        super().__init__(message)
        self.setting = setting


class AddressTaken(ListenError):
    """Another process listens at the address."""


class AddressUnusable(ListenError):
    """Nobody could listen at the address here."""


def guarded(address: str, resources: ExitStack | AsyncExitStack) -> None:
    """Make sure that the address is ours before it is bound. Raises ListenError.

    A unix socket's path is locked until `resources` are closed, and what a dead server left there is removed.
    """
    if not address.startswith(_UNIX):
        try_port(address)
        return
    path = Path(address.removeprefix(_UNIX))
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise AddressUnusable(f"cannot listen on {address}: the path is longer than {SOCKET_PATH_BYTES_MAX} bytes")
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise AddressUnusable(f"cannot listen on {address}: {error.strerror}") from error
    resources.callback(os.close, lock)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise AddressTaken(f"cannot listen on {address}: the address is in use") from error
    try:
        _remove_socket(path, address)
    except OSError as error:
        raise AddressUnusable(f"cannot listen on {address}: {error.strerror}") from error
    resources.callback(path.unlink, missing_ok=True)


def bind(server: Any, address: str) -> str:
    """Bind and answer the address with its real port; a socket is for its owner and group alone. Raises ListenError."""
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        # It was free a moment ago.
        raise AddressTaken(f"cannot listen on {address}: the address is in use") from error
    if address.startswith(_UNIX):
        os.chmod(address.removeprefix(_UNIX), SOCKET_MODE)
        return address
    return f"{address.rpartition(':')[0]}:{port}"


def _remove_socket(path: Path, address: str) -> None:
    """Remove a dead server's socket; whatever else has that name is somebody's."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise AddressTaken(f"cannot listen on {address}: what has that name is no socket")
    path.unlink(missing_ok=True)


def try_port(address: str, *, setting: str = "server.listen") -> None:
    """Bind the port and let it go; of a host with several addresses, one that can be bound is enough. Raises
    ListenError."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(
            host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise AddressUnusable(f"cannot listen on {address}: {error.strerror}", setting=setting) from error
    refused: list[OSError] = []
    for family, kind, protocol, _name, place in found:
        try:
            _bind_once(family, kind, protocol, place)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                message = f"cannot listen on {address}: the address is in use"
                raise AddressTaken(message, setting=setting) from error
            refused.append(error)
    if len(refused) == len(found):
        message = f"cannot listen on {address}: {refused[0].strerror}"
        raise AddressUnusable(message, setting=setting) from refused[0]


def _bind_once(family: int, kind: int, protocol: int, place: Any) -> None:
    with socket.socket(family, kind, protocol) as probe:
        # As gRPC does: connections that a dead server left in TIME_WAIT take nothing.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind(place)
