"""GET requests to the sidecar's HTTP port, without a proxy and with the standard library alone."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException

BODY_BYTES_MAX = 4 << 20
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}  # noqa: S104  # compared with, not bound


class HttpPortError(Exception):
    """No process listens at the address, or it does not speak HTTP."""


def reachable(address: str) -> str:
    """The address at which this machine reaches a listener on `host:port`: loopback, if it listens on all addresses."""
    host, _, port = address.rpartition(":")
    return f"{_EVERYWHERE.get(host, host)}:{port}"


def get(address: str, path: str, *, timeout_s: float) -> tuple[int, str]:
    """Status and body of a GET from `host:port`; a wildcard address means this machine. Raises HttpPortError."""
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
