"""Reads the index: the best exchanges and records by words, by meaning, or by both.

An exchange is found by the best of its messages, in each order before the orders are fused: a long reply has more
pieces than the question before it, and would stand in several places. Records that later ones have superseded are not
found. Two more orders join those by words and by meaning: the messages of users alone, by words, because a short
message tells what a long reply is about; and, in one conversation, the messages that lay down a standing rule or state
a preference, among themselves, because they hold for questions that share no word with them.

All are fused by rank alone, since a rank says the same in each order and a score does not: a score is the sum of
weight / (FUSION_K + rank) over the orders that have it (Cormack, Clarke and Buettcher, Reciprocal Rank Fusion
outperforms Condorcet and individual Rank Learning Methods, SIGIR 2009).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from queue import Empty, Full, LifoQueue
from typing import Any, NamedTuple

from abridged.service.domain.message import Role
from abridged.service.domain.record import MessageRange
from abridged.service.recall.errors import RecallStopped
from abridged.service.recall.file import (
    ROLE_NUMBERS,
    Connection,
    blocks_table,
    connected,
    entry_of,
    piece_id,
    words_table,
)
from abridged.service.recall.index import Kind
from abridged.service.recall.passages import PIECES_MAX
from abridged.service.recall.pieces import Wanted, nearest, shelf_of
from abridged.service.recall.query import Query
from abridged.service.recall.standing import STANDING
from abridged.service.recall.vectors import Direction, cosines

HITS_MAX = 100
"""Limit on the hits of a search, and on the exchanges of each order that are fused."""

ENTRIES_MAX = 2 * HITS_MAX
"""Hits of both orders, if none is in both."""

ROWS_MAX = 200
"""The best entries by words, which are then put together by exchanges."""

FUSION_K = 10
"""The paper has 60, for orders of a thousand. The first ranks of the shorter orders here tell more; docs/quality.md has
the figures."""

SAID_MAX = 3
"""The best messages of users by words, which are an order of their own. More of them find more of BEAM's sources and
fewer of the answers that a tool or an assistant gave."""

SAID_WEIGHT = 0.7
"""The weight of that order in a score. docs/adr/0075-rules-and-preferences-are-found.md has the figures of both."""

NEAR_MAX = 200
"""Pieces whose signs are nearest, which are then put in order by their steps."""

POSTINGS_MAX = 4_000
"""Entries that a search by words ranks. Words of more than that are left out, the most frequent first, if a rarer one
is there: they tell least, and to rank what any entry has takes as long as reading all of them."""

COUNTED_TO = (256, 1_024, POSTINGS_MAX)
"""A word's entries are counted so far at first, and further only while that can make it a word that ranks."""

CONNECTIONS_KEPT_MAX = 4
"""The number of threads that read."""

_GONE = """
SELECT e.id FROM json_each(?) gone CROSS JOIN entries e ON e.conversation = ? AND e.kind = ?
AND e.exchange BETWEEN coalesce(
    (SELECT max(exchange) FROM entries WHERE conversation = ? AND kind = ? AND exchange <= gone.value ->> 0), 0
) AND gone.value ->> 1
AND e.first BETWEEN gone.value ->> 0 AND gone.value ->> 1
"""
"""The messages in ranges. Exchanges are in the order of their messages, and the index has them in this order: that of a
range's first message is the last to begin before it."""

_NOT_SUPERSEDED = (
    "NOT EXISTS (SELECT 1 FROM entries s INDEXED BY entries_superseded WHERE s.superseded AND s.id = w.rowid)"
)
"""Each row looks itself up by its id: superseded records may be many."""


class Mode(Enum):
    """The ways to compare."""

    WORDS = "words"
    MEANING = "meaning"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Search:
    """A search and its place: `conversation` is empty for all of the namespace, an empty filter filters nothing.

    Times are in microseconds since the epoch, from `since_us` on and before `until_us`; 0 for no bound. `gone`
    has the messages that are not to be found, by conversation. `records` are the ids of the records to find, None for
    all that no later one has superseded.
    `tokens_max` bounds the passages that the hits come with, 0 for hits without passages.
    """

    namespace: str
    conversation: str
    query: Query
    mode: Mode
    limit: int
    kinds: tuple[Kind, ...] = ()
    roles: tuple[Role, ...] = ()
    labels: Mapping[str, str] | None = None
    since_us: int = 0
    until_us: int = 0
    gone: Mapping[str, tuple[MessageRange, ...]] = field(default_factory=dict)
    records: Collection[str] | None = None
    tokens_max: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A query as a vector: None where it has no angle. `require` raises unless it can be compared with vectors of a
    model's name and a dimension, which is 0 without vectors."""

    vector: Direction | None
    require: Callable[[str, int], None]


