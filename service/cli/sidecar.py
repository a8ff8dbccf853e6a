"""How a command gets its settings and calls the sidecar; every expected failure leaves here as a click exception."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from service.cli.failures import CommandFailed, Misconfigured, of_config_error, of_sidecar_error
from service.cli.http_port import HttpPortError, get
from service.cli.options import Invocation
from service.client import Patience, SidecarClient, SidecarError
from service.config.settings import ClientSettings
from service.config.sources import ConfigError, Configuration, environment, load

__all__ = ["call", "client_for", "configuration", "failure_at", "run"]

HTTP_PROBE_S = 1.0
_NO_HINTS: Mapping[str, str] = MappingProxyType({})

T = TypeVar("T")


def configuration(invocation: Invocation, forced: Mapping[str, Any] | None = None) -> Configuration:
    """The settings, where `forced` wins over everything. Raises Misconfigured."""
    flags: dict[str, Any] = {}
    for assignment in invocation.assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise Misconfigured(f"--set takes NAME=VALUE, not '{name}'")
        flags[name.strip()] = value
    try:
        return load(environment(), flags=flags | dict(forced or {}), config_path=invocation.config_path)
    except ConfigError as error:
        raise of_config_error(error) from error


def client_for(settings: ClientSettings, *, patience: Patience | None = None) -> SidecarClient:
    """A client for the sidecar that the settings name; to be made inside an event loop."""
    return SidecarClient(
        settings.address,
        token=settings.token.get_secret_value() if settings.token else "",
        deadline_s=settings.deadline_s,
        patience=patience or Patience(),
    )


def call(
    invocation: Invocation,
    work: Callable[[SidecarClient], Coroutine[Any, Any, T]],
    *,
    patience: Patience | None = None,
    hints: Mapping[str, str] = _NO_HINTS,
) -> T:
    """The result of `work` with a client. Raises CommandFailed for what the sidecar refuses.

    `hints` say what to do about a reason where this command knows better than the usual hint.
    """
    settings = configuration(invocation).settings.client

    async def calling() -> T:
        async with client_for(settings, patience=patience) as client:
            return await work(client)

    try:
        return asyncio.run(calling())
    except SidecarError as error:
        raise failure_at(settings.address, error, hints=hints) from error


def failure_at(address: str, error: SidecarError, *, hints: Mapping[str, str] = _NO_HINTS) -> CommandFailed:
    """What a failed call to `address` means; says so when that is a port for HTTP, which no gRPC client can tell."""
    if error.code == "UNAVAILABLE" and not error.reason and _answers_http(address):
        return CommandFailed(
            f"{address} is an HTTP port: health and metrics, no calls", hint="give the port of server.listen (gRPC)"
        )
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
    """Run a coroutine on an event loop of its own; a SidecarError becomes CommandFailed."""
    try:
        return asyncio.run(work)
    except SidecarError as error:
        raise of_sidecar_error(error) from error
