"""A data key: encrypts the contents of one stream, and hashes them for idempotency."""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from abridged.eventlog.chain import envelope_names
from abridged.eventlog.encryption.framing import MARK, NONCE_BYTES, TEXT_AT, nonce_of
from abridged.eventlog.event import NewEvent, RecordedEvent, StreamId

SECRET_BYTES: Final = 32

_CONTENT_BYTES: Final = 32
_OF_CONTENT: Final = b"content"


class NotDecrypted(Exception):
    """The bytes were not encrypted with this key for this place."""


class DataKey:
    """Encrypts each payload under a new random nonce: one key may encrypt four thousand million of them."""

    __slots__ = ("_aead", "_content_key", "_frame", "id")

    def __init__(self, key_id: bytes, secret: bytes) -> None:
        self.id = key_id
        self._frame = MARK + key_id
        self._aead = AESGCM(secret)
        self._content_key = blake2b(key=secret, digest_size=SECRET_BYTES, person=_OF_CONTENT).digest()

    def encrypted(self, plain: bytes, place: bytes) -> bytes:
        """The bytes as they are stored in `place`; they decrypt nowhere else."""
        nonce = os.urandom(NONCE_BYTES)
        return b"".join((self._frame, nonce, self._aead.encrypt(nonce, plain, place)))

    def decrypted(self, stored: bytes, place: bytes) -> bytes:
        """The bytes that were encrypted. Raises NotDecrypted."""
        try:
            return self._aead.decrypt(nonce_of(stored), stored[TEXT_AT:], place)
        except (InvalidTag, ValueError) as error:
            raise NotDecrypted from error

    def hashed(self, content: bytes) -> bytes:
        """The hash that idempotency compares instead of a content: only the key can test a guess against it."""
        return blake2b(content, key=self._content_key, digest_size=_CONTENT_BYTES).digest()


def place_of_event(stream: StreamId, event: NewEvent | RecordedEvent) -> bytes:
    """The place of an event's payload: stream, id, type and schema version, which are known before it is written."""
    return b"".join((event.event_id, event.schema_version.to_bytes(4, "big"), envelope_names(stream, event.type, "")))


def place_in_stream(stream: StreamId, what: str) -> bytes:
    """The place of something that is kept beside the events of a stream."""
    return what.encode() + b"\x00" + envelope_names(stream, "", "")
