"""Whether somebody else uses a host, as far as /api/ps tells: a model's `expires_at` moves whenever it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["UseWatch", "expiries_of"]

LATELY_S = 60.0
"""So long after a use by others a host is not taken for idle: chats pause between two turns."""


class UseWatch:
    """Compares what one host says of its loaded models from look to look. `clock` counts seconds."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: Mapping[str, str] | None = None
        self._used_at: float | None = None

    def own_call(self) -> None:
        """A call of ours has moved what the next look finds: that look compares with nothing."""
        self._seen = None

    def look(self, expiries: Mapping[str, str]) -> None:
        """Take in what the host says now: a model that came, or was used since the last look, was so by others."""
        seen = self._seen
        if seen is not None and any(seen.get(name) != expiry for name, expiry in expiries.items()):
            self._used_at = self._clock()
        self._seen = expiries

    @property
    def used_lately(self) -> bool:
        """Whether others have used the host within the last minute, as far as the looks tell."""
        return self._used_at is not None and self._clock() - self._used_at < LATELY_S


def expiries_of(loaded: dict[str, Any]) -> dict[str, str]:
    """When each loaded model expires, as /api/ps writes it."""
    models = loaded.get("models")
    return {
        str(entry.get("name")): str(entry.get("expires_at"))
        for entry in (models if isinstance(models, list) else [])
        if isinstance(entry, dict)
    }
