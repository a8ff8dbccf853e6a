"""The contract of every backend; one conformance suite tests them all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from abridged.eventlog.chain import NO_CONTENTS
from abridged.eventlog.errors import EventIdConflict, RequestKeyConflict
from abridged.eventlog.event import NewEvent, RecordedEvent, SealedEvent, StreamId

PAYLOAD_BYTES_MAX = 1 << 20
"""Largest payload of one event: a page of events must fit gRPC's default message limit of 4 MiB."""

APPEND_BYTES_MAX = 8 << 20
"""Largest sum of payloads in one append: more than a gRPC message of default size can contain."""

APPEND_EVENTS_MAX = 2_000
"""Most events in one append: 512 messages and what a service may add to each."""

PAGE_EVENTS_MAX = 500
"""Most events in one page of a filtered read."""

PAGE_BYTES_MAX = 4 << 20
"""Largest sum of payloads in one page, which bounds the memory of a read, whatever its limit."""

SCAN_EVENTS_MAX = 4_000
"""Most events that one filtered read looks at, which bounds its time if nothing matches."""


class RequestKey(NamedTuple):
    """Makes a whole append repeatable: the same key with the same `content` returns the first result."""

    key: str
    content: bytes


class Append(NamedTuple):
    """One atomic append of at least one event.

    `expected` is the version that the stream must have, 0 if it must not exist; None accepts any. `projected` is passed
    to the hook unchanged. `time_us` is when the events were first written, for a copy of a log; 0 is now. An event
    id that occurs twice in `events` with equal content is written once. `again` returns what to decide in the place of
    an append that conflicts, with the same ids and request key, or None.
    """

    stream: StreamId
    events: Sequence[NewEvent]
    expected: int | None = None
    request: RequestKey | None = None
    projected: Any = None
    time_us: int = 0
    again: Callable[[EventIdConflict | RequestKeyConflict], Append | None] = lambda _: None


class AppendResult(NamedTuple):
    """The place of an append's events.

    Attributes:
        first_position: Position of the first event, from when it was first written.
        last_position: Position of the last event, likewise.
        last_version: Version of the last event, likewise.
        events: The recorded events, in order; empty if `already_appended`.
        already_appended: True if all of it was on disk before.
    """

    first_position: int
    last_position: int
    last_version: int
    events: tuple[RecordedEvent, ...] = ()
    already_appended: bool = False


class Committed(NamedTuple):
    """One append as the hook sees it, inside its transaction.

    The payloads of an encrypted log are ciphertext here. `before_us` is the time of the stream's event before; 0
    without one, and where nobody but the writer writes.
    """

    stream: StreamId
    events: tuple[RecordedEvent, ...]
    projected: Any = None
    before_us: int = 0


AppendHook = Callable[[Any, Sequence[Committed]], None]
"""Called in the append's transaction with that transaction, as `Rows.put` takes it, and every append of the group. The
log rolls the group back if the hook raises, and retries its appends one by one; those for which the hook raises again
fail with its exception. The hook must have no effect outside the transaction."""


Outcome = AppendResult | Exception
"""The result of an append, or the reason why nothing was written."""


