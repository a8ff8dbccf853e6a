"""How to call Ollama: clocks, limits and the context window, one value object for all hosts."""

from __future__ import annotations

from dataclasses import dataclass

from service.models.http.settings import HostSettings


@dataclass(frozen=True, slots=True)
class OllamaSettings(HostSettings):
    """Settings of the provider. Times are in seconds.

    The defaults are for hosts without a GPU, where a prompt of some thousand tokens takes minutes to the first byte of
    its answer. `first_byte_s` is also, separately, the longest wait for a model that is loading.

    Attributes:
        load_s: How long a load may take, whether or not a call still waits for it.
        num_ctx: The window that every call asks for, at most the model's own. A constant, because a change makes the
            server reload the model.
    """

    load_s: float = 900.0
    num_ctx: int = 16_384
