"""Keys for tests, and a log that is encrypted with them."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from abridged.eventlog.backend import StoredBackend
from abridged.eventlog.encryption.backend import EncryptedBackend, KeyPlace
from abridged.eventlog.encryption.framing import ClearTypes
from abridged.eventlog.encryption.key_file import KeyFile
from abridged.eventlog.sqlite.backend import SqliteBackend
from tests.support.postgres_server import database_url

ERASED = b"\xc0\x3e\x01"

CLEAR = ClearTypes(frozenset({"closed"}), ERASED)


def operator_key(number: int = 1) -> str:
    """The text of an operator's key."""
    return b64encode(bytes([number]) * 32).decode()


def key_place(path: Path, *keys: str) -> KeyPlace:
    """Data keys in the file `path`, wrapped with the first of the operator's keys."""
    return KeyPlace(str(path), path.exists, lambda: KeyFile(path), lambda: " ".join(keys or (operator_key(),)))


def key_place_in_database(path: Path, *keys: str) -> KeyPlace:
    """The same in a database. Skips the test if there is no server."""
    url = database_url(path)
    from abridged.eventlog.postgres.data_keys import PostgresKeyStore

    given = " ".join(keys or (operator_key(),))
    return KeyPlace(url, lambda: PostgresKeyStore.exists(url), lambda: PostgresKeyStore(url), lambda: given)


def encrypted_backend(path: Path, place: StoredBackend | None = None) -> EncryptedBackend:
    """A log in the file `path`, unless in a `place`, with its data keys beside it."""
    keys = key_place(path.with_name(f"{path.name}.keys"))
    return EncryptedBackend(place or SqliteBackend(path), keys, CLEAR)
