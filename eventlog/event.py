"""Intent and fact: `NewEvent` is what a caller wants to write, `RecordedEvent` is what the log holds.

`SealedEvent` is a recorded event with its proof. All are named tuples: see docs/architecture.md.
"""

from __future__ import annotations

from typing import NamedTuple

EVENT_ID_BYTES = 16

NUMBER_MAX = (1 << 63) - 1
"""The greatest position, version or number of rows that a database holds."""


class StreamId(NamedTuple):
    """A stream's name within its namespace. Streams of different namespaces never mix.

    The id is a named tuple also because every table in memory has it as its key: a tuple's hash costs a quarter of a
    dataclass's.
    """

    namespace: str
    name: str


class NewEvent(NamedTuple):
    """An event to append.

    Attributes:
        event_id: 16 bytes, unique in its stream for ever.
        type: The event's type.
        payload: Stored verbatim.
        schema_version: The payload's schema version.
        content: The canonical bytes that idempotency compares: of what the client sent, without server time or
            counts; None for the payload.
        trace_context: A W3C traceparent, or empty.
    """

    event_id: bytes
    type: str
    payload: bytes
    schema_version: int = 1
    content: bytes | None = None
    trace_context: str = ""


class RecordedEvent(NamedTuple):
    """An event on disk.

    `position` is its place in the whole log, `version` its place in the stream; both count from 1 without gaps.
    `time_us` is the log's clock in microseconds since the epoch.
    """

    position: int
    stream: StreamId
    version: int
    event_id: bytes
    type: str
    schema_version: int
    time_us: int
    trace_context: str
    payload: bytes


class SealedEvent(NamedTuple):
    """A recorded event with its seal.

    `content_hash` is what idempotency compares, empty for an event that is known by its id alone: it was blanked, and
    its own content has not come back. `salt` and `commitment` bind envelope and payload, `chain` binds the event to all
    earlier events of its stream.
    """

    event: RecordedEvent
    content_hash: bytes
    salt: bytes
    commitment: bytes
    chain: bytes
