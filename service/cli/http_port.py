"""The sidecar's HTTP port, asked without a proxy and without a library for it."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException

__all__ = ["HttpPortError", "get", "reachable"]

BODY_BYTES_MAX = 4 << 20
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}  # noqa: S104  # what is listened at, not listened by us


class HttpPortError(Exception):
    """Nobody answers there, or nobody who speaks HTTP."""


def reachable(address: str) -> str:
    """Where this machine finds who listens at `host:port`: on loopback, when that is everywhere."""
    host, _, port = address.rpartition(":")
    return f"{_EVERYWHERE.get(host, host)}:{port}"


def get(address: str, path: str, *, timeout_s: float) -> tuple[int, str]:
    """Status and body of a GET at `host:port`, where an address to listen at means this machine."""
    host, _, port = reachable(address).rpartition(":")
    connection = HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(BODY_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, HTTPException) as error:
        raise HttpPortError(f"{address}: {error.__class__.__name__}") from error
    finally:
        connection.close()
