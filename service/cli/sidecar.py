"""Calls the sidecar of a command's settings over gRPC or its HTTP port.

Every expected failure of a call becomes a click exception here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from http.client import HTTPConnection, HTTPException
from typing import Any, TypeVar

from abridged.client import AsyncConversations, Patience, SidecarError
from abridged.service.cli.configured import configuration
from abridged.service.cli.failures import NO_HINTS, CommandFailed, Misconfigured, of_sidecar_error
from abridged.service.cli.options import Invocation
from abridged.service.config.settings import ClientSettings, is_local_address
from abridged.service.config.sources import Configuration

HTTP_PROBE_S = 1.0
BODY_BYTES_MAX = 4 << 20
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}  # noqa: S104  # compared with, not bound

_OF_CALLS = ("client.", "server.listen", "server.tokens")
"""The settings by which a command reaches a sidecar; all others are those of the sidecar itself."""

T = TypeVar("T")


def named_by(found: Configuration) -> str:
    """Return the origin of client.address, such as `flag` or `file abridged.toml`; empty if it is the default."""
    origin = found.origins["client.address"]
    return "" if origin.kind == "default" else str(origin).removesuffix(" client.address")


def client_settings(found: Configuration) -> ClientSettings:
    """Return how to reach the sidecar of these settings: at client.address, or else where server.listen has moved it.

    The sidecar's own tokens go to the address that it listens at alone; the one with most scopes is sent.
    """
    client, server = found.settings.client, found.settings.server
    if named_by(found):
        return client
    # Port 0 is chosen at each start, so that nobody can know it from the settings.
    known = [address for address in server.listen if not address.endswith(":0")]
    if not known:
        return client
    address = next((local for local in known if is_local_address(local)), known[0])
    readers = [grant for grant in server.tokens if "read" in grant.scopes]
    token = client.token or next((grant.token for grant in sorted(readers, key=lambda grant: -len(grant.scopes))), None)
    return client.model_copy(update={"address": reachable(address), "token": token})


def client_for(settings: ClientSettings, *, patience: Patience | None = None) -> AsyncConversations:
    """Return a client for the configured sidecar; call this inside an event loop."""
    return AsyncConversations(
        settings.address,
        token=settings.token.get_secret_value() if settings.token else "",
        deadline_s=settings.deadline_s,
        patience=patience or Patience(),
    )


def call(
    invocation: Invocation,
    work: Callable[[AsyncConversations], Coroutine[Any, Any, T]],
    *,
    patience: Patience | None = None,
    hints: Mapping[str, str] = NO_HINTS,
) -> T:
    """Run `work` with a client and return its result. Raises CommandFailed if the sidecar refuses a call, and
    Misconfigured for a setting that a call does not take.

    `hints` are this command's own hints by error reason; they take precedence over the usual ones.
    """
    for name, equals, _ in (assignment.partition("=") for assignment in invocation.assignments):
        if equals and not name.strip().startswith(_OF_CALLS):
            raise Misconfigured(
                f"--set {name} changes nothing here: the sidecar has its own settings",
                hint="give it to `abridged serve`, or to a conversation's settings in a call",
            )
    settings = client_settings(configuration(invocation))

    async def calling() -> T:
        async with client_for(settings, patience=patience) as client:
            return await work(client)

    try:
        return asyncio.run(calling())
    except SidecarError as error:
        raise failure_at(settings.address, error, hints=hints) from error


def failure_at(address: str, error: SidecarError, *, hints: Mapping[str, str] = NO_HINTS) -> CommandFailed:
    """Return a call's error as a failure; says so if `address` is an HTTP port, which a gRPC client cannot see."""
    if error.code == "UNAVAILABLE" and not error.reason and _answers_http(address):
        what = f"{address} is an HTTP port, which takes calls as JSON, and none over gRPC"
        return CommandFailed(what, hint="use the port of server.listen")
    return of_sidecar_error(error, hints=hints)


def _answers_http(address: str) -> bool:
    if address.startswith("unix:"):
        return False
    try:
        get(address, "/livez", timeout_s=HTTP_PROBE_S)
    except HttpPortError:
        return False
    return True


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop; a SidecarError becomes CommandFailed."""
    try:
        return asyncio.run(work)
    except SidecarError as error:
        raise of_sidecar_error(error) from error


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