class Opening(NamedTuple):
    """The message that an exchange begins with, by the position and the version of its event."""

    id: int
    version: int
    checksum: int


class Entry(NamedTuple):
    """A message or record that was found, and where: `version` is its event's in the conversation's stream, `checksum`
    that of its text in the log. `source` is a record's id, empty for a message.

    A message is the best of its `exchange`, whose first message is its `opening`, None if that is the message itself,
    or is taken back. A record has neither.

    `piece` is the one that is nearest in meaning, None when words found it. `score` compares within a response only: it
    is that of the fused ranks. `similarity` is the cosine of the nearest piece of the exchange, None unless meaning
    found it.
    """

    id: int
    conversation: str
    version: int
    kind: Kind
    role: Role | None
    first: int
    last: int
    source: str
    time_us: int
    checksum: int
    exchange: MessageRange | None
    opening: Opening | None
    score: float
    piece: int | None
    similarity: float | None
    found_by: Mode


_ROLES = {number: role for role, number in ROLE_NUMBERS.items()}

_Unit = tuple[int, int]
"""A conversation's number and that of an exchange, or a record's id and 0."""


class Found(NamedTuple):
    """Entries, one an exchange, best first, and how far the index was read.

    Attributes:
        entries: The entries, at most as many as were asked for.
        position: Every event up to here was searched by all that was compared.
        words: Every event up to here is indexed, and what it takes back is gone from the index.
    """

    entries: tuple[Entry, ...]
    position: int
    words: int


class _Ranked(NamedTuple):
    entry: int
    score: float
    piece: int | None = None
    similarity: float | None = None
    found_by: Mode = Mode.WORDS


class _Where(NamedTuple):
    """Conditions on an entry, the table to join for them, and their values."""

    join: str
    sql: str
    values: tuple[Any, ...]


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
            scope = _scope(connection, search)
            if scope is None:
                return Found((), position, words_position)
            words = [] if search.mode is Mode.MEANING else _by_words(connection, search, scope)
            near = [] if vector is None else _by_meaning(connection, search, scope, vector)
            stands = set() if search.mode is Mode.MEANING else _standing(connection, search, scope)
            standing = (
                [ranked for ranked in words if ranked.entry in stands]
                if vector is None
                else _nearest_entries(vector, _pieces_of(connection, stands))
            )
            units, users = _units(connection, {ranked.entry for ranked in (*words, *near, *standing)})
            said = [ranked for ranked in words if ranked.entry in users]
            # Where nobody else speaks, it would be the order by words once more.
            said = said[:SAID_MAX] if len(said) < len(words) else []
            weighted = ((words, 1.0), (said, SAID_WEIGHT), (near, 1.0), (standing, 1.0))
            ranked = fused((_by_unit(order, units), weight) for order, weight in weighted)
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


def _units(connection: Connection, entries: Iterable[int]) -> tuple[dict[int, _Unit], set[int]]:
    """The unit of each entry, and those that users said."""
    found = connection.execute(
        "SELECT id, conversation, kind, exchange, role FROM entries WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(entries)),),
    )
    units: dict[int, _Unit] = {}
    users: set[int] = set()
    for entry, conversation, kind, exchange, role in found:
        units[entry] = (conversation, exchange) if kind == Kind.MESSAGE else (entry, 0)
        if role == ROLE_NUMBERS[Role.USER]:
            users.add(entry)
    return units, users


def _by_unit(order: Iterable[_Ranked], units: Mapping[int, _Unit]) -> dict[_Unit, _Ranked]:
    """The best entry of each unit, in the order of these."""
    best: dict[_Unit, _Ranked] = {}
    for ranked in order:
        if len(best) < HITS_MAX:
            best.setdefault(units[ranked.entry], ranked)
    return best


def fused(orders: Iterable[tuple[Mapping[_Unit, _Ranked], float]]) -> list[_Ranked]:
    """One order from several with their weights, by reciprocal ranks; of equals the newer entry is first."""
    scores: dict[_Unit, float] = {}
    shown: dict[_Unit, _Ranked] = {}
    for order, weight in orders:
        for rank, (unit, ranked) in enumerate(order.items(), start=1):
            scores[unit] = scores.get(unit, 0.0) + weight / (FUSION_K + rank)
            # Found words show the right passage better than a near piece.
            first = shown.setdefault(unit, ranked)
            if first.similarity is None and ranked.similarity is not None:
                shown[unit] = first._replace(similarity=ranked.similarity, found_by=Mode.BOTH)
    made = [ranked._replace(score=scores[unit]) for unit, ranked in shown.items()]
    return sorted(made, key=lambda ranked: (-ranked.score, -ranked.entry))


