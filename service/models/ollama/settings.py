"""Ollama's settings: as an operator writes them, and as one value object for all hosts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from abridged.service.models.http.address import ServerAddress, parse_server
from abridged.service.models.http.settings import HostSettings
from abridged.service.models.settings import Seconds, Secret, SettingsGroup, text_of

_BARE = ("http", 11_434)
_BARE_CLOUD = ("https", 443)
_CLOUD = "ollama.com"


@dataclass(frozen=True, slots=True)
class OllamaSettings(HostSettings):
    """Settings of the provider. Times are in seconds.

    The defaults are for hosts without a GPU, where a prompt of some thousand tokens takes minutes to the first byte of
    its answer. `first_byte_s` is also, separately, the longest wait for a model that is loading.

    Attributes:
        load_s: Seconds that a load may take, whether or not a call still waits for it.
        num_ctx: The window that every call asks for, at most the model's own. A constant, because a change makes the
            server reload the model.
    """

    load_s: float = 900.0
    num_ctx: int = 16_384


_DEFAULT = OllamaSettings()


def parse_address(text: str, *, allow_insecure: bool = False) -> ServerAddress:
    """Parse an address in any form that OLLAMA_HOST may have; see `parse_server` for `allow_insecure` and the errors.

    Ollama's own rules apply: no scheme means http and port 11434, except for ollama.com, which speaks https alone.
    Ollama's server uses the default for an invalid port, and its Python client raises, as we do.
    """
    is_cloud = text.strip().strip("\"'").strip().rstrip("/").lower() == _CLOUD
    bare = _BARE_CLOUD if is_cloud else _BARE
    return parse_server(text, whose="an Ollama address", bare=bare, allow_insecure=allow_insecure)


class OllamaGroup(SettingsGroup):
    """The hosts of Ollama, and the calls to them."""

    hosts: Annotated[tuple[str, ...], Field(min_length=1, max_length=32)] = Field(
        default=("127.0.0.1:11434",),
        description="Hosts, in the syntax of Ollama's own clients; invalid hosts and ports are refused.",
    )
    allow_insecure_hosts: bool = Field(
        default=False, description="Allow plain HTTP to hosts beyond loopback and private networks."
    )
    api_key: Secret = Field(default=None, description="Bearer token for hosts that require one.")
    api_key_file: Path | None = Field(default=None, description="File that contains the token.")
    connect_timeout_s: Seconds = Field(default=_DEFAULT.connect_s, description="Timeout to connect, in seconds.")
    first_byte_timeout_s: Seconds = Field(
        default=_DEFAULT.first_byte_s,
        description="Timeout to the first byte, in seconds: queue, load and prefill (minutes without a GPU).",
    )
    stall_timeout_s: Seconds = Field(default=_DEFAULT.stall_s, description="Timeout between two chunks, in seconds.")
    num_ctx: int = Field(
        default=_DEFAULT.num_ctx,
        ge=1_024,
        le=1_048_576,
        description="Context of every call, at most the model's; a constant, because a change reloads the model. At "
        "twice your conversations' context most passes take one call; less uses less memory and more calls.",
    )
    concurrency: int = Field(default=_DEFAULT.calls_max, ge=1, le=64, description="Concurrent calls per host.")
    queue_max: int = Field(default=_DEFAULT.queue_max, ge=1, le=10_000, description="Most calls that wait for a host.")
    cache_dir: Path | None = Field(
        default=None,
        description="Folder that caches model descriptions, one per digest; by default `<log.path>.models`.",
    )

    def address(self, host: str) -> ServerAddress:
        """The address that one of `hosts` names. Raises AddressError."""
        return parse_address(host, allow_insecure=self.allow_insecure_hosts)

    def addresses(self) -> list[ServerAddress]:
        """The addresses of `hosts`. Raises AddressError."""
        return [self.address(host) for host in self.hosts]

    def calls(self) -> OllamaSettings:
        """The settings as the hosts' client takes them."""
        return OllamaSettings(
            connect_s=self.connect_timeout_s,
            first_byte_s=self.first_byte_timeout_s,
            stall_s=self.stall_timeout_s,
            calls_max=self.concurrency,
            queue_max=self.queue_max,
            num_ctx=self.num_ctx,
            bearer_token=text_of(self.api_key),
        )
