"""One Ollama server: a model host that knows whether others use it and keeps places for abandoned prompts.

Ollama notices that a client has left only while it generates: it reads a prompt to the end even if nobody waits for it
(measured with 0.24), and a call that arrives then waits for that prompt with its own clock running. A call that ends
before the first byte therefore keeps its place for as long as the prompt plausibly takes, and the next call, including
a retry, waits in our own queue, where no clock runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from abridged.service.models.deadline import Deadline
from abridged.service.models.http.address import ServerAddress
from abridged.service.models.http.errors import HostRefused
from abridged.service.models.http.host import ModelHost, OnAsked, OnBreaker, Place
from abridged.service.models.model import ModelError
from abridged.service.models.ollama.errors import classify_status
from abridged.service.models.ollama.settings import OllamaSettings

LATELY_S = 60.0
"""Seconds after a use by others in which a host does not count as idle: chats pause between two turns."""


class OllamaHost(ModelHost):
    """An Ollama server and this process's calls to it."""

    def __init__(
        self,
        address: ServerAddress,
        settings: OllamaSettings,
        *,
        clock: Callable[[], float],
        on_breaker: OnBreaker,
        on_asked: OnAsked = lambda _address: None,
    ) -> None:
        super().__init__(
            address, settings, classify=classify_status, clock=clock, on_breaker=on_breaker, on_asked=on_asked
        )
        self._uses = _UseWatch(clock=clock)

    async def idle(self) -> bool | None:
        """Return whether the host seems unused; None if it cannot be asked."""
        if self.breaker.refusal_s() is not None:
            return None
        if self.in_flight:
            return False
        try:
            loaded = await self.get("/api/ps", Deadline(self._settings.probe_s, clock=self._clock))
        except HostRefused:
            # A proxy may hide this path, and with it any use by others.
            return True
        except ModelError:
            return None
        self._uses.look(_expiries_of(loaded))
        return not self._uses.used_lately

    def _keep_for_abandoned(self, place: Place, waited_s: float) -> None:
        place.keep_for_abandoned(waited_s, kept_s_max=self._settings.first_byte_s)

    def _give_back(self, place: Place) -> None:
        self._uses.own_call()
        super()._give_back(place)


def open_hosts(
    addresses: Sequence[ServerAddress],
    settings: OllamaSettings,
    *,
    clock: Callable[[], float],
    on_breaker: OnBreaker = lambda _host, _state: None,
    on_asked: OnAsked = lambda _address: None,
) -> tuple[OllamaHost, ...]:
    """One host per address; connections open on first use."""
    return tuple(
        OllamaHost(address, settings, clock=clock, on_breaker=on_breaker, on_asked=on_asked) for address in addresses
    )


class _UseWatch:
    """Compares successive lists of one host's loaded models. `clock` returns seconds."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: Mapping[str, str] | None = None
        self._used_at: float | None = None

    def own_call(self) -> None:
        """Note a call of ours, which changes the next list: do not compare that one."""
        self._seen = None

    def look(self, expiries: Mapping[str, str]) -> None:
        """Compare the current list: a model that was loaded or used since the last one was so by others."""
        seen = self._seen
        if seen is not None and any(seen.get(name) != expiry for name, expiry in expiries.items()):
            self._used_at = self._clock()
        self._seen = expiries

    @property
    def used_lately(self) -> bool:
        """True if others used the host within the last minute, as far as the lists tell."""
        return self._used_at is not None and self._clock() - self._used_at < LATELY_S


def _expiries_of(loaded: dict[str, Any]) -> dict[str, str]:
    """Return the expiry of each loaded model by name, as in /api/ps."""
    models = loaded.get("models")
    return {
        str(entry.get("name")): str(entry.get("expires_at"))
        for entry in (models if isinstance(models, list) else [])
        if isinstance(entry, dict)
    }
