"""Reads the index: the best entries by words, by meaning, or by both.

Both are fused by rank alone, since a rank says the same in both orders and a score does not: an entry's score is the
sum of 1 / (60 + rank) over the orders that have it (Cormack, Clarke and Buettcher, Reciprocal Rank Fusion outperforms
Condorcet and individual Rank Learning Methods, SIGIR 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from queue import Empty, Full, LifoQueue
from typing import Any, NamedTuple

from abridged.service.domain.message import Role
from abridged.service.recall.errors import RecallStopped
from abridged.service.recall.file import Connection, blocks_table, connected, entry_of, words_table
from abridged.service.recall.index import Kind
from abridged.service.recall.pieces import Wanted, nearest, shelf_of
from abridged.service.recall.query import Query
from abridged.service.recall.vectors import Vector, cosines

HITS_MAX = 100
"""Limit on the hits of a search, and on the entries of each order that are fused."""

ENTRIES_MAX = 2 * HITS_MAX
"""Entries of both orders, if none is in both."""

FUSION_K = 60
NEAR_MAX = 200
"""Pieces whose signs are nearest, which are then put in order by their steps."""

POSTINGS_MAX = 4_000
"""Entries that a search by words ranks. Words of more than that are left out, the most frequent first, if a rarer one
is there: they tell least, and to rank what any entry has takes as long as reading all of them."""

COUNTED_TO = (256, 1_024, POSTINGS_MAX)
"""A word's entries are counted so far at first, and further only while that can make it a word that ranks."""

CONNECTIONS_KEPT_MAX = 4
"""The number of threads that read."""


class Mode(Enum):
    """The ways to compare."""

    WORDS = "words"
    MEANING = "meaning"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Search:
    """A search and its place: `conversation` is empty for all of the namespace, an empty filter filters nothing.

    Times are in microseconds since the epoch, from `since_us` on and before `until_us`; 0 for no bound.
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


@dataclass(frozen=True, slots=True)
class Asked:
    """A query as a vector: None where it has no angle. `require` raises unless it can be compared with vectors of a
    model's name and a dimension, which is 0 without vectors."""

    vector: Vector | None
    require: Callable[[str, int], None]


class Entry(NamedTuple):
    """A message or record that was found, and where: `version` is its event's in the conversation's stream.

    `piece` is the one that is nearest in meaning, None when words found it. `score` compares within a response only:
    by words it is FTS5's bm25, by meaning a cosine, by both the sum of their ranks. `similarity` is the cosine of the
    nearest piece, None unless meaning found the entry.
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
    text: str
    score: float
    piece: int | None
    similarity: float | None
    found_by: Mode


class Found(NamedTuple):
    """Entries, best first, and how far the index was read.

    Attributes:
        entries: At most as many as were asked for.
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
            ranked = fused([words, near]) if search.mode is Mode.BOTH else words or near
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


def fused(orders: Iterable[Sequence[_Ranked]]) -> list[_Ranked]:
    """One order from several, by reciprocal ranks; of equals the newer entry is first."""
    scores: dict[int, float] = {}
    pieces: dict[int, int | None] = {}
    similarities: dict[int, float] = {}
    found_by: dict[int, Mode] = {}
    for order in orders:
        for rank, ranked in enumerate(order, start=1):
            scores[ranked.entry] = scores.get(ranked.entry, 0.0) + 1 / (FUSION_K + rank)
            # Found words show the right passage better than a near piece.
            pieces.setdefault(ranked.entry, ranked.piece)
            found_by[ranked.entry] = Mode.BOTH if ranked.entry in found_by else ranked.found_by
            if ranked.similarity is not None:
                similarities[ranked.entry] = ranked.similarity
    best = sorted(scores, key=lambda entry: (-scores[entry], -entry))
    return [_Ranked(entry, scores[entry], pieces[entry], similarities.get(entry), found_by[entry]) for entry in best]


