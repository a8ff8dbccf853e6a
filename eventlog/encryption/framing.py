"""The frame of encrypted bytes, by which a reader without a key tells them from others, and what is left in clear.

No protobuf message begins with the byte 0. The state of a snapshot may, so the name of its codec says whether it is
encrypted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

MARK: Final = b"\x00"
"""The first byte: version 0 of the frame, AES-256 in GCM."""

KEY_ID_BYTES: Final = 8
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16

FRAME_BYTES: Final = len(MARK) + KEY_ID_BYTES + NONCE_BYTES + TAG_BYTES
"""The number of bytes that encryption adds to a content."""

_NONCE_AT: Final = len(MARK) + KEY_ID_BYTES
TEXT_AT: Final = _NONCE_AT + NONCE_BYTES


class ClearTypes(NamedTuple):
    """The events that stay in clear, because they are read after the keys are erased: those of `types`, and any whose
    payload is `erased`."""

    types: Collection[str]
    erased: bytes

    def have(self, event_type: str, payload: bytes) -> bool:
        """Return whether the event is one of them."""
        return event_type in self.types or payload == self.erased


def is_encrypted(stored: bytes) -> bool:
    """Return whether these bytes are ciphertext."""
    return stored[:1] == MARK


def key_id_of(stored: bytes) -> bytes:
    """The id of the data key that encrypted these bytes."""
    return stored[len(MARK) : _NONCE_AT]


def nonce_of(stored: bytes) -> bytes:
    """The nonce under which these bytes were encrypted."""
    return stored[_NONCE_AT:TEXT_AT]


def content_bytes(stored: bytes) -> int:
    """The size of these bytes in clear."""
    return len(stored) - FRAME_BYTES if is_encrypted(stored) else len(stored)
