"""The seals of a log, which make a changed row visible.

Each event has a commitment (a hash of envelope and payload under the event's own random salt) and a chain hash over its
envelope, its commitment and the previous chain hash of the stream. Reading a row checks its commitment. The chain needs
neither payload nor salt, so it stays valid when an event is blanked: another payload takes the place of its own, and in
its salt stands a commitment to that one.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple

from abridged.eventlog.errors import StreamCorrupt
from abridged.eventlog.event import RecordedEvent, SealedEvent, StreamId

HASH_BYTES = 32
"""The size of the seals of events in PostgreSQL, and in a file of those of its revision 0002."""

SEAL_BYTES = 16
"""The size of the seals of other events. Whoever chooses a payload does not know the salt, and so cannot search
collisions."""

SEAL_SIZES = frozenset({SEAL_BYTES, HASH_BYTES})
"""The sizes that a seal may have: a shorter one would fit by chance."""

CONTENT_HASH_BYTES = 16
"""Half the size of a hash suffices under the log's own key, for which nobody can search collisions."""

KEY_BYTES = 32
SALT_BYTES = 16

ENVELOPE_NUMBERS = Struct(">QQQq16s")
"""The beginning of an envelope: position, version, schema version, time, and event id."""

_LENGTHS = Struct(">IIII")
_OF_CONTENT = b"content"
_OF_REQUEST = b"request"
_OF_STREAM = b"stream"
_OF_CHAIN = b"chain"
_OF_PURPOSE = b"purpose"


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """A log's id and secret. Nobody can test a guess at a content against its hash without `key`."""

    log_id: str
    key: bytes = field(repr=False)

    @classmethod
    def new(cls, log_id: str = "") -> LogIdentity:
        """The identity of a new log, with a secret of its own; the id is at random unless it copies that of another."""
        return cls(log_id or uuid.uuid4().hex, secrets.token_bytes(KEY_BYTES))

    def secret(self, purpose: str) -> bytes:
        """A secret of KEY_BYTES, derived from `key` for one purpose, which does not reveal it."""
        return blake2b(purpose.encode(), key=self.key, digest_size=KEY_BYTES, person=_OF_PURPOSE).digest()


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of walking a stream: its number of events and the last chain hash."""

    version: int
    chain: bytes


def content_hash(key: bytes, event_type: str, content: bytes) -> bytes:
    """Identifies an event's content for idempotency."""
    digest = blake2b(event_type.encode() + b"\0", key=key, digest_size=HASH_BYTES, person=_OF_CONTENT)
    digest.update(content)
    return digest.digest()[:CONTENT_HASH_BYTES]


def request_hash(key: bytes, content: bytes) -> bytes:
    """Identifies a request's content for idempotency."""
    return blake2b(content, key=key, digest_size=HASH_BYTES, person=_OF_REQUEST).digest()[:CONTENT_HASH_BYTES]


def envelope(event: RecordedEvent) -> bytes:
    """Everything about an event except its payload, as unique bytes."""
    numbers = ENVELOPE_NUMBERS.pack(event.position, event.version, event.schema_version, event.time_us, event.event_id)
    return numbers + envelope_names(event.stream, event.type, event.trace_context)


def envelope_names(stream: StreamId, event_type: str, trace_context: str) -> bytes:
    """The end of an envelope, after its numbers."""
    parts = (stream[0].encode(), stream[1].encode(), event_type.encode(), trace_context.encode())
    return b"".join((_LENGTHS.pack(*map(len, parts)), *parts))


def commit_to(salt: bytes, sealed_envelope: bytes, payload: bytes, size: int = SEAL_BYTES) -> bytes:
    """The commitment of `size` bytes to an envelope and its payload under `salt`."""
    digest = blake2b(sealed_envelope, key=salt, digest_size=size)
    digest.update(payload)
    return digest.digest()


