"""Decides which appends of a group may be written, and makes their rows.

Callers pass in what the log knows of the streams, and get rows and outcomes; only the salts are random. All backends
share this code, so they cannot differ. Appends are decided in order, and each sees those before it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from abridged.eventlog.chain import (
    SALT_BYTES,
    SEAL_BYTES,
    LogIdentity,
    commit_to,
    content_hash,
    envelope,
    link,
    request_hash,
)
from abridged.eventlog.encryption.framing import content_bytes
from abridged.eventlog.errors import (
    EventIdConflict,
    EventLogError,
    EventTooLarge,
    KnownEvents,
    LogCorrupt,
    RequestKeyConflict,
    WrongExpectedVersion,
)
from abridged.eventlog.event import EVENT_ID_BYTES, NewEvent, RecordedEvent, SealedEvent, StreamId
from abridged.eventlog.log import (
    APPEND_BYTES_MAX,
    APPEND_EVENTS_MAX,
    PAYLOAD_BYTES_MAX,
    Append,
    AppendResult,
    Committed,
    Outcome,
)

T = TypeVar("T")

DAMAGED_BITS_MAX = 8
"""Two hashes of 128 bits that differ in no more are one damaged hash: two contents come that close once in 10^26."""


class KnownEvent(NamedTuple):
    """The place where an event id was written, and the hash of its content."""

    position: int
    version: int
    content_hash: bytes


class KnownRequest(NamedTuple):
    """The first use of a request key."""

    content_hash: bytes
    first_position: int
    last_position: int
    last_version: int


@dataclass(slots=True)
class StreamState:
    """A stream before a group of appends.

    `events` and `requests` hold at least the group's event ids and request keys that the stream knows. `time_us` is
    that of the last event; 0 without one, and where nobody but the writer writes.
    """

    version: int
    chain: bytes
    events: dict[bytes, KnownEvent] = field(default_factory=dict)
    requests: dict[str, KnownRequest] = field(default_factory=dict)
    time_us: int = 0


@dataclass(frozen=True, slots=True)
class Admitted:
    """One outcome for each append of a group, in order, and the rows that these require."""

    outcomes: list[Outcome]
    events: list[SealedEvent]
    requests: list[tuple[StreamId, str, KnownRequest]]
    committed: list[Committed]


def check_size(append: Append) -> int:
    """The append's payload bytes. Raises EventTooLarge if it or one of its events exceeds a limit."""
    if not append.events:
        raise ValueError("an append has at least one event")
    if len(append.events) > APPEND_EVENTS_MAX:
        raise EventTooLarge(size=len(append.events), limit=APPEND_EVENTS_MAX, unit="events")
    total = 0
    for event in append.events:
        size = content_bytes(event.payload)
        if size > PAYLOAD_BYTES_MAX:
            raise EventTooLarge(size=size, limit=PAYLOAD_BYTES_MAX)
        if len(event.event_id) != EVENT_ID_BYTES:
            raise ValueError(f"an event id has {EVENT_ID_BYTES} bytes")
        total += size
    if total > APPEND_BYTES_MAX:
        raise EventTooLarge(size=total, limit=APPEND_BYTES_MAX)
    return total


def admit(
    appends: Sequence[Append],
    streams: Mapping[StreamId, StreamState],
    *,
    head: int,
    time_us: int,
    identity: LogIdentity,
    seal_bytes: int = SEAL_BYTES,
) -> Admitted:
    """Decide each append against the states in `streams`, and update these by what is admitted. New seals have
    `seal_bytes`."""
    admitted = Admitted([], [], [], [])
    # One call for the whole group: a slow system call for each would cost as much as the rest.
    salts = secrets.token_bytes(SALT_BYTES * sum(len(append.events) for append in appends))
    for append in appends:
        state = streams[append.stream]
        own_salts, salts = salts[: SALT_BYTES * len(append.events)], salts[SALT_BYTES * len(append.events) :]
        admit_one = partial(
            _admit_one,
            state=state,
            admitted=admitted,
            head=head,
            time_us=time_us,
            identity=identity,
            salts=own_salts,
            seal_bytes=seal_bytes,
        )
        try:
            outcome = _decided(append, admit_one)
        except EventLogError as error:
            admitted.outcomes.append(error)
            continue
        admitted.outcomes.append(outcome)
        if not outcome.already_appended:
            head = outcome.last_position
    return admitted


def recall(append: Append, state: StreamState, identity: LogIdentity) -> dict[bytes, int]:
    """Versions, by id, of the append's events that the stream knows.

    Raises what admitting these would: EventIdConflict, RequestKeyConflict, or LogCorrupt.
    """
    return _decided(append, partial(_recall_one, state=state, identity=identity))


def _decided(append: Append, decide: Callable[[Append], T]) -> T:
    """Return the decision on the append, or on the one that takes its place."""
    try:
        return decide(append)
    except (EventIdConflict, RequestKeyConflict) as conflict:
        again = append.again(conflict)
        if again is None:
            raise
    return _decided(again, decide)


def _recall_one(append: Append, state: StreamState, identity: LogIdentity) -> dict[bytes, int]:
    first = _first_request(append, state, identity.key)[1]
    hashes = _hashes(append.events, identity.key)
    known = _known(hashes, state)
    if first is not None and len(known) < len(hashes):
        if not first.content_hash:  # it went with a blanked event, and these events are another request's
            raise RequestKeyConflict(first.last_version)
        raise LogCorrupt("a request is known, and not all of its events")
    return {event_id: event.version for event_id, event in known.items()}


