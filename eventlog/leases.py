"""Leases: which process works on a stream for now, in the time of the log's own clock.

A lease says who may begin, and never who may write: that is decided in the log, by the event that the token names. The
holder of a lease counts its time from before the call that took or renewed it, and so stops before another may begin.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from abridged.eventlog.event import StreamId


class Leases(Protocol):
    """The leases of a log that several processes write. Every method may run in any thread, and raises an
    EventLogError.

    A token is the version of the event by which a process claimed its work; a greater one takes the place of a smaller.
    """

    def hold(self, tokens: Mapping[StreamId, int], seconds: float) -> set[StreamId]:
        """Take or renew the leases of these streams for `seconds`; 0 has them lapse. Returns those that are held.

        A lease that has lapsed is not renewed: another process may have been told so.
        """
        ...

    def lapsed(self, streams: Collection[StreamId], seconds: float) -> dict[StreamId, int]:
        """Return the streams whose lease has lapsed, with its token.

        A stream without a lease gets one of token 0 for `seconds`, because the work of its process may just begin.
        """
        ...

    def drop(self, tokens: Mapping[StreamId, int]) -> None:
        """Forget the leases of work that has ended, if none is newer, and some that lapsed long ago: nobody else drops
        what a process leaves that was killed at the end of its work."""
        ...
