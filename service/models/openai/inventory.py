"""Examines an endpoint before passes depend on it: does it accept the key, and list the models?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from service.models.deadline import Deadline
from service.models.http.address import ServerAddress
from service.models.http.errors import AnswerInvalid, HostRefused
from service.models.model import ModelError
from service.models.openai.errors import KeyRefused
from service.models.openai.model import MODELS_PATH, listed, open_endpoint
from service.models.openai.settings import OpenAISettings
from service.models.openai.wire import is_same_model


@dataclass(frozen=True, slots=True)
class EndpointInventory:
    """An endpoint and its models.

    Attributes:
        host: Its label, `host:port`.
        lists_models: Whether it lists its models; some do not.
        missing: The requested models that its list lacks.
        problem: Why it cannot be used; empty if it can.
        refuses_key: Whether the problem is the API key.
    """

    host: str
    lists_models: bool = False
    missing: tuple[str, ...] = ()
    problem: str = ""
    refuses_key: bool = False


async def endpoint_inventory(
    address: ServerAddress,
    models: Sequence[str],
    settings: OpenAISettings,
    *,
    timeout_s: float,
    clock: Callable[[], float],
) -> EndpointInventory:
    """Ask the endpoint for its list of models, within `timeout_s`. Never raises ModelError."""
    host = open_endpoint(address, replace(settings, connect_s=timeout_s, probe_s=timeout_s), clock=clock)
    try:
        found = listed(await host.get(MODELS_PATH, Deadline(timeout_s, clock=clock)))
    except KeyRefused as error:
        return EndpointInventory(host.label, problem=str(error), refuses_key=True)
    except (AnswerInvalid, HostRefused):
        return EndpointInventory(host.label)
    except ModelError as error:
        return EndpointInventory(host.label, problem=str(error))
    finally:
        await host.close()
    missing = tuple(model for model in models if not any(is_same_model(model, name) for name, _ in found))
    return EndpointInventory(host.label, lists_models=True, missing=missing)
