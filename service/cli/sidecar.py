"""How a command gets its settings and calls the sidecar; every expected failure leaves here as a click exception."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from service.cli.failures import Misconfigured, of_config_error, of_sidecar_error
from service.cli.options import Invocation
from service.client import Patience, SidecarClient, SidecarError
from service.config import ConfigError, Configuration, environment, load
from service.settings import ClientSettings

__all__ = ["call", "client_for", "configuration", "run"]

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
) -> T:
    """The result of `work` with a client. Raises CommandFailed for what the sidecar refuses."""
    settings = configuration(invocation).settings.client

    async def calling() -> T:
        async with client_for(settings, patience=patience) as client:
            return await work(client)

    return run(calling())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own; a SidecarError becomes CommandFailed."""
    try:
        return asyncio.run(work)
    except SidecarError as error:
        raise of_sidecar_error(error) from error
