"""Leases in memory, in the time of a clock that all who hold them share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from abridged.eventlog.event import StreamId


class Lease(NamedTuple):
    """The lease of a stream."""

    token: int
    until_s: float


class MemoryLeases:
    """Leases without a database."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self.rows: dict[StreamId, Lease] = {}

    def hold(self, tokens: Mapping[StreamId, int], seconds: float) -> set[StreamId]:
        now_s = self._clock_s()
        held = {stream for stream, token in tokens.items() if self._may_hold(stream, token, now_s)}
        self.rows.update({stream: Lease(tokens[stream], now_s + seconds) for stream in held})
        return held

    def lapsed(self, streams: Collection[StreamId], seconds: float) -> dict[StreamId, int]:
        now_s = self._clock_s()
        known = {stream: self.rows[stream] for stream in streams if stream in self.rows}
        self.rows.update({stream: Lease(0, now_s + seconds) for stream in streams if stream not in known})
        return {stream: row.token for stream, row in known.items() if row.until_s <= now_s}

    def drop(self, tokens: Mapping[StreamId, int]) -> None:
        for stream, token in tokens.items():
            if (row := self.rows.get(stream)) is not None and row.token <= token:
                del self.rows[stream]

    def _may_hold(self, stream: StreamId, token: int, now_s: float) -> bool:
        row = self.rows.get(stream)
        return row is None or row.token < token or (row.token == token and row.until_s > now_s)
