"""Finds the losses of a stream: reads each event by position, without any index, and checks it on its own."""

from __future__ import annotations

from abridged.eventlog.chain import check_commitment, envelope, link
from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.event import SealedEvent, StreamId
from abridged.eventlog.verification import RANGES_MAX, Loss, Ranges


class Suspect:
    """A stream that cannot be read as a call reads it, while its events are taken in the order of their positions.

    A chain hash names its own event as damaged, not the next: which of two that do not fit is wrong the event after
    them tells.
    """

    def __init__(self, stream: StreamId, genesis: bytes) -> None:
        self.stream = stream
        self.version = 0
        self._damaged = Ranges(RANGES_MAX)
        self._found = Ranges(RANGES_MAX)
        self._seen = self._before = 0
        self._is_anchored = True
        self._chains: tuple[tuple[bytes, int], ...] = ((genesis, 0),)

    def take(self, position: int, version: int, sealed: SealedEvent | None) -> None:
        """Check the next event; None is one that cannot be read."""
        self._seen += 1
        if version <= self.version:
            self._damaged.add(position)
            return
        if version > self.version + 1:
            self._let_go()
        self.version = version
        try:
            if sealed is None:
                raise LogCorrupt("the event cannot be read")
            check_commitment(sealed.event, sealed.salt, sealed.commitment)
        except (LogCorrupt, ValueError):
            self._let_go()
            self._damaged.add(position)
            return
        self._follow(position, sealed)
        self._before = position

    def found(self, position: int) -> None:
        """Add a lost position that the index knows to be this stream's."""
        self._found.add(position)

    def loss(self, end: int) -> Loss:
        """The loss of a stream that had at least `end` events."""
        self._let_go()
        ranges = _merged([*self._damaged.kept, *self._found.kept])
        return Loss(
            tuple(ranges[:RANGES_MAX]),
            max(0, len(ranges) - RANGES_MAX) + self._damaged.dropped + self._found.dropped,
            max(self._damaged.last, self._found.last),
            self._seen - self._damaged.count,
            max(0, max(end, self.version) - self._seen - self._found.count),
        )

    def _follow(self, position: int, sealed: SealedEvent) -> None:
        linked = [(link(chain, envelope(sealed.event), sealed.commitment), blamed) for chain, blamed in self._chains]
        fitting = [blamed for chain, blamed in linked if chain == sealed.chain]
        if fitting or not linked:
            if fitting and fitting[0]:
                self._damaged.add(fitting[0])
            self._is_anchored, self._chains = bool(linked), ((sealed.chain, 0),)
        elif len(linked) == 1:
            blamed = position if self._is_anchored else self._before
            self._chains = ((sealed.chain, blamed), (linked[0][0], position))
        else:
            self._let_go()
            self._is_anchored, self._chains = False, ((sealed.chain, 0),)

    def _let_go(self) -> None:
        """Name what the next event would have decided between: nothing can be followed from here on."""
        for blamed in sorted({blamed for _, blamed in self._chains if blamed}):
            self._damaged.add(blamed)
        self._chains = ()


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged
