"""Leases in the log's database, in the time of its clock."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from abridged.eventlog.event import StreamId
from abridged.eventlog.postgres import sql
from abridged.eventlog.postgres.connections import Connection, Run, arrays, ask

FORGOTTEN_AFTER_S = 3_600.0
"""A lease that lapsed so long ago is of a pass that has ended, for every process looks for such each few seconds:
whoever ended it was killed before it dropped the lease, or another process looked at the same time. A pass that nobody
could take up meanwhile waits for one more lease, and no harm is done: the log decides who may end it."""

FORGOTTEN_MAX = 100
"""Leases that one call forgets."""


class PostgresLeases:
    """Leases of the log of a number; `write` runs a change between two groups of appends."""

    def __init__(self, log: int, write: Run) -> None:
        self._log = {"log": log}
        self._write = write

    def hold(self, tokens: Mapping[StreamId, int], seconds: float) -> set[StreamId]:
        return {StreamId(*row) for row in self._run(sql.HOLD, **_columns(tokens), seconds=float(seconds))}

    def lapsed(self, streams: Collection[StreamId], seconds: float) -> dict[StreamId, int]:
        asked = _columns(dict.fromkeys(streams, 0))
        return {
            StreamId(namespace, name): token
            for namespace, name, token in self._run(sql.LAPSED, **asked, seconds=float(seconds))
        }

    def drop(self, tokens: Mapping[StreamId, int]) -> None:
        def drop(connection: Connection) -> None:
            ask(connection, sql.DROP, {**self._log, **_columns(tokens)})
            ask(connection, sql.FORGET, {**self._log, "seconds": FORGOTTEN_AFTER_S, "limit": FORGOTTEN_MAX})

        if tokens:
            self._write(drop)

    def _run(self, statement: str, **parameters: Any) -> Sequence[tuple[Any, ...]]:
        if not parameters["tokens"]:
            return ()

        def run(connection: Connection) -> Sequence[tuple[Any, ...]]:
            return ask(connection, statement, {**self._log, **parameters}).fetchall()

        found: Sequence[tuple[Any, ...]] = self._write(run)
        return found


def _columns(tokens: Mapping[StreamId, int]) -> dict[str, list[Any]]:
    """Streams and tokens as the arrays of a statement. Every statement has them in one order, so that no two wait for
    each other."""
    rows = [(*stream, token) for stream, token in sorted(tokens.items())]
    return arrays(("namespaces", "names", "tokens"), rows)