class CompletionQueue(Protocol):
    """Receives the outcomes of posted appends, once for each group commit."""

    def deliver(self, outcomes: Sequence[tuple[Any, Outcome]]) -> None:
        """Take the outcomes of a group, each with its ticket. The writer calls it: it must be quick and never raise."""
        ...


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Selects events of the whole log; None and empty mean all."""

    namespace: str | None = None
    stream: StreamId | None = None
    types: frozenset[str] = frozenset()

    def accepts(self, event: RecordedEvent) -> bool:
        """Return whether `event` matches."""
        return (
            (self.namespace is None or event.stream.namespace == self.namespace)
            and (self.stream is None or event.stream == self.stream)
            and (not self.types or event.type in self.types)
        )


EVERYTHING = EventFilter()
"""Matches every event."""


@dataclass(frozen=True, slots=True)
class Page:
    """Matching events in order. Every position up to `cursor` was examined; `head` was the last position at that time.

    Backward, every position from `cursor` on was examined: at 1 there is nothing more.
    """

    events: tuple[RecordedEvent, ...]
    cursor: int
    head: int


class EventLog(Protocol):
    """An append-only log. Every method is synchronous and thread-safe; reads are pages, never open cursors.

    A page ends at `limit` or before the event that would take its payloads past `bytes_max`, but not before its first,
    so only an empty page means the end. Every read raises LogCorrupt for what is not as written, and for what is
    missing between two events of a page.
    """

    @property
    def log_id(self) -> str:
        """The log's own id, made when it was created."""
        ...

    def secret(self, purpose: str) -> bytes:
        """A secret of 32 bytes for one purpose, constant for this log and different in every other."""
        ...

    def submit(self, append: Append) -> Future[AppendResult]:
        """Queue an append; the future resolves when it is on disk, or fails with an EventLogError.

        Order of checks: size, request key, event ids, expected version. Appends are committed in the order of submit.
        """
        ...

    def post(self, append: Append, ticket: Any, completions: CompletionQueue) -> None:
        """Queue an append as `submit` does. When its group ends, `completions` gets `ticket` with the outcome."""
        ...

    def read_stream(
        self,
        stream: StreamId,
        *,
        after: int = 0,
        limit: int = PAGE_EVENTS_MAX,
        backward: bool = False,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> list[RecordedEvent]:
        """Events of one stream with version > `after` in order; backward: version < `after` (0: from the end) down."""
        ...

    def read_all(self, *, after: int = 0, limit: int = PAGE_EVENTS_MAX, backward: bool = False) -> list[RecordedEvent]:
        """Events of the whole log by position, as read_stream does by version."""
        ...

    def scan(
        self,
        *,
        after: int = 0,
        limit: int = PAGE_EVENTS_MAX,
        matching: EventFilter = EVERYTHING,
        backward: bool = False,
        bytes_max: int = PAGE_BYTES_MAX,
    ) -> Page:
        """The next matching events by position. Examines no more than SCAN_EVENTS_MAX, so the page may be empty.

        Backward: those before `after` (0: from the end) down.
        """
        ...

    def known(self, append: Append) -> dict[bytes, int]:
        """Versions, by id, of the append's events that are already written. Writes nothing.

        Raises EventIdConflict and RequestKeyConflict as `submit` would. The expected version does not matter.
        """
        ...

    def known_ids(self, stream: StreamId, event_ids: Collection[bytes]) -> dict[bytes, int]:
        """Positions, by id, of those of `event_ids` that the stream has, each looked up as a repeat would be."""
        ...

    def read_sealed(self, stream: StreamId, *, after: int = 0, limit: int = PAGE_EVENTS_MAX) -> list[SealedEvent]:
        """Events of one stream with their seals, unchecked. Payloads are as they are stored: ciphertext in an encrypted
        log."""
        ...

    def stream_version(self, stream: StreamId) -> int:
        """Number of events in the stream; 0 if it does not exist."""
        ...

    def blank(
        self,
        stream: StreamId,
        payloads: Mapping[int, bytes],
        *,
        contents: Mapping[int, bytes] = NO_CONTENTS,
        expected_version: int | None = None,
    ) -> None:
        """Put these payloads, by version, in the places of those of the stream's events, which nobody can read then.

        The events keep their envelopes and their seals. Repeats are known by their ids and, where `contents` has the
        event's by its version, that content; those of a request that wrote any of them by its key, and its events. On
        disk when it returns, all or none; raises what an append would, WrongExpectedVersion too, and LogCorrupt for an
        event that is not there.
        """
        ...

    def purge(self) -> bool:
        """Remove the bytes of blanked payloads and of dropped rows from the log's files, as far as they are this
        process's to write; False while a reader is in the way."""
        ...

    def full(self) -> str:
        """The reason why nothing can be written for lack of room; empty while there is some. The call looks at the
        disk: run it in a thread."""
        ...

    def head(self) -> int:
        """The last committed position; 0 if the log is empty."""
        ...

    def head_of(self, namespace: str) -> int:
        """The position of a namespace's last event; 0 if it has none."""
        ...

    def confirm(self) -> None:
        """Return when everything that was read before is as durable as what was acknowledged. Raises what an append
        would."""
        ...

    def on_commit(self, listener: Callable[[int], None]) -> Callable[[], None]:
        """Call `listener` with the head after each commit that moved it, on the writer's thread. Returns a function
        that stops it.

        A listener must be quick and must not raise.
        """
        ...

    def close(self) -> None:
        """Finish what is queued, checkpoint and release the files. Calling it twice is allowed."""
        ...
