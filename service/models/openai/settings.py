"""The endpoint's settings: as an operator writes them, and as one value object for its client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from abridged.service.models.http.address import ServerAddress, parse_server
from abridged.service.models.http.settings import HostSettings
from abridged.service.models.settings import Seconds, Secret, SettingsGroup, text_of


@dataclass(frozen=True, slots=True)
class OpenAISettings(HostSettings):
    """Settings of the provider.

    Attributes:
        window: Tokens that prompt and answer of one call share, at most the model's own if the server reports it. No
            request can ask such a server for a window.
        other_models: True if an answer counts that names another model than the one that was asked.
    """

    calls_max: int = 4
    window: int = 16_384
    other_models: bool = False


_DEFAULT = OpenAISettings()


def parse_endpoint(text: str, *, allow_insecure: bool = False) -> ServerAddress:
    """The base address of the API, up to and with `/v1`; raises as `parse_server` does."""
    return parse_server(text, whose="an OpenAI-compatible endpoint", allow_insecure=allow_insecure)


class OpenAIGroup(SettingsGroup):
    """A server with an OpenAI-compatible API: OpenAI, vLLM, llama.cpp, LiteLLM and others."""

    url: str = Field(
        default="https://api.openai.com/v1",
        description="Base address of the API, up to and with `/v1`. Nothing is sent there unless a model is named "
        "`openai:NAME`.",
    )
    allow_insecure_url: bool = Field(
        default=False, description="Allow plain HTTP beyond loopback and private networks."
    )
    api_key: Secret = Field(default=None, description="API key, sent as bearer token.")
    api_key_file: Path | None = Field(default=None, description="File that contains the key.")
    connect_timeout_s: Seconds = Field(default=_DEFAULT.connect_s, description="Timeout to connect, in seconds.")
    first_byte_timeout_s: Seconds = Field(
        default=_DEFAULT.first_byte_s, description="Timeout to the first byte, in seconds: queue and prefill."
    )
    stall_timeout_s: Seconds = Field(default=_DEFAULT.stall_s, description="Timeout between two lines, in seconds.")
    context_length: int = Field(
        default=_DEFAULT.window,
        ge=1_024,
        le=16_777_216,
        description="Tokens that prompt and answer of one call share, at most the model's if the server lists it.",
    )
    other_models: bool = Field(
        default=False,
        description="Accept answers in another model's name, as routers and named deployments give them; otherwise "
        "such a model counts as missing.",
    )
    concurrency: int = Field(default=_DEFAULT.calls_max, ge=1, le=64, description="Concurrent calls.")
    queue_max: int = Field(default=_DEFAULT.queue_max, ge=1, le=10_000, description="Most calls that wait.")

    def address(self) -> ServerAddress:
        """The address that `url` names. Raises AddressError."""
        return parse_endpoint(self.url, allow_insecure=self.allow_insecure_url)

    def calls(self) -> OpenAISettings:
        """The settings as the endpoint's client takes them."""
        return OpenAISettings(
            connect_s=self.connect_timeout_s,
            first_byte_s=self.first_byte_timeout_s,
            stall_s=self.stall_timeout_s,
            calls_max=self.concurrency,
            queue_max=self.queue_max,
            window=self.context_length,
            other_models=self.other_models,
            bearer_token=text_of(self.api_key),
        )
