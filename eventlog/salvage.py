"""The contract of a salvage: a new log of what a damaged one can prove, and what it says is missing.

A salvage reads bytes. `Meaning` tells it what events and rows mean, which no log knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.rows import RowTable
from abridged.eventlog.verification import Ranges

REMNANTS = ".lost.jsonl"
"""The end of the name of the file with the remnants, after that of the new log."""

VACANT = ".lost"
"""The namespace of vacancies, which no credential can name."""


class Rest(NamedTuple):
    """The rest of a stream's events, some of which take the contents of earlier ones away.

    Attributes:
        left: Returns the payload that is left of an event; called for each in order.
        erasure: Type, schema version and payload of the event that says that the whole stream is erased; None for one
            that is not.
        erased_at: The version of that event; 0 if it is lost, and something else tells that the stream was erased.
    """

    left: Callable[[RecordedEvent], bytes]
    erasure: tuple[str, int, bytes] | None = None
    erased_at: int = 0


class Meaning(NamedTuple):
    """The meaning of the events, which their owner knows.

    Attributes:
        types: The event types that may be met.
        namespaces: Namespaces of streams, as far as they are known without the log.
        opens: Returns the names that a stream may have by the payload of its first event.
        content: Returns what a repeat of an event is known by.
        origin: Returns the stream that an event's own begins from and the version up to which, if it begins from one.
        vacancy: Returns type, schema version and payload of an event that tells why a position is vacant. The
            function gets the event's own stream and version, and the text.
        erasing: The types of events that take the contents of earlier ones away.
        is_readable: Returns whether the contents of an event can be read; one whose contents cannot counts as missing.
        require_keys: Raises KeysUnusable if contents were looked at and no key was found for any. Called once all were.
        rest: Returns what is left of the events of a stream, which need not be all; by the flag it is known to be
            erased.
        line: Returns an event of the log with this id as a line of text.
        table: The table of rows beside the events.
        events_of: Returns the number of a stream's events by its row.
        is_erased: Returns whether a stream was erased, by its row.
    """

    types: Sequence[str]
    namespaces: Collection[str]
    opens: Callable[[bytes], Iterable[str]]
    content: Callable[[RecordedEvent], bytes]
    origin: Callable[[RecordedEvent], tuple[StreamId, int] | None]
    vacancy: Callable[[StreamId, int, str], tuple[str, int, bytes]]
    erasing: Collection[str]
    is_readable: Callable[[RecordedEvent], bool]
    require_keys: Callable[[], None]
    rest: Callable[[StreamId, Iterable[RecordedEvent], bool], Rest]
    line: Callable[[str, RecordedEvent], str]
    table: RowTable[Any]
    events_of: Callable[[Any], int]
    is_erased: Callable[[Any], bool]


class Lost(NamedTuple):
    """The losses of one stream.

    Attributes:
        stream: The stream, or the number that the log had for it where no name is proven.
        kept: Events that the new log has: the first ones, in which none is missing.
        missing: The versions of events that nothing proves.
        positions: The positions of these, as far as an index knows them.
        remnants: Events that are proven and do not follow from those that are kept. They are in a file beside the log.
        origin: The stream that this one begins from, if that has lost what it begins with.
        is_erased: True if the stream was erased: the new log has the event that says so, and none of its remnants.
        has_lost_key: True if the key of events is lost, which count as missing.
    """

    stream: StreamId | int
    kept: int
    missing: Ranges
    positions: Ranges
    remnants: int
    origin: StreamId | None = None
    is_erased: bool = False
    has_lost_key: bool = False


class Salvaged(NamedTuple):
    """The new log.

    Attributes:
        log_id: The new log's id.
        is_same_log: True if that is the damaged log's id. Otherwise ids of events are not those that clients derive.
        has_key: True if it has the damaged log's secret. Otherwise keys of requests are unknown to it.
        events: Events that it has of the damaged log.
        conversations: Streams that it has of the damaged log.
        lost: The missing events, by stream.
        unowned: Lost positions of which nothing tells whose they were.
    """

    log_id: str
    is_same_log: bool
    has_key: bool
    events: int
    conversations: int
    lost: Sequence[Lost]
    unowned: Ranges

    @property
    def is_whole(self) -> bool:
        """True if all is there that anything in the damaged log tells of."""
        return self.is_same_log and self.has_key and not self.lost and not self.unowned.count