def genesis(log_id: str, stream: StreamId) -> bytes:
    """The hash that the first event of a stream is chained to."""
    parts = [part.encode() for part in (log_id, stream.namespace, stream.name)]
    text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return blake2b(text, digest_size=HASH_BYTES, person=_OF_STREAM).digest()


def link(previous: bytes, sealed_envelope: bytes, commitment: bytes) -> bytes:
    """The chain hash of an event, given the previous one. Its size is that of the event's commitment."""
    digest = blake2b(previous, digest_size=seal_size(commitment), person=_OF_CHAIN)
    digest.update(commitment)
    digest.update(sealed_envelope)
    return digest.digest()


def seal_size(commitment: bytes) -> int:
    """The size of the seals of an event with this commitment, also of one that is not as written."""
    return len(commitment) if len(commitment) in SEAL_SIZES else SEAL_BYTES


NO_CONTENTS: Mapping[int, bytes] = MappingProxyType({})
"""The contents by which repeats of blanked events are known: by their ids alone."""


class Blanked(NamedTuple):
    """An event with the payload that takes the place of its own, the salt that binds both, and the hash of the content
    by which repeats are known, or an empty one."""

    event: RecordedEvent
    salt: bytes
    content_hash: bytes


def blanked(
    events: Iterable[SealedEvent],
    stream: StreamId,
    payloads: Mapping[int, bytes],
    contents: Mapping[int, bytes] = NO_CONTENTS,
    key: bytes = b"",
) -> list[Blanked]:
    """The stream's `events` that get other payloads, by version; those with `contents` get their hash under the log's
    `key`. Raises StreamCorrupt if one is not there.

    Nobody can guess any more the content that an event's own commitment binds: a new salt takes the place of the
    event's own, and the commitment to the new payload follows it.
    """
    found: list[Blanked] = []
    for sealed in events:
        payload = payloads.get(sealed.event.version)
        if payload is not None:
            event = sealed.event._replace(payload=payload)
            salt = secrets.token_bytes(SALT_BYTES)
            content = contents.get(event.version)
            digest = b"" if content is None else content_hash(key, event.type, content)
            commitment = commit_to(salt, envelope(event), payload, seal_size(sealed.commitment))
            found.append(Blanked(event, salt + commitment, digest))
    if missing := payloads.keys() - {row.event.version for row in found}:
        raise StreamCorrupt(f"version {min(missing)} is missing", stream, min(missing))
    return found


def is_blanked(salt: bytes) -> bool:
    """Return whether the event with this salt has another payload than it was written with."""
    return len(salt) > SALT_BYTES


def is_bound(event: RecordedEvent, salt: bytes, commitment: bytes) -> bool:
    """Return whether the event matches its commitment, or if it was blanked the one in its salt."""
    if is_blanked(salt):
        salt, commitment = salt[:SALT_BYTES], salt[SALT_BYTES:]
    size = len(commitment)
    return size in SEAL_SIZES and commit_to(salt, envelope(event), event.payload, size) == commitment


def check_commitment(event: RecordedEvent, salt: bytes, commitment: bytes) -> None:
    """Raise StreamCorrupt unless the event matches its commitment, or if it was blanked the one in its salt."""
    if not is_bound(event, salt, commitment):
        raise StreamCorrupt(f"position {event.position} is not what was written", event.stream, event.version)


def verify_chain(events: Iterable[SealedEvent], *, after: Verified) -> Verified:
    """Walk consecutive events of one stream on from `after`. Raises StreamCorrupt at the first that does not fit."""
    version, chain = after.version, after.chain
    for sealed in events:
        event = sealed.event
        if event.version != version + 1:
            raise StreamCorrupt(
                f"version {version + 1} is missing before position {event.position}", event.stream, version + 1
            )
        check_commitment(event, sealed.salt, sealed.commitment)
        chain = link(chain, envelope(event), sealed.commitment)
        if chain != sealed.chain:
            raise StreamCorrupt(
                f"position {event.position} does not follow from the events before it", event.stream, event.version
            )
        version = event.version
    return Verified(version, chain)
