"""Places of each kind of thing in a log's file, found by their content: for tests that flip a bit of each."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from abridged.eventlog.sqlite.schema import HEAD_REVISION
from tests.support.flipped_bits import PENDING, Flip

_PAGE_SIZE = 4_096
_HEADER = {
    "magic": 3,
    "page size": 16,
    "write version": 18,
    "reserved bytes": 20,
    "change counter": 27,
    "pages": 31,
    "first free page": 35,
    "free pages": 39,
    "schema cookie": 43,
    "text encoding": 59,
}
_CELLS = 4
"""The offset, in a page of a b-tree, of the lower byte of the number of its cells."""
_RIGHT_CHILD = 11
"""The offset, in an inner page, of the lowest byte of the number of its last child."""


def places_of(path: Path, conversation: str) -> dict[str, Flip]:
    """One bit of each kind of place, by its owner; places of one conversation are those of the named one."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return _places(_File(path, database), conversation)


def lost_id(path: Path, conversation: str) -> tuple[int, Flip]:
    """The number of a message, and a bit by which the index of ids loses it alone.

    Its id is the least of the conversation's, and stays so: a search for any other by way of its entry goes right.
    """
    least = (
        "SELECT e.version - 1, e.event_id, e.type, e.time_us FROM events AS e JOIN streams AS s ON s.id = e.stream "
        "JOIN types AS t ON t.id = e.type WHERE s.name = ? AND t.name = 'MessageAppended' ORDER BY e.event_id LIMIT 1"
    )
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        number, event_id, of_type, time_us = database.execute(least, (conversation,)).fetchone()
        in_its_row = event_id + of_type.to_bytes(1, "big") + time_us.to_bytes(8, "big")
        return number, _File(path, database).in_entry(event_id, in_its_row)


