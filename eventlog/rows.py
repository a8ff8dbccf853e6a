"""Rows beside the events: one for each stream, written in the transaction that appends to it.

The owner of a fold declares a `RowTable`; each backend keeps its rows in the log's own database. Rows can always be
made again from the events, so a table of another version is emptied and filled anew, and none is altered.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from abridged.eventlog.event import NUMBER_MAX, StreamId

SEAL_BYTES = 12

UNFINISHED, FINISHED, FOR_NOW = 0, 1, 2
"""The states of a table of rows: not made to its end, made, and made with rows that the next start makes again."""

FIRST = StreamId("", "")
"""A name that sorts before every stream's."""

R = TypeVar("R", bound=tuple[Any, ...])
"""A row: a named tuple that begins with `namespace`, `id` and `position`, the position of the stream's last event."""


@dataclass(frozen=True, slots=True)
class RowTable(Generic[R]):
    """A table of one row for each stream.

    The fields of `row` are the columns: texts, numbers and bytes, or None where their type allows it. `version` is
    raised with whatever changes a column, what one says, or a mark. `marks` are what few rows have, by name: a row has
    a mark if one of the mark's columns is neither 0 nor empty. `private` are the columns with people's words, texts but
    for the last, which has bytes, each with its value in the row of a stream whose contents were erased; where the key
    is lost, the texts are empty.
    """

    name: str
    version: int
    row: type[R]
    marks: Mapping[str, tuple[str, ...]]
    private: Mapping[str, str | bytes] = field(default_factory=dict)


class Fault(StrEnum):
    """The reason why a table of rows has to be made again before it is read."""

    MISSING = "is missing"
    FOREIGN = "is another log's"
    OLDER = "was made by an older version"
    NEWER = "was made by a newer version"
    INTERRUPTED = "was not made to its end"
    DAMAGED = "is not as it was made"


def seal_of(row: Sequence[Any]) -> bytes:
    """The seal of these values of a row."""
    # How Python writes values tells their types too: a number is not its text.
    return hashlib.blake2b(repr(tuple(row)).encode(), digest_size=SEAL_BYTES).digest()


class Rows(Protocol[R]):
    """The rows of one table. Reads may run in any thread, each in one snapshot.

    Reads raise LogCorrupt for a row that is not as written, and for missing rows.
    """

    def require_complete(self) -> None:
        """Raise LogUnavailable while the rows are being made again."""
        ...

    def put(self, transaction: Any, rows: Sequence[R], /) -> None:
        """Write rows in the places of earlier ones, in the transaction that an append hook gets."""
        ...

    def row(self, key: StreamId) -> R | None:
        """The stream's row; None if there is no such stream."""
        ...

    def page(self, namespace: str, *, before: int, limit: int, accepts: Callable[[R], bool]) -> list[R]:
        """The first `limit` rows of a namespace that `accepts` is true of, last changed first, of those before a
        position (0: from the newest)."""
        ...

    def namespaces(self) -> list[str]:
        """The namespaces of all rows, in order."""
        ...

    def marked(self, mark: str, *, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[R]:
        """Rows with the mark by namespace and id, those after a stream's. Damaged ones are left out, each of which is
        refused on request."""
        ...

    def marked_streams(self, mark: str, *, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[StreamId]:
        """The streams of rows with the mark by namespace and id, those after a stream, as the mark's index has them:
        rows are not read, so damage to one does not show."""
        ...

    def having(self, mark: str, namespace: str, value: Any) -> list[StreamId]:
        """Streams of a namespace by id whose rows have this value in a mark of one column, as the mark's index has
        them."""
        ...

    def values(self, mark: str) -> dict[StreamId, Any]:
        """The value of a mark of one column by stream, over all rows that have it, as the mark's index has them: damage
        to a row does not hide it."""
        ...

    def tally(self, mark: str) -> Counter[Any]:
        """The number of rows by the value of a mark of one column, over the rows that have it."""
        ...


class StoredRows(Rows[R], Protocol[R]):
    """Rows that outlive the process, and may have to be made again. Nobody reads one before they are all there."""

    @property
    def is_complete(self) -> bool:
        """True if the rows are all there."""
        ...

    def streams(self) -> Iterator[StreamId]:
        """Every stream of the log, all of which should have rows; also those that the index of names has lost. Raises
        LogCorrupt when damage leads back to one."""
        ...

    def stream_count(self) -> int:
        """The log's number of streams, counted in their table without an index."""
        ...

    def insert(self, rows: Sequence[R]) -> None:
        """Write rebuilt rows in a transaction of their own."""
        ...

    def complete(self, *, left_out: Mapping[StreamId, int], for_now: bool = False) -> None:
        """The rows are all there but those of streams that could not be read, with the versions of their damaged
        events: these are refused, and the next start makes the table again. It does so, too, if some of the rows are
        there `for_now`."""
        ...


class MemoryRows(Generic[R]):
    """Rows in a dictionary. A transaction is the list of the changes to make when it has succeeded."""

    def __init__(self, table: RowTable[R]) -> None:
        self._marks = table.marks
        self._rows: dict[StreamId, Any] = {}

    def require_complete(self) -> None:
        """Do nothing: rows in memory are never made again."""

    def put(self, transaction: list[Callable[[], None]], rows: Sequence[R]) -> None:
        transaction.append(lambda: self._rows.update({StreamId(row[0], row[1]): row for row in rows}))

    def row(self, key: StreamId) -> R | None:
        return self._rows.get(key)

    def page(self, namespace: str, *, before: int, limit: int, accepts: Callable[[R], bool]) -> list[R]:
        newest = sorted(
            (row for row in self._all() if row.namespace == namespace and (not before or row.position < before)),
            key=lambda row: -row.position,
        )
        return [row for row in newest if accepts(row)][:limit]

    def namespaces(self) -> list[str]:
        return sorted({row.namespace for row in self._all()})

    def marked(self, mark: str, *, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[R]:
        columns = self._marks[mark]
        found = (row for row in self._all() if row[:2] > after and any(getattr(row, column) for column in columns))
        return sorted(found, key=lambda row: row[:2])[:limit]

    def marked_streams(self, mark: str, *, after: StreamId = FIRST, limit: int = NUMBER_MAX) -> list[StreamId]:
        return [StreamId(*row[:2]) for row in self.marked(mark, after=after, limit=limit)]

    def having(self, mark: str, namespace: str, value: Any) -> list[StreamId]:
        (column,) = self._marks[mark]
        found = (row for row in self._all() if row.namespace == namespace and getattr(row, column) == value)
        return sorted(StreamId(*row[:2]) for row in found)

    def values(self, mark: str) -> dict[StreamId, Any]:
        (column,) = self._marks[mark]
        return {StreamId(*row[:2]): getattr(row, column) for row in self.marked(mark)}

    def tally(self, mark: str) -> Counter[Any]:
        (column,) = self._marks[mark]
        return Counter(value for row in self._all() if (value := getattr(row, column)))

    def _all(self) -> list[Any]:
        """A copy, made in one step, because reads run in threads while commits write."""
        return list(self._rows.values())
