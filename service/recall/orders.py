"""Reads the orders of a search from the index: by words, by meaning, and of what is standing in a conversation."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence

from abridged.service.recall.file import Connection, Scope, blocks_table, entry_of, piece_id, words_table
from abridged.service.recall.filters import in_scope, wanted, where_of
from abridged.service.recall.fusion import Ranked
from abridged.service.recall.passages import PIECES_MAX
from abridged.service.recall.pieces import nearest, shelf_of
from abridged.service.recall.query import Query
from abridged.service.recall.search import Mode, Search
from abridged.service.recall.standing import STANDING
from abridged.service.recall.vectors import Direction, cosines

ROWS_MAX = 200
"""The best entries by words, which are then put together by exchanges."""

NEAR_MAX = 200
"""Pieces whose signs are nearest, which are then put in order by their steps."""

POSTINGS_MAX = 4_000
"""Entries that a search by words ranks. Words of more than that are left out, the most frequent first, if a rarer one
is there: they tell least, and to rank what any entry has takes as long as reading all of them."""

COUNTED_TO = (256, 1_024, POSTINGS_MAX)
"""A word's entries are counted so far at first, and further only while that can make it a word that ranks."""

RARENESS_MIN = 1e-6
"""The weight of a word that more than half of the entries have; from FTS5's bm25."""

FULL_SHARE = 0.3
"""The share of the query's words, weighted by their rareness, from which on a text counts in full. One with fewer has
them by chance, or says it in other words: it counts with the square of what it has of that share.
docs/adr/0103-search-in-other-words.md has the figures."""


def by_words(connection: Connection, search: Search, scope: Scope) -> list[Ranked]:
    table = words_table(scope.namespace)
    telling, common = _rare_words(connection, table, search.query)
    phrases = search.query.phrases
    where = where_of(connection, search, scope)
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
        (in_scope(scope, expression), *where.values, ROWS_MAX),
    )
    ranked = [Ranked(*row) for row in rows]
    # Without telling words each text has all words of the query.
    return _with_strengths(connection, table, scope, telling, ranked) if telling else ranked


def by_meaning(connection: Connection, search: Search, scope: Scope, vector: Direction) -> list[Ranked]:
    namespace, conversation = scope
    table = blocks_table(namespace)
    shelf = ("", ()) if not conversation else (" WHERE shelf = ?", (shelf_of(conversation),))
    blocks = connection.execute(f"SELECT rows FROM {table}{shelf[0]}", shelf[1])
    near = nearest((rows for (rows,) in blocks), vector.signs, wanted(connection, search, scope), NEAR_MAX)
    found = connection.executemany("SELECT id, vector FROM vectors WHERE id = ?", ((piece.id,) for piece in near))
    return nearest_entries(vector, dict(found))


def standing_entries(connection: Connection, search: Search, scope: Scope) -> set[int]:
    """The entries of messages of one conversation that lay down a rule or state a preference.

    A search with a phrase that must occur has none, nor has one of a namespace: a rule holds for its conversation.
    """
    if search.query.phrases:
        return set()
    where = where_of(connection, search, scope)
    found = connection.execute(
        f"SELECT w.rowid FROM ({STANDING}) w{where.join} WHERE TRUE{where.sql}", (scope.conversation, *where.values)
    )
    return {entry for (entry,) in found}


def nearest_entries(vector: Direction, steps: Mapping[int, bytes]) -> list[Ranked]:
    """The entries of pieces, each as near as its nearest one."""
    best: dict[int, Ranked] = {}
    scores = cosines(vector, list(steps.values()))
    for piece, score in sorted(zip(steps, scores, strict=True), key=lambda scored: (-scored[1], -scored[0])):
        entry, place = entry_of(piece)
        best.setdefault(entry, Ranked(entry, score, place, score, Mode.MEANING))
    return list(best.values())


def standing_by_nearness(standing: Sequence[Ranked], near: Sequence[Ranked]) -> list[Ranked]:
    """The standing entries, each as strong as its cosine is beside that of the nearest of all entries.

    The nearest of them is often one that the query does not need, and then far.
    """
    nearest = near[0].score if near else 0.0
    return [
        ranked._replace(strength=min(1.0, max(0.0, ranked.score / nearest)) if nearest > 0 else 0.0)
        for ranked in standing
    ]


def pieces_of(connection: Connection, entries: Collection[int]) -> dict[int, bytes]:
    """The vectors of all pieces of these entries, by the pieces' ids."""
    pieces = connection.execute(
        "SELECT v.id, v.vector FROM json_each(?) e CROSS JOIN vectors v ON v.id >= e.value AND v.id < e.value + ?",
        (json.dumps([piece_id(entry, 0) for entry in entries]), PIECES_MAX),
    )
    return dict(pieces)


def _rare_words(connection: Connection, table: str, query: Query) -> tuple[dict[str, int], list[str]]:
    """The words that are ranked, rarest first, with the number of their entries, and the others. Phrases are ranked
    with them if they are as rare."""
    telling: dict[str, int] = {}
    waiting = [*query.words, *query.phrases]
    left = POSTINGS_MAX
    for counted_to in COUNTED_TO:
        limit = min(counted_to, left)
        counts = {word: _count(connection, table, f"text : ({word})", limit + 1) for word in waiting}
        for word in sorted(counts, key=lambda word: counts[word]):
            if counts[word] <= min(limit, left):
                left -= counts[word]
                telling[word] = counts[word]
        waiting = [word for word in waiting if word not in telling]
        if limit >= left:
            break
    return telling, waiting


def _with_strengths(
    connection: Connection, table: str, scope: Scope, telling: Mapping[str, int], ranked: Sequence[Ranked]
) -> list[Ranked]:
    """The entries, each as strong as the share of the telling words that it has. A word weighs as much as in bm25, but
    neither its times nor the length of the text count: a long text is as strong as a short one with the same words."""
    (texts,) = connection.execute(f"SELECT count(*) FROM {table}_docsize").fetchone()
    found = dict.fromkeys((one.entry for one in ranked), 0.0)
    whole = 0.0
    for word, count in telling.items():
        weight = max(RARENESS_MIN, math.log((texts - count + 0.5) / (count + 0.5)))
        whole += weight
        having = connection.execute(f"SELECT rowid FROM {table} WHERE {table} MATCH ?", (in_scope(scope, word),))
        for (entry,) in having:
            if entry in found:
                found[entry] += weight
    full = FULL_SHARE * whole
    return [one._replace(strength=min(1.0, found[one.entry] / full) ** 2) for one in ranked]


def _count(connection: Connection, table: str, matching: str, limit: int) -> int:
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)"
    return int(connection.execute(sql, (matching, limit)).fetchone()[0])
