"""Shares a bounded amount among namespaces: places, slots, bytes.

A namespace gets no more than is left free: one alone gets half, two that want everything get a third each, and n leave
one part in n + 1 for the next. That is the dynamic threshold of shared-memory switches (Choudhury and Hahne,
1998) with factor 1: no share is fixed beforehand, and none has to be taken back. A server that knows one namespace
gives it everything.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock


class Shares:
    """Safe in any thread. `shared` says whether there is more than one namespace."""

    def __init__(self, total: int, *, shared: bool) -> None:
        self._total = total
        self._shared = shared
        self._held: Counter[str] = Counter()
        self._free = total
        self._lock = Lock()

    def has_room(self, namespace: str, amount: int = 1) -> bool:
        """Whether the namespace may hold `amount` more. An amount above the total needs all of it to be free."""
        held = self._held[namespace] if self._shared else 0
        return held + min(amount, self._total) <= self._free

    def take(self, namespace: str, amount: int = 1) -> None:
        """Hold `amount` more, whether there is room or not."""
        with self._lock:
            self._held[namespace] += amount
            self._free -= amount

    def take_if_room(self, namespace: str, amount: int = 1) -> bool:
        """Hold `amount` more if there is room. Returns whether there was."""
        with self._lock:
            if not self.has_room(namespace, amount):
                return False
            self._held[namespace] += amount
            self._free -= amount
            return True

    def give_back(self, namespace: str, amount: int = 1) -> None:
        """Hold `amount` less."""
        with self._lock:
            self._held[namespace] -= amount
            self._free += amount

    def held(self, namespace: str) -> int:
        """Return the namespace's share."""
        return self._held[namespace]