class _File:
    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._bytes = path.read_bytes()
        self._database = database

    def value(self, query: str, *parameters: Any) -> Any:
        (value,) = self._database.execute(query, parameters).fetchone()
        return value

    def root(self, name: str) -> int:
        """Return the offset of the root page of a table or an index."""
        page = self.value("SELECT rootpage FROM sqlite_schema WHERE name = ?", name)
        return int(page - 1) * _PAGE_SIZE

    def found(self, what: bytes, *, begin: int = 0, bit: int = 1) -> Flip:
        """A bit in the middle of the first place that holds `what`."""
        at = self._bytes.index(what, begin)
        return Flip(at + len(what) // 2, bit)

    def in_front_of(self, what: bytes, distance: int = 1, tree: str = "") -> Flip:
        """The lowest bit of the byte so far before `what`, of a tree if one is named."""
        return Flip(self._bytes.index(what, self.root(tree) if tree else 0) - distance, 0)

    def in_entry(self, event_id: bytes, in_its_row: bytes) -> Flip:
        """The sign of the number before `event_id` where that is not in its row."""
        at = self._bytes.index(event_id)
        if self._bytes[at:].startswith(in_its_row):
            at = self._bytes.index(event_id, at + 1)
        return Flip(at - 1, 7)

    def in_row_of(self, conversation: bytes, what: bytes) -> Flip:
        """A bit in the middle of `what`, in the row of a conversation in the read table."""
        return self.found(what, begin=self._bytes.index(b"default" + conversation, self.root("conversations")))

    def last_of(self, what: bytes, tree: str) -> Flip:
        """A bit of the last byte of `what` in a tree."""
        return Flip(self._bytes.index(what, self.root(tree)) + len(what) - 1, 1)

    def free_page(self) -> int:
        """Return the offset of the first page of the list of free ones; 0 if the list is empty."""
        page = int.from_bytes(self._bytes[32:36], "big")
        return max(0, page - 1) * _PAGE_SIZE

    def leaf_in_use(self, trunk: int) -> Flip:
        """The lowest bit by which the first page in a page of the list of free ones is one that is in use."""
        pages = [int.from_bytes(self._bytes[at : at + 4], "big") for at in range(trunk, trunk + _PAGE_SIZE, 4)]
        free = {trunk // _PAGE_SIZE + 1, *pages[2 : 2 + pages[1]]}
        used = set(range(2, len(self._bytes) // _PAGE_SIZE + 1)) - free
        bit = next(bit for bit in range(8) if pages[2] ^ (1 << bit) in used)
        return Flip(trunk + 11, bit)


def _places(file: _File, conversation: str) -> dict[str, Flip]:
    of_stream = (
        "FROM events AS e JOIN streams AS s ON s.id = e.stream JOIN types AS t ON t.id = e.type "
        "WHERE s.name = ? AND t.name = 'MessageAppended' ORDER BY e.version LIMIT 1 OFFSET 3"
    )
    event_id: bytes = file.value(f"SELECT e.event_id {of_stream}", conversation)
    number: int = file.value(f"SELECT e.type {of_stream}", conversation)
    time_us: int = file.value(f"SELECT e.time_us {of_stream}", conversation)
    # SQLite keeps 0 and 1, as the schema's version is, in a row's header alone.
    in_its_row = event_id + number.to_bytes(1, "big") + time_us.to_bytes(8, "big")
    request = file.value(
        "SELECT r.key FROM requests AS r JOIN streams AS s ON s.id = r.stream WHERE s.name = ?", conversation
    )
    seal: bytes = file.value("SELECT seal FROM conversations WHERE id = ?", conversation)
    settings: bytes = file.value("SELECT settings FROM conversations WHERE id = ?", conversation)
    made_by = b"conversations" + bytes([file.value("SELECT version FROM projections")])
    text = conversation.encode()
    places = {
        **{f"header: {name}": Flip(offset, 2) for name, offset in _HEADER.items()},
        "schema: a table's name": file.found(b"CREATE TABLE conversations"),
        "schema: a column": file.found(b"first_position"),
        "log: its id": file.found(file.value("SELECT log_id FROM log").encode()),
        "log: its secret": file.found(file.value("SELECT key FROM log")),
        "log: the schema's revision": file.found(HEAD_REVISION.encode(), begin=file.root("eventlog_revision")),
        "event: payload": file.found(file.value(f"SELECT e.payload {of_stream}", conversation)),
        "event: commitment": file.found(file.value(f"SELECT e.commitment {of_stream}", conversation)),
        "event: content hash": file.found(file.value(f"SELECT e.content_hash {of_stream}", conversation)),
        "event: id": file.found(in_its_row, bit=0),
        "event: version": file.in_front_of(in_its_row),
        "event: type": Flip(file.found(in_its_row).offset + 4, 0),
        "types: a name": file.found(b"MessageAppended", begin=file.root("types")),
        "types: cells": Flip(file.root("types") + _CELLS, 1),
        "events: cells of the root": Flip(file.root("events") + _CELLS, 1),
        "events: last child of the root": Flip(file.root("events") + _RIGHT_CHILD, 1),
        "index of versions: cells": Flip(file.root("sqlite_autoindex_events_1") + _CELLS, 5),
        "index of ids: cells": Flip(file.root("sqlite_autoindex_events_2") + _CELLS, 0),
        "index of ids: the stream of an entry": file.in_entry(event_id, in_its_row),
        "index of ids: last child": Flip(file.root("sqlite_autoindex_events_2") + _RIGHT_CHILD, 0),
        "streams: a name": file.found(text, begin=file.root("streams")),
        "streams: cells": Flip(file.root("streams") + _CELLS, 1),
        "index of streams: a name": file.found(text, begin=file.root("sqlite_autoindex_streams_1")),
        "index of streams: cells": Flip(file.root("sqlite_autoindex_streams_1") + _CELLS, 1),
        "request: key": file.found(request.encode()),
        "request: content hash": file.found(file.value("SELECT content_hash FROM requests WHERE key = ?", request)),
        "requests: cells": Flip(file.root("requests") + _CELLS, 0),
        "conversation: settings": file.in_row_of(text, settings),
        "conversation: seal": file.found(seal),
        "projection: version": file.last_of(made_by, "projections"),
        "conversations: cells": Flip(file.root("conversations") + _CELLS, 0),
        "index of changes: cells": Flip(file.root("conversations_by_change") + _CELLS, 1),
        "index of pending passes: cells": Flip(file.root("conversations_attention") + _CELLS, 0),
    }
    if file.value("SELECT count(*) FROM conversations WHERE id = ?", PENDING):
        entry = b"default" + PENDING.encode()
        places["index of pending passes: an entry"] = file.in_front_of(entry, 5, "conversations_attention")
    if free := file.free_page():
        places |= {
            "free page: next": Flip(free + 3, 1),
            "free page: leaves": Flip(free + 7, 1),
            "free page: a leaf": file.leaf_in_use(free),
        }
    return places
