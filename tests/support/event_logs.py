"""The event log's backends for its conformance suite. A new backend is one more line in BACKENDS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from abridged.eventlog.backend import Backend, MemoryBackend
from abridged.eventlog.chain import Verified, genesis, verify_chain
from abridged.eventlog.encryption.framing import FRAME_BYTES
from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import PAGE_EVENTS_MAX, Append, AppendHook, AppendResult, EventLog, RequestKey
from abridged.eventlog.rows import RowTable
from abridged.eventlog.sqlite.backend import SqliteBackend
from tests.support.postgres_server import schema_url

A = StreamId("default", "a")
B = StreamId("default", "b")
OTHER = StreamId("other", "a")


@dataclass
class Clock:
    """Moves one microsecond each time it is asked."""

    now_us: int = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us


class Note(NamedTuple):
    """A row for the suite: the last event's payload as a text, and marks."""

    namespace: str
    id: str
    position: int
    text: str = ""
    weight: float | None = None
    data: bytes = b""
    urgent: int = 0
    topic: str = ""


NOTES = RowTable(
    "notes",
    version=1,
    row=Note,
    marks={"urgent": ("urgent", "text"), "topic": ("topic",)},
    private={"data": b""},
)


@dataclass(frozen=True)
class Kind:
    """A kind of log: where one is for a path, and by how much a payload is longer as it is stored."""

    name: str
    at: Callable[[Path], Backend]
    durable: bool = True
    frame_bytes: int = 0

    def open(self, path: Path, clock: Callable[[], int], hook: AppendHook | None) -> EventLog:
        """Open the log at the path."""
        place = self.at(path)
        return place.open(
            place.rows(NOTES), clock_us=clock, hook=hook or (lambda *_: None), on_fatal=lambda _: None
        ).log

    def __str__(self) -> str:
        return self.name


def _in_postgres(path: Path) -> Backend:
    """A log in a schema of its own. Skips the test where there is no server."""
    url = schema_url(path)
    from abridged.eventlog.postgres.backend import PostgresBackend

    return PostgresBackend(url)


def _encrypted(path: Path) -> Backend:
    """A log in a file, with its keys beside it."""
    from tests.support.encryption import encrypted_backend

    return encrypted_backend(path)


BACKENDS = (
    Kind("memory", lambda _: MemoryBackend(), durable=False),
    Kind("sqlite", SqliteBackend),
    Kind("postgres", _in_postgres),
    Kind("encrypted", _encrypted, frame_bytes=FRAME_BYTES),
)
DURABLE = tuple(backend for backend in BACKENDS if backend.durable)


@dataclass
class Trial:
    """One log under test, which can be closed and opened again."""

    backend: Kind
    path: Path
    clock: Clock = field(default_factory=Clock)
    log: EventLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.backend.open(self.path, self.clock, None)

    def reopen(self, hook: AppendHook | None = None) -> EventLog:
        """Close the log and open it again; a log that does not last is a new one."""
        self.log.close()
        self.log = self.backend.open(self.path, self.clock, hook)
        return self.log

    def append(self, *args: NewEvent, **kwargs: object) -> AppendResult:
        """Append to stream A and wait."""
        return self.log.submit(append(*args, **kwargs)).result()  # type: ignore[arg-type]  # tests pass what append takes

    def payloads(self, stream: StreamId = A) -> list[bytes]:
        """Return the payloads of a stream."""
        return [recorded.payload for recorded in self.log.read_stream(stream)]


@contextmanager
def trial(backend: Kind, folder: Path) -> Iterator[Trial]:
    """A new log in `folder`, closed at the end."""
    made = Trial(backend, folder / "log.db")
    try:
        yield made
    finally:
        made.log.close()


def event_id(number: int) -> bytes:
    """The id of event `number`."""
    return number.to_bytes(16, "big")


def event(number: int, payload: bytes | None = None, **fields: object) -> NewEvent:
    """Event `number`; its payload is its number unless given."""
    content = str(number).encode() if payload is None else payload
    return NewEvent(event_id(number), "noted", content, **fields)  # type: ignore[arg-type]  # tests pass real fields


def append(
    *events: NewEvent,
    to: StreamId = A,
    expected: int | None = None,
    request: RequestKey | None = None,
    projected: object = None,
) -> Append:
    """An append of `events`."""
    return Append(to, events, expected, request, projected)


def verify_stream(log: EventLog, stream: StreamId) -> Verified:
    """Walk a whole stream from its first event. Raises StreamCorrupt at the first that is not as written."""
    verified = Verified(0, genesis(log.log_id, stream))
    while page := log.read_sealed(stream, after=verified.version, limit=PAGE_EVENTS_MAX):
        verified = verify_chain(page, after=verified)
    return verified
