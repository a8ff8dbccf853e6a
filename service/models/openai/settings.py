"""How to call a server with an OpenAI-compatible API: clocks, limits, the window, and which models' answers count."""

from __future__ import annotations

from dataclasses import dataclass

from service.models.http.address import ServerAddress, parse_server
from service.models.http.settings import HostSettings


@dataclass(frozen=True, slots=True)
class OpenAISettings(HostSettings):
    """Settings of the provider.

    Attributes:
        window: Tokens that prompt and answer of one call share, at most the model's own if the server reports it. Such
            a server has no way to be asked for a window.
        other_models: Whether an answer counts that names another model than the one that was asked.
    """

    calls_max: int = 4
    window: int = 16_384
    other_models: bool = False


def parse_endpoint(text: str, *, allow_insecure: bool = False) -> ServerAddress:
    """The base address of the API, up to and with `/v1`; raises as `parse_server` does."""
    return parse_server(text, whose="an OpenAI-compatible endpoint", allow_insecure=allow_insecure)
