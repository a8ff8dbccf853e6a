"""Shares a bounded amount among namespaces: places, slots, bytes.

A namespace gets no more than is left free: one alone gets half, two that want everything get a third each, and n leave
one part in n + 1 for the next. The rule is the dynamic threshold of shared-memory switches (Choudhury and Hahne, 1998)
with factor 1: no share is fixed beforehand, and none has to be taken back. A server that knows one namespace gives it
everything.
"""

from __future__ import annotations

from threading import Lock


class Shares:
    """Safe in any thread. `multi_tenant` says whether there is more than one namespace."""

    def __init__(self, total: int, *, multi_tenant: bool) -> None:
        self.total = total
        self.multi_tenant = multi_tenant
        self.free = total
        self.lock = Lock()

    def share(self) -> Share:
        """A share for one more namespace, which holds nothing yet."""
        return Share(self)


class Share:
    """Counts the part of `shares` that one namespace holds."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self.held = 0

    def has_room(self, amount: int = 1) -> bool:
        """Return whether the namespace may hold `amount` more. An amount above the total needs all of it to be free."""
        shares = self._shares
        return (self.held if shares.multi_tenant else 0) + min(amount, shares.total) <= shares.free

    def take(self, amount: int = 1) -> None:
        """Hold `amount` more, whether there is room or not."""
        with self._shares.lock:
            self.held += amount
            self._shares.free -= amount

    def take_if_room(self, amount: int = 1) -> bool:
        """Hold `amount` more if there is room. Returns whether there was."""
        with self._shares.lock:
            if not self.has_room(amount):
                return False
            self.held += amount
            self._shares.free -= amount
            return True

    def give_back(self, amount: int = 1) -> None:
        """Hold `amount` less."""
        self.take(-amount)
