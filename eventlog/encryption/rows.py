"""Rows beside the events. The private columns are encrypted together, into the last of them, with the stream's key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct, error
from typing import Any, Final, Generic

from abridged.eventlog.encryption.contents import Contents, Found, KeyErased
from abridged.eventlog.encryption.data_key import place_in_stream
from abridged.eventlog.encryption.framing import is_encrypted
from abridged.eventlog.errors import KeyLost, StreamCorrupt
from abridged.eventlog.event import NUMBER_MAX, StreamId
from abridged.eventlog.rows import FIRST, R, RowTable, StoredRows

_LENGTH: Final = Struct(">I")


class EncryptedRows(Generic[R]):
    """The StoredRows in `stored`. Rows of streams without a key are in clear, like their events, and so are those
    without contents.

    Rows are as they are stored until `through` gives the keys.
    """

    def __init__(self, stored: StoredRows[R], table: RowTable[R]) -> None:
        self.stored = stored
        self._private = tuple(table.private)
        self._vault = self._private[-1]
        self._empty: Mapping[str, Any] = table.private
        self._lost = {**dict.fromkeys(self._private, ""), self._vault: table.private[self._vault]}
        self._place = f"row {table.name}"
        self._contents: Contents | None = None
        self._key_of: Found = lambda _: None

    def through(self, contents: Contents, key_of: Found) -> None:
        """Encrypt and decrypt from now on."""
        self._contents, self._key_of = contents, key_of

    @property
    def is_complete(self) -> bool:
        return self.stored.is_complete

    def streams(self) -> Iterator[StreamId]:
        return self.stored.streams()

    def stream_count(self) -> int:
        return self.stored.stream_count()

    def insert(self, rows: Sequence[R]) -> None:
        self.stored.insert([self._encrypted(row) for row in rows])

    def complete(self, *, left_out: Mapping[StreamId, int], for_now: bool = False) -> None:
        self.stored.complete(left_out=left_out, for_now=for_now)

    def require_complete(self) -> None:
        self.stored.require_complete()

    def put(self, transaction: Any, rows: Sequence[R], /) -> None:
        self.stored.put(transaction, [self._encrypted(row) for row in rows])

    def row(self, key: StreamId) -> R | None:
        found = self.stored.row(key)
        return None if found is None else self._opened(found)

    def page(self, namespace: str, *, before: int, limit: int, accepts: Callable[[R], bool]) -> list[R]:
        found = self.stored.page(namespace, before=before, limit=limit, accepts=lambda row: accepts(self._opened(row)))
        return [self._opened(row) for row in found]

    def namespaces(self) -> list[str]:
        return self.stored.namespaces()

    def marked(self, mark: str, *, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[R]:
        return [self._opened(row) for row in self.stored.marked(mark, after=after, limit=limit)]

    def marked_streams(self, mark: str, *, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[StreamId]:
        return self.stored.marked_streams(mark, after=after, limit=limit)

    def having(self, mark: str, namespace: str, value: Any) -> list[StreamId]:
        return self.stored.having(mark, namespace, value)

    def values(self, mark: str) -> dict[StreamId, Any]:
        return self.stored.values(mark)

    def tally(self, mark: str) -> Counter[Any]:
        return self.stored.tally(mark)

    def _encrypted(self, row: R) -> R:
        if {column: getattr(row, column) for column in self._private} in (self._empty, self._lost):
            return row
        try:
            key = self._key_of(StreamId(row[0], row[1]))
        except KeyErased:
            return self._with(row, self._empty)
        if key is None:
            return row
        values = [_bytes_of(getattr(row, column)) for column in self._private]
        plain = b"".join(part for value in values for part in (_LENGTH.pack(len(value)), value))
        vault = key.encrypted(plain, place_in_stream(StreamId(row[0], row[1]), self._place))
        return self._with(row, {**dict.fromkeys(self._private, ""), self._vault: vault})

    def _opened(self, row: R) -> R:
        stored = getattr(row, self._vault)
        if self._contents is None or not is_encrypted(stored):
            return row
        stream = StreamId(row[0], row[1])
        try:
            plain = self._contents.opened_beside(stored, stream, place_in_stream(stream, self._place))
        except KeyLost:
            return self._with(row, self._lost)
        return self._with(row, self._empty if plain is None else self._values(stream, plain))

    def _values(self, stream: StreamId, plain: bytes) -> Mapping[str, Any]:
        values: dict[str, Any] = {}
        at = 0
        try:
            for column in self._private:
                (length,) = _LENGTH.unpack_from(plain, at)
                at += _LENGTH.size
                value = plain[at : at + length]
                at += length
                values[column] = value if column == self._vault else value.decode()
        except (error, ValueError) as unreadable:
            raise StreamCorrupt("a row is not what was encrypted", stream) from unreadable
        return values

    def _with(self, row: R, values: Mapping[str, Any]) -> R:
        changed: R = row._replace(**values)  # type: ignore[attr-defined]  # rows are named tuples
        return changed


def _bytes_of(value: Any) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
