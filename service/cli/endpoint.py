"""What `abridged doctor` finds about the OpenAI-compatible endpoint, if a model of it is named or one is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from service.bootstrap.providers import openai_settings, unused_endpoint
from service.cli.findings import FAIL, OK, WARN, Finding
from service.config.settings import Settings
from service.models.http.address import AddressError
from service.models.openai.inventory import EndpointInventory, endpoint_inventory
from service.models.openai.settings import parse_endpoint

__all__ = ["examined_endpoint"]

TIMEOUT_S = 3.0


async def examined_endpoint(settings: Settings, models: Sequence[str]) -> list[Finding]:
    """Whether it responds, takes the key for its list of models, and lists those of `models` that are its own."""
    names = [model.removeprefix("openai:") for model in models if model.startswith("openai:")]
    if not names:
        unused = unused_endpoint(settings)
        return [Finding(WARN, f"endpoint: {unused}")] if unused else []
    group = settings.openai
    try:
        address = parse_endpoint(group.url, allow_insecure=group.allow_insecure_url)
    except AddressError as error:
        return [Finding(FAIL, f"openai.url: {error}", "see docs/configuration.md")]
    called = openai_settings(group)
    inventory = await endpoint_inventory(address, names, called, timeout_s=TIMEOUT_S, clock=time.monotonic)
    return list(_findings(inventory, names))


def _findings(inventory: EndpointInventory, models: Sequence[str]) -> Iterator[Finding]:
    if inventory.problem:
        address = "set openai.url, or summarizer.models=extractive:default, which needs no model"
        remedy = "set openai.api_key" if inventory.refuses_key else address
        yield Finding(WARN, f"endpoint {inventory.problem}", f"passes fail until it responds: {remedy}")
        return
    if not inventory.lists_models:
        where = "check that openai.url ends as the server's own examples do, mostly in /v1"
        yield Finding(WARN, f"endpoint {inventory.host}: responds, but does not list its models", where)
        return
    yield Finding(OK, f"endpoint {inventory.host}: responds, and its list of models is open to the key")
    for model in models:
        if model in inventory.missing:
            yield Finding(WARN, f"model {model}: the endpoint does not list it", "passes fail unless it serves it")
        else:
            yield Finding(OK, f"model {model}: listed")
