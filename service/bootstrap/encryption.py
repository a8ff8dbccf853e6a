"""The keys of an encrypted log, by the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from abridged.eventlog.backend import StoredBackend
from abridged.eventlog.encryption.backend import EncryptedBackend, KeyPlace
from abridged.eventlog.encryption.contents import Contents
from abridged.eventlog.encryption.data_keys import DataKeys, Rewrapped
from abridged.eventlog.encryption.key_file import KeyFile
from abridged.eventlog.encryption.probe import require_own
from abridged.eventlog.encryption.salvage import encrypted_meaning
from abridged.eventlog.errors import KeysUnusable
from abridged.eventlog.rows import StoredRows
from abridged.eventlog.salvage import Meaning
from abridged.eventlog.verification import LogVerification
from abridged.service.bootstrap.backends import keys_in_database
from abridged.service.bootstrap.open_log import require_no_archives
from abridged.service.bootstrap.stored import is_encrypted, read_stored
from abridged.service.codec.events import CLEAR
from abridged.service.config.settings import EncryptionSettings, Settings
from abridged.service.conversations.row import Row
from abridged.service.conversations.table import ConversationTable
from abridged.service.models.settings import text_of


def encrypted(place: StoredBackend, settings: Settings) -> EncryptedBackend:
    """The log in `place`, with the keys that the settings name. Raises SettingUnusable."""
    return EncryptedBackend(place, key_place(settings), CLEAR)


def key_place(settings: Settings) -> KeyPlace:
    """The place of the data keys of the log of `settings`. Raises SettingUnusable."""
    encryption = settings.encryption
    if encryption.keys_url is not None:
        return KeyPlace(*keys_in_database(encryption.keys_url), lambda: _operator_keys(encryption))
    path = encryption.keys_path or keys_path(settings.log.path)
    return KeyPlace(str(path), path.exists, lambda: KeyFile(path), lambda: _operator_keys(encryption))


def keys_path(log_path: Path) -> Path:
    """The path of the data keys of a log's file, unless the settings name another one."""
    return log_path.with_name(f"{log_path.name}.keys")


def _operator_keys(encryption: EncryptionSettings) -> str:
    return encryption.key_file.read_text("utf-8") if encryption.key_file else text_of(encryption.key)


def _existing(place: KeyPlace) -> closing[DataKeys]:
    if not place.exists():
        raise KeysUnusable(f"there are no data keys at {place.name}: encryption.keys_path names those of the log")
    return closing(place.opened())


@contextmanager
def meaning_with_keys(meaning: Meaning, settings: Settings) -> Iterator[Meaning]:
    """Yield the meaning of the events of an encrypted log. Raises KeysUnusable without its data keys."""
    with _existing(key_place(settings)) as keys:
        yield encrypted_meaning(meaning, Contents(keys, CLEAR))


def require_keys(settings: Settings) -> None:
    """Raise KeysUnusable if the log of `settings` is encrypted, and its data keys are not in their place."""
    place = key_place(settings)
    if not place.exists() and is_encrypted(settings.log):
        raise KeysUnusable(f"there are no data keys at {place.name}, and the log is encrypted")


def require_own_keys(settings: Settings) -> None:
    """Raise KeysUnusable if the log of `settings` is encrypted, and its data keys are not in their place."""
    require_keys(settings)
    if (place := key_place(settings)).exists():
        with _existing(place) as keys:
            read_stored(settings.log, lambda log, _: require_own(keys, log, log.event_count(), CLEAR))


def keys_of(settings: Settings) -> str:
    """Describe the data keys of the log of `settings` in a line. Raises KeysUnusable if it needs others, and
    SettingUnusable if it has archived conversations."""
    require_own_keys(settings)
    place = key_place(settings)
    read_stored(settings.log, _require_no_archives)
    if not place.exists():
        return f"data keys at {place.name} will be made"
    with _existing(place) as keys:
        share = "" if keys.is_rewrapped else "not all "
        lacking = f"; {keys.lacking}" if keys.lacking else ""
    return f"data keys at {place.name}, {share}wrapped with the first operator's key{lacking}"


def _require_no_archives(log: LogVerification, rows: StoredRows[Row]) -> None:
    if log.fault is None:  # a start makes the table again before it looks
        require_no_archives(ConversationTable(rows))


def rewrapped(settings: Settings, progress: Callable[[int, int], None]) -> Rewrapped:
    """Wrap the data keys of the log of `settings` with the operator's first key. Raises KeysUnusable."""
    with _existing(key_place(settings)) as keys:
        return keys.rewrap(lambda count: progress(count, count))
