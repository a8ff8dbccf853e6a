"""Detects whether others use a host, from /api/ps: a model's `expires_at` changes whenever it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LATELY_S = 60.0
"""How long after a use by others a host does not count as idle: chats pause between two turns."""


class UseWatch:
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
        """Whether others used the host within the last minute, as far as the lists tell."""
        return self._used_at is not None and self._clock() - self._used_at < LATELY_S


def expiries_of(loaded: dict[str, Any]) -> dict[str, str]:
    """When each loaded model expires, by name, as in /api/ps."""
    models = loaded.get("models")
    return {
        str(entry.get("name")): str(entry.get("expires_at"))
        for entry in (models if isinstance(models, list) else [])
        if isinstance(entry, dict)
    }