def _admit_one(
    append: Append,
    state: StreamState,
    admitted: Admitted,
    head: int,
    time_us: int,
    identity: LogIdentity,
    salts: bytes,
    seal_bytes: int,
) -> AppendResult:
    request_content, first = _first_request(append, state, identity.key)
    if first is not None:
        if not first.content_hash and not _known(_hashes(append.events, identity.key), state):
            raise RequestKeyConflict(first.last_version)
        return AppendResult(first.first_position, first.last_position, first.last_version, already_appended=True)
    hashes = _hashes(append.events, identity.key)
    known = _known(hashes, state)
    if known:
        if len(known) < len(hashes):
            raise KnownEvents({event_id: event.version for event_id, event in known.items()})
        result = _first_result(known)
    else:
        if append.expected is not None:
            require_expected(append.expected, state.version)
        before_us = state.time_us
        sealed = _seal(append, hashes, state, head, append.time_us or time_us, salts, seal_bytes)
        events = tuple(row.event for row in sealed)
        result = AppendResult(events[0].position, events[-1].position, events[-1].version, events)
        admitted.events.extend(sealed)
        admitted.committed.append(Committed(append.stream, events, append.projected, before_us))
    if append.request is not None:
        request = KnownRequest(request_content, result.first_position, result.last_position, result.last_version)
        state.requests[append.request.key] = request
        admitted.requests.append((append.stream, append.request.key, request))
    return result


def require_expected(expected: int, actual: int) -> None:
    """Raise WrongExpectedVersion for another version of the stream."""
    if actual != expected:
        raise WrongExpectedVersion(expected=expected, actual=actual)


def _first_request(append: Append, state: StreamState, key: bytes) -> tuple[bytes, KnownRequest | None]:
    """The hash of the request's content, and the first use of its key. Raises RequestKeyConflict."""
    if append.request is None:
        return b"", None
    content = request_hash(key, append.request.content)
    first = state.requests.get(append.request.key)
    if first is not None and _is_other(first.content_hash, content):
        raise RequestKeyConflict(first.last_version)
    return content, first


def _hashes(events: Sequence[NewEvent], key: bytes) -> dict[bytes, bytes]:
    """Content hash by event id, in the order of the events."""
    hashes: dict[bytes, bytes] = {}
    for event in events:
        content = event.payload if event.content is None else event.content
        digest = content_hash(key, event.type, content)
        if hashes.setdefault(event.event_id, digest) != digest:
            raise EventIdConflict((event.event_id,))
    return hashes


def _known(hashes: Mapping[bytes, bytes], state: StreamState) -> dict[bytes, KnownEvent]:
    """The stream's own events with those ids. Raises EventIdConflict."""
    if not state.events:
        return {}
    known = {event_id: state.events[event_id] for event_id in hashes if event_id in state.events}
    changed = {
        event_id: event.version for event_id, event in known.items() if _is_other(event.content_hash, hashes[event_id])
    }
    if changed:
        raise EventIdConflict(tuple(changed), changed)
    return known


def _is_other(stored: object, own: bytes) -> bool:
    """Return whether the hashes belong to two contents. Raises LogCorrupt if it is one content and the stored hash is
    damaged.

    Hashes of two contents differ in about half of their bits. A blanked event has none.
    """
    if stored in (own, b""):
        return False
    if not isinstance(stored, bytes) or len(stored) != len(own):
        raise LogCorrupt("a stored content hash has the wrong length")
    if (int.from_bytes(stored, "big") ^ int.from_bytes(own, "big")).bit_count() <= DAMAGED_BITS_MAX:
        raise LogCorrupt("a stored content hash is not what was written")
    return True


def _first_result(known: Mapping[bytes, KnownEvent]) -> AppendResult:
    positions = [event.position for event in known.values()]
    last_version = max(event.version for event in known.values())
    return AppendResult(min(positions), max(positions), last_version, already_appended=True)


def _seal(
    append: Append,
    hashes: Mapping[bytes, bytes],
    state: StreamState,
    head: int,
    time_us: int,
    salts: bytes,
    seal_bytes: int,
) -> list[SealedEvent]:
    unique = {event.event_id: event for event in reversed(append.events)} if len(hashes) < len(append.events) else None
    rows = []
    version, chain = state.version, state.chain
    events = append.events if unique is None else [unique[event_id] for event_id in hashes]
    for place, new in enumerate(events):
        version += 1
        event = RecordedEvent(
            head + place + 1,
            append.stream,
            version,
            new.event_id,
            new.type,
            new.schema_version,
            time_us,
            new.trace_context,
            new.payload,
        )
        salt = salts[place * SALT_BYTES : (place + 1) * SALT_BYTES]
        sealed_envelope = envelope(event)
        commitment = commit_to(salt, sealed_envelope, event.payload, seal_bytes)
        chain = link(chain, sealed_envelope, commitment)
        digest = hashes[new.event_id]
        rows.append(SealedEvent(event, digest, salt, commitment, chain))
        state.events[new.event_id] = KnownEvent(event.position, version, digest)
    state.version, state.chain, state.time_us = version, chain, time_us
    return rows
