"""A place for an encrypted log: the place of the log itself, and the place of its data keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

from abridged.eventlog.backend import Backend, Kept, Notice, Opened, StoredBackend
from abridged.eventlog.encryption.contents import Contents
from abridged.eventlog.encryption.data_keys import DataKeys
from abridged.eventlog.encryption.framing import ClearTypes
from abridged.eventlog.encryption.key_store import KeyStore
from abridged.eventlog.encryption.log import EncryptedEventLog
from abridged.eventlog.encryption.operator_keys import OperatorKeys
from abridged.eventlog.encryption.probe import newest_encrypted, require_own
from abridged.eventlog.encryption.rows import EncryptedRows
from abridged.eventlog.encryption.snapshots import EncryptedSnapshots
from abridged.eventlog.encryption.verification import EncryptedVerification
from abridged.eventlog.errors import KeysUnusable
from abridged.eventlog.log import AppendHook, EventLog
from abridged.eventlog.rows import R, RowTable
from abridged.eventlog.verification import LogVerification


class KeyPlace(NamedTuple):
    """The place of a log's data keys, by name, and the operator's keys that wrap them.

    Attributes:
        name: The place, for people.
        exists: Returns whether data keys are there.
        open: Opens them, and makes a place for them if it is missing.
        operator_keys: Returns the text of the operator's keys, which may change while the process runs.
    """

    name: str
    exists: Callable[[], bool]
    open: Callable[[], KeyStore]
    operator_keys: Callable[[], str]

    def opened(self) -> DataKeys:
        """Open the place and return its keys. Raises KeysUnusable."""
        store = self.open()
        try:
            return DataKeys(store, OperatorKeys(self.operator_keys))
        except BaseException:
            store.close()
            raise


class EncryptedBackend:
    """A StoredBackend: the log in `place`, with the keys in `keys`. `clear` names the events that stay in clear."""

    def __init__(self, place: StoredBackend, keys: KeyPlace, clear: ClearTypes) -> None:
        self._place = place
        self._keys = keys
        self._clear = clear

    def __str__(self) -> str:
        return str(self._place)

    def rows(self, table: RowTable[R]) -> EncryptedRows[R]:
        return EncryptedRows(self._place.rows(table), table)

    def open(
        self,
        rows: EncryptedRows[Any],
        *,
        clock_us: Callable[[], int],
        hook: AppendHook,
        on_fatal: Callable[[Exception], None] = lambda _: None,
    ) -> Opened:
        """See Backend. Raises KeysUnusable besides."""
        with ExitStack() as failing:
            keys = self._keys.opened() if self._keys.exists() else None
            if keys is not None:
                failing.callback(keys.close)
            opened = self._place.open(rows.stored, clock_us=clock_us, hook=hook, on_fatal=on_fatal)
            failing.callback(opened.log.close)
            head = opened.log.head()
            if keys is not None:
                require_own(keys, opened.log, head, self._clear)
            elif newest_encrypted(opened.log, head, self._clear) is not None:
                raise KeysUnusable(f"there are no data keys at {self._keys.name}, and the log is encrypted")
            else:
                keys = self._keys.opened()
                failing.callback(keys.close)
            keys.make_ahead()
            failing.pop_all()
        contents = Contents(keys, self._clear)
        log = EncryptedEventLog(opened.log, contents)
        rows.through(contents, log.key_beside)
        kept = opened.kept
        if kept is not None:
            kept = Kept(rows, EncryptedSnapshots(kept.snapshots, contents, log.key_beside))
        notices = (Notice("missing_keys", keys.lacking),) if keys.lacking else ()
        return opened._replace(log=log, kept=kept, keys=log, notices=(*opened.notices, *notices))

    def names(self) -> list[str]:
        return self._place.names()

    def size_bytes(self) -> int:
        return self._place.size_bytes()

    def log_id(self) -> str:
        return self._place.log_id()

    def hazards(self) -> list[Notice]:
        return self._place.hazards()

    @contextmanager
    def verification(self, rows: EncryptedRows[Any], *, is_owned: bool = True) -> Iterator[LogVerification]:
        """See StoredBackend. The check reads contents as they are stored if there are no data keys."""
        with self._place.verification(rows.stored, is_owned=is_owned) as log:
            if not self._keys.exists():
                yield log
                return
            with closing(self._keys.opened()) as keys:
                found = EncryptedVerification(log, Contents(keys, self._clear))
                rows.through(found.contents, lambda _: None)
                yield found

    def copy(self, log_id: str, fill: Callable[[EventLog], None], check: Callable[[Backend], None]) -> None:
        with closing(self._keys.opened()) as keys:
            contents = Contents(keys, self._clear)
            self._place.copy(
                log_id, lambda log: fill(EncryptedEventLog(log, contents)), lambda new: check(self.of(new))
            )

    def rewrite(
        self, rows: EncryptedRows[Any], fill: Callable[[Backend], None], *, goes_on: Callable[[], bool]
    ) -> bool:
        return self._place.rewrite(rows.stored, lambda new: fill(self.of(new)), goes_on=goes_on)

    def of(self, place: Any) -> EncryptedBackend:
        """The log in another place, with the same keys."""
        return EncryptedBackend(place, self._keys, self._clear)
