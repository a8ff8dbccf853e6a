"""Reads the index: the best exchanges and records by words, by meaning, or by both.

An exchange is found by the best of its messages, in each order before the orders are fused: a long reply has more
pieces than the question before it, and would stand in several places. Records that later ones have superseded are not
found. Two more orders join those by words and by meaning: the messages of users alone, by words, because a short
message tells what a long reply is about; and, in one conversation, the messages that lay down a standing rule or state
a preference, among themselves, because they hold for questions that share no word with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Full, LifoQueue

from abridged.service.domain.message import Role
from abridged.service.domain.record import MessageRange
from abridged.service.recall.errors import RecallStopped
from abridged.service.recall.file import ROLE_NUMBERS, Connection, Kind, connected
from abridged.service.recall.filters import scope_of
from abridged.service.recall.fusion import Ranked, Unit, by_unit, fused
from abridged.service.recall.orders import (
    by_meaning,
    by_words,
    nearest_entries,
    pieces_of,
    standing_by_nearness,
    standing_entries,
)
from abridged.service.recall.search import Asked, Entry, Found, Mode, Opening, Search

SAID_MAX = 3
"""The best messages of users by words, which are an order of their own. More of them find more of BEAM's sources and
fewer of the answers that a tool or an assistant gave."""

SAID_WEIGHT = 0.7
"""The weight of that order in a score. docs/adr/0075-rules-and-preferences-are-found.md has the figures of both."""

STANDING_WEIGHT = 0.8
"""The weight of the order of standing messages, which most questions do not need."""

CONNECTIONS_KEPT_MAX = 4
"""The number of threads that read."""

_ROLES = {number: role for role, number in ROLE_NUMBERS.items()}


class Searcher:
    """Searches one index's file, in any thread. Raises RecallStopped when the file fails."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._free: LifoQueue[Connection] = LifoQueue(CONNECTIONS_KEPT_MAX)

    def __call__(self, search: Search, entries_max: int, asked: Asked | None = None) -> Found:
        """The best entries, at most `entries_max`. `asked` is None for a search by words.

        Raises what `asked.require` raises.
        """
        vector = None if asked is None else asked.vector
        with self._reading() as connection:
            made = dict(connection.execute("SELECT name, value FROM made"))
            position = words_position = int(made["position"])
            if asked is not None:
                asked.require(made.get("embedder", ""), int(made.get("dimension", 0)))
                oldest = connection.execute("SELECT min(id) FROM entries WHERE NOT has_vectors").fetchone()[0]
                position = position if oldest is None else oldest - 1
            scope = scope_of(connection, search)
            if scope is None:
                return Found((), position, words_position)
            words = [] if search.mode is Mode.MEANING else by_words(connection, search, scope)
            near = [] if vector is None else by_meaning(connection, search, scope, vector)
            stands = set() if search.mode is Mode.MEANING else standing_entries(connection, search, scope)
            standing = (
                # They count as much as the words do, however few of these they have.
                [ranked._replace(strength=words[0].strength) for ranked in words if ranked.entry in stands]
                if vector is None
                else standing_by_nearness(nearest_entries(vector, pieces_of(connection, stands)), near)
            )
            units, users = _units(connection, {ranked.entry for ranked in (*words, *near, *standing)})
            said = [ranked for ranked in words if ranked.entry in users]
            # Where nobody else speaks, it would be the order by words once more.
            said = said[:SAID_MAX] if len(said) < len(words) else []
            weighted = ((words, 1.0), (said, SAID_WEIGHT), (near, 1.0), (standing, STANDING_WEIGHT))
            ranked = fused((by_unit(order, units), weight) for order, weight in weighted)
            return Found(tuple(_entries(connection, ranked[:entries_max])), position, words_position)

    def close(self) -> None:
        while True:
            try:
                self._free.get_nowait().close()
            except Empty:
                return

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A connection in a read transaction: all that a search reads is of one moment."""
        import apsw

        try:
            try:
                connection = self._free.get_nowait()
            except Empty:
                connection = connected(self._path, writes=False)
            try:
                with connection:
                    yield connection
            except BaseException:
                connection.close()
                raise
            try:
                self._free.put_nowait(connection)
            except Full:
                connection.close()
        except apsw.Error as error:
            raise RecallStopped(f"the index cannot be read ({type(error).__name__})") from error


def _units(connection: Connection, entries: Iterable[int]) -> tuple[dict[int, Unit], set[int]]:
    """The unit of each entry, and those that users said."""
    found = connection.execute(
        "SELECT id, conversation, kind, exchange, role FROM entries WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(entries)),),
    )
    units: dict[int, Unit] = {}
    users: set[int] = set()
    for entry, conversation, kind, exchange, role in found:
        units[entry] = (conversation, exchange) if kind == Kind.MESSAGE else (entry, 0)
        if role == ROLE_NUMBERS[Role.USER]:
            users.add(entry)
    return units, users


def _entries(connection: Connection, ranked: Sequence[Ranked]) -> Iterator[Entry]:
    for entry, score, piece, similarity, found_by, _ in ranked:
        number, conversation, version, kind, role, first, last, exchange, source, time_us, of_text = connection.execute(
            "SELECT c.id, c.name, e.version, e.kind, e.role, e.first, e.last, e.exchange, e.source, e.time_us,"
            " e.checksum FROM entries e JOIN conversations c ON c.id = e.conversation WHERE e.id = ?",
            (entry,),
        ).fetchone()
        of_exchange, opening = (None, None) if kind != Kind.MESSAGE else _exchange(connection, number, exchange)
        yield Entry(
            id=entry,
            conversation=conversation,
            version=version,
            kind=Kind(kind),
            role=_ROLES[role],
            first=first,
            last=last,
            source=source,
            time_us=time_us,
            checksum=of_text,
            exchange=of_exchange,
            opening=None if opening is None or opening.id == entry else opening,
            score=score,
            piece=piece,
            similarity=similarity,
            found_by=found_by,
        )


def _exchange(connection: Connection, conversation: int, exchange: int) -> tuple[MessageRange, Opening]:
    of_exchange = (conversation, Kind.MESSAGE, exchange)
    first, *opening = connection.execute(
        "SELECT first, id, version, checksum FROM entries WHERE conversation = ? AND kind = ? AND exchange = ?"
        " ORDER BY first LIMIT 1",
        of_exchange,
    ).fetchone()
    (last,) = connection.execute(
        "SELECT max(first) FROM entries WHERE conversation = ? AND kind = ? AND exchange = ?", of_exchange
    ).fetchone()
    return MessageRange(first, last), Opening(*opening)