def _scope(connection: Connection, search: Search) -> tuple[int, int] | None:
    """The numbers of the namespace and of the conversation, 0 for all; None where nothing is indexed yet."""
    namespace = connection.execute("SELECT id FROM namespaces WHERE name = ?", (search.namespace,)).fetchone()
    if namespace is None or not search.conversation:
        return None if namespace is None else (namespace[0], 0)
    conversation = connection.execute(
        "SELECT id FROM conversations WHERE namespace = ? AND name = ?", (namespace[0], search.conversation)
    ).fetchone()
    return None if conversation is None else (namespace[0], conversation[0])


def _where(search: Search) -> _Where:
    """The filters, as conditions on the entry of a row of words; without any the entry is not even looked up."""
    conditions: list[str] = []
    values: list[Any] = []
    for column, wanted in (("kind", search.kinds), ("role", search.roles)):
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
    return _Where(join, "".join(f" AND {condition}" for condition in conditions), tuple(values))


def _within_scope(scope: tuple[int, int], expression: str) -> str:
    """An FTS5 query for texts of the scope: our own words alone, all of them quoted."""
    _, conversation = scope
    within = f'scope : "c{conversation}" AND ' if conversation else ""
    return f"{within}text : ({expression})"


def _by_words(connection: Connection, search: Search, scope: tuple[int, int]) -> list[_Ranked]:
    table = words_table(scope[0])
    telling, common = _rare_words(connection, table, search.query)
    phrases = search.query.phrases
    where = _where(search)
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
        (_within_scope(scope, expression), *where.values, HITS_MAX),
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


def _by_meaning(connection: Connection, search: Search, scope: tuple[int, int], vector: Vector) -> list[_Ranked]:
    namespace, conversation = scope
    table = blocks_table(namespace)
    shelf = ("", ()) if not conversation else (" WHERE shelf = ?", (shelf_of(conversation),))
    blocks = connection.execute(f"SELECT rows FROM {table}{shelf[0]}", shelf[1])
    near = nearest((rows for (rows,) in blocks), vector, _wanted(connection, search, scope), NEAR_MAX)
    found = connection.executemany("SELECT id, vector FROM vectors WHERE id = ?", ((piece.id,) for piece in near))
    steps = dict(found)
    best: dict[int, _Ranked] = {}
    scores = cosines(vector, list(steps.values()))
    for piece, score in sorted(zip(steps, scores, strict=True), key=lambda scored: (-scored[1], -scored[0])):
        entry, place = entry_of(piece)
        best.setdefault(entry, _Ranked(entry, score, place, score, Mode.MEANING))
    return list(best.values())[:HITS_MAX]


def _wanted(connection: Connection, search: Search, scope: tuple[int, int]) -> Wanted:
    """The filters, phrases too, as conditions on pieces."""

    def found(sql: str, *values: object) -> list[int]:
        return [number for (number,) in connection.execute(sql, values)]

    namespace, conversation = scope
    table = words_table(namespace)
    return Wanted(
        conversation=conversation,
        kinds=search.kinds,
        roles=search.roles,
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
    )


def _entries(connection: Connection, ranked: Sequence[_Ranked]) -> Iterator[Entry]:
    for entry, score, piece, similarity, found_by in ranked:
        conversation, version, kind, role, first, last, source, time_us, text = connection.execute(
            "SELECT c.name, e.version, e.kind, e.role, e.first, e.last, e.source, e.time_us, e.text"
            " FROM entries e JOIN conversations c ON c.id = e.conversation WHERE e.id = ?",
            (entry,),
        ).fetchone()
        yield Entry(
            id=entry,
            conversation=conversation,
            version=version,
            kind=Kind(kind),
            role=Role(role) if role else None,
            first=first,
            last=last,
            source=source,
            time_us=time_us,
            text=text,
            score=score,
            piece=piece,
            similarity=similarity,
            found_by=found_by,
        )
