"""The operator's keys, which wrap data keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from abridged.eventlog.encryption.framing import KEY_ID_BYTES, NONCE_BYTES
from abridged.eventlog.encryption.key_store import StoredKey
from abridged.eventlog.encryption.key_text import parsed_keys
from abridged.eventlog.errors import KeyLost, KeysUnusable

_OF_WRAPPER: Final = b"wrapper"


class OperatorKey:
    """One of the operator's keys. The id identifies the key and reveals nothing of it."""

    def __init__(self, key: bytes) -> None:
        self.id = blake2b(key=key, digest_size=KEY_ID_BYTES, person=_OF_WRAPPER).digest()
        self._aead = AESGCM(key)

    def wrapped(self, key_id: bytes, secret: bytes) -> StoredKey:
        """The data key as it is stored."""
        nonce = os.urandom(NONCE_BYTES)
        return StoredKey(key_id, self.id, nonce + self._aead.encrypt(nonce, secret, key_id))

    def unwrapped(self, stored: StoredKey) -> bytes:
        """The data key's secret. Raises KeyLost for one that is not as it was stored."""
        try:
            return self._aead.decrypt(stored.wrapped[:NONCE_BYTES], stored.wrapped[NONCE_BYTES:], stored.id)
        except (InvalidTag, ValueError) as error:
            raise KeyLost(f"data key {stored.id.hex()} is not what was stored") from error


class OperatorKeys:
    """The operator's keys in one process, which reads them anew when it meets a data key of another one, as after a
    rotation."""

    def __init__(self, read: Callable[[], str]) -> None:
        """`read` returns the text of the keys, which `parsed_keys` accepts."""
        self._read = read
        self._keys = self._parsed()

    @property
    def first(self) -> OperatorKey:
        """The key that wraps the first data keys, and all of them in a rotation."""
        return self._keys[0]

    @property
    def ids(self) -> set[bytes]:
        """The ids of the keys, as they were last read."""
        return {key.id for key in self._keys}

    def named(self, key_id: bytes) -> OperatorKey:
        """The key with this id. Raises KeysUnusable if the operator gave no such key."""
        key = self._of(key_id)
        if key is None:
            self._refresh()
            key = self._of(key_id)
        if key is None:
            raise KeysUnusable(f"the operator's key {key_id.hex()}, which wraps data keys, is not among those given")
        return key

    def unwrapped(self, stored: StoredKey) -> bytes:
        """The data key's secret, whichever of the keys wraps it: the id of the wrapper may be damaged, too. Raises
        KeyLost for a data key that is not as it was stored, and KeysUnusable if its wrapper is not among the keys."""
        if self._of(stored.wrapper) is None:
            self._refresh()
        for key in sorted(self._keys, key=lambda key: key.id != stored.wrapper):
            with suppress(KeyLost):
                return key.unwrapped(stored)
        if any(stored.wrapper):  # a name of zeros is damaged, too
            self.named(stored.wrapper)
        raise KeyLost(f"data key {stored.id.hex()} is not what was stored")

    def _refresh(self) -> None:
        """Read the keys anew; keep the known ones if the new text cannot be used."""
        with suppress(KeysUnusable, OSError):
            self._keys = self._parsed()

    def _of(self, wrapper: bytes) -> OperatorKey | None:
        return next((key for key in self._keys if key.id == wrapper), None)

    def _parsed(self) -> Sequence[OperatorKey]:
        try:
            return [OperatorKey(key) for key in parsed_keys(self._read())]
        except ValueError as error:
            raise KeysUnusable(str(error)) from error