def _scope(connection: Connection, search: Search) -> tuple[int, int] | None:
    """The numbers of the namespace and of the conversation, 0 for all; None where nothing is indexed yet."""
    namespace = connection.execute("SELECT id FROM namespaces WHERE name = ?", (search.namespace,)).fetchone()
    if namespace is None or not search.conversation:
        return None if namespace is None else (namespace[0], 0)
    conversation = _number_of(connection, namespace[0], search.conversation)
    return None if conversation is None else (namespace[0], conversation)


def _number_of(connection: Connection, namespace: int, conversation: str) -> int | None:
    row = connection.execute(
        "SELECT id FROM conversations WHERE namespace = ? AND name = ?", (namespace, conversation)
    ).fetchone()
    return None if row is None else int(row[0])


def _left_out(connection: Connection, search: Search, scope: tuple[int, int]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Selections of the entries in the scope that are not to be found, and their values, but for superseded records:
    those may be many, and each is known by its own mark."""
    namespace, conversation = scope
    within, of_scope = (" AND conversation = ?", (conversation,)) if conversation else ("", ())
    if search.records is not None:
        others = "SELECT id FROM entries WHERE kind IN (?, ?) AND source NOT IN (SELECT value FROM json_each(?))"
        records = (Kind.SUMMARY, Kind.EPISODE, json.dumps(sorted(search.records)))
        yield others + within, (*records, *of_scope)
    for name, ranges in search.gone.items():
        of_messages = (_number_of(connection, namespace, name), Kind.MESSAGE)
        yield _GONE, (json.dumps([(r.first, r.last) for r in ranges]), *of_messages, *of_messages)


def _where(connection: Connection, search: Search, scope: tuple[int, int]) -> _Where:
    """The filters, as conditions on the entry of a row of words; without any the entry is not even looked up."""
    conditions: list[str] = []
    values: list[Any] = []
    for column, wanted in (("kind", search.kinds), ("role", _role_numbers(search))):
        if wanted:
            conditions.append(f"e.{column} IN ({', '.join('?' * len(wanted))})")
            values += wanted
    if search.since_us:
        conditions.append("e.time_us >= ?")
        values.append(search.since_us)
    if search.until_us:
        conditions.append("e.time_us < ?")
        values.append(search.until_us)
    for label in (search.labels or {}).items():
        conditions.append(
            "(e.id IN (SELECT entry FROM entry_labels WHERE name = ? AND value = ?)"
            " OR conversation IN (SELECT conversation FROM conversation_labels WHERE name = ? AND value = ?))"
        )
        values += [*label, *label]
    join = " CROSS JOIN entries e ON e.id = w.rowid" if conditions else ""
    if search.records is None:
        conditions.append(_NOT_SUPERSEDED)
    for selection, of_selection in _left_out(connection, search, scope):
        conditions.append(f"w.rowid NOT IN ({selection})")
        values += of_selection
    return _Where(join, "".join(f" AND {condition}" for condition in conditions), tuple(values))


def _role_numbers(search: Search) -> list[int]:
    return [ROLE_NUMBERS[role] for role in search.roles]


def _within_scope(scope: tuple[int, int], expression: str) -> str:
    """An FTS5 query for texts of the scope: our own words alone, all of them quoted."""
    _, conversation = scope
    within = f'scope : "c{conversation}" AND ' if conversation else ""
    return f"{within}text : ({expression})"


def _by_words(connection: Connection, search: Search, scope: tuple[int, int]) -> list[_Ranked]:
    table = words_table(scope[0])
    telling, common = _rare_words(connection, table, search.query)
    phrases = search.query.phrases
    where = _where(connection, search, scope)
    if telling:
        ranking = [word for word in telling if word not in phrases]
        # A text that has the phrases need not have the words: they only rank it.
        expression = " AND ".join((*phrases, *([f"({' OR '.join((*phrases[:1], *ranking))})"] if ranking else [])))
        # A text's place counts nothing: the weight of `scope` is 0.
        score, order = f"-bm25({table}, 1.0, 0.0)", "score DESC, id DESC"
    else:
        # Words that any text has rank nothing: the newest that have all of them, without looking at the rest.
        expression = " AND ".join((*phrases, *(word for word in common if word not in phrases)))
        score, order = "0.0", "w.rowid DESC"
    rows = connection.execute(
        f"SELECT w.rowid AS id, {score} AS score FROM {table} w{where.join}"
        f" WHERE w.{table} MATCH ?{where.sql} ORDER BY {order} LIMIT ?",
        (_within_scope(scope, expression), *where.values, ROWS_MAX),
    )
    return [_Ranked(*row) for row in rows]


def _rare_words(connection: Connection, table: str, query: Query) -> tuple[list[str], list[str]]:
    """The words that are ranked, rarest first, and the others. Phrases are ranked with them if they are as rare."""
    telling: list[str] = []
    waiting = [*query.words, *query.phrases]
    left = POSTINGS_MAX
    for counted_to in COUNTED_TO:
        limit = min(counted_to, left)
        counts = {word: _count(connection, table, f"text : ({word})", limit + 1) for word in waiting}
        for word in sorted(counts, key=lambda word: counts[word]):
            if counts[word] <= min(limit, left):
                left -= counts[word]
                telling.append(word)
        waiting = [word for word in waiting if word not in telling]
        if limit >= left:
            break
    return telling, waiting


def _count(connection: Connection, table: str, matching: str, limit: int) -> int:
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)"
    return int(connection.execute(sql, (matching, limit)).fetchone()[0])


def _by_meaning(connection: Connection, search: Search, scope: tuple[int, int], vector: Direction) -> list[_Ranked]:
    namespace, conversation = scope
    table = blocks_table(namespace)
    shelf = ("", ()) if not conversation else (" WHERE shelf = ?", (shelf_of(conversation),))
    blocks = connection.execute(f"SELECT rows FROM {table}{shelf[0]}", shelf[1])
    near = nearest((rows for (rows,) in blocks), vector.signs, _wanted(connection, search, scope), NEAR_MAX)
    found = connection.executemany("SELECT id, vector FROM vectors WHERE id = ?", ((piece.id,) for piece in near))
    return _nearest_entries(vector, dict(found))


def _nearest_entries(vector: Direction, steps: Mapping[int, bytes]) -> list[_Ranked]:
    """The entries of pieces, each as near as its nearest one."""
    best: dict[int, _Ranked] = {}
    scores = cosines(vector, list(steps.values()))
    for piece, score in sorted(zip(steps, scores, strict=True), key=lambda scored: (-scored[1], -scored[0])):
        entry, place = entry_of(piece)
        best.setdefault(entry, _Ranked(entry, score, place, score, Mode.MEANING))
    return list(best.values())


def _standing(connection: Connection, search: Search, scope: tuple[int, int]) -> set[int]:
    """The entries of messages of one conversation that lay down a rule or state a preference.

    A search with a phrase that must occur has none, nor has one of a namespace: a rule holds for its conversation.
    """
    if search.query.phrases:
        return set()
    where = _where(connection, search, scope)
    found = connection.execute(
        f"SELECT w.rowid FROM ({STANDING}) w{where.join} WHERE TRUE{where.sql}", (scope[1], *where.values)
    )
    return {entry for (entry,) in found}


def _pieces_of(connection: Connection, entries: Collection[int]) -> dict[int, bytes]:
    """The vectors of all pieces of these entries, by the pieces' ids."""
    pieces = connection.execute(
        "SELECT v.id, v.vector FROM json_each(?) e CROSS JOIN vectors v ON v.id >= e.value AND v.id < e.value + ?",
        (json.dumps([piece_id(entry, 0) for entry in entries]), PIECES_MAX),
    )
    return dict(pieces)


def _wanted(connection: Connection, search: Search, scope: tuple[int, int]) -> Wanted:
    """The filters, phrases too, as conditions on pieces."""

    def found(sql: str, *values: object) -> list[int]:
        return [number for (number,) in connection.execute(sql, values)]

    namespace, conversation = scope
    table = words_table(namespace)
    return Wanted(
        conversation=conversation,
        kinds=search.kinds,
        roles=_role_numbers(search),
        since_us=search.since_us,
        until_us=search.until_us,
        either=[
            (
                found("SELECT entry FROM entry_labels WHERE name = ? AND value = ?", *label),
                found("SELECT conversation FROM conversation_labels WHERE name = ? AND value = ?", *label),
            )
            for label in (search.labels or {}).items()
        ],
        entries=[
            found(f"SELECT rowid FROM {table} WHERE {table} MATCH ?", _within_scope(scope, phrase))
            for phrase in search.query.phrases
        ],
        with_superseded=search.records is not None,
        unwanted=[
            entry for selection, values in _left_out(connection, search, scope) for entry in found(selection, *values)
        ],
    )


def _entries(connection: Connection, ranked: Sequence[_Ranked]) -> Iterator[Entry]:
    for entry, score, piece, similarity, found_by in ranked:
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
