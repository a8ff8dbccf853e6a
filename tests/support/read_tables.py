"""Logs whose read table has to be made again: one that a released program wrote, and one as large as a test wants."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append
from abridged.eventlog.sqlite.backend import SqliteBackend
from abridged.eventlog.sqlite.log import SqliteEventLog
from abridged.service.codec.events import encode
from abridged.service.codec.values import canonical, message_to_proto
from abridged.service.conversations.rebuild import Rebuild
from abridged.service.conversations.row import READ_TABLE
from abridged.service.conversations.table import ConversationTable, Projected
from abridged.service.domain.conversation import initial_state
from abridged.service.domain.events import ConversationOpened, MessageAppended, Settings
from abridged.service.domain.message import Message, Role
from abridged.service.domain.tokens import TokenSource
from tests.support.patience import PATIENCE_S

OLDER = f"UPDATE projections SET version = {READ_TABLE.version - 1}"
"""The statement after which the next start makes the read table again."""

_GOLDEN = Path(__file__).parents[1] / "golden"
_MODE = 0o600


def restored(dump: str, path: Path) -> Path:
    """The log of the golden `dump`, as a file."""
    path.touch(_MODE)
    with closing(sqlite3.connect(path)) as database:
        database.executescript((_GOLDEN / dump).read_text(encoding="utf-8"))
    return path


def grown(path: Path, conversations: int, *, messages: int = 1) -> Path:
    """A log of that many conversations, with its read table."""
    with opened(path) as (log, *_):
        pending = [log.submit(_talk(f"c{number:06d}", messages)) for number in range(conversations)]
        for future in pending:
            future.result(PATIENCE_S)
    return path


@contextmanager
def opened(path: Path) -> Iterator[tuple[SqliteEventLog, ConversationTable, Rebuild]]:
    """The log, its read table, and the rebuild that makes that again, as a start finds them."""
    backend = SqliteBackend(path)
    rows = backend.rows(READ_TABLE)
    table = ConversationTable(rows)
    log, kept, *_ = backend.open(rows, clock_us=lambda: 1, hook=table.project)
    assert isinstance(log, SqliteEventLog)
    assert kept is not None
    try:
        yield log, table, Rebuild(log, table, kept.rows, kept.snapshots)
    finally:
        log.close()


def written_anew(path: Path) -> None:
    """Write the log anew without its read table, as `abridged log rebuild` does before it makes the table."""
    backend = SqliteBackend(path)
    assert backend.rewrite(backend.rows(READ_TABLE))


def asked(path: Path, query: str, *parameters: Any) -> list[Any]:
    """Return a query's answer from a log's file, whoever has it open."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute(query, parameters).fetchall()


def changed(path: Path, *statements: str) -> None:
    """Change a log's file that nobody has open."""
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def _talk(name: str, messages: int) -> Append:
    said = [
        MessageAppended(number, Message(f"m{number}", Role.USER, "a word"), 2, TokenSource.ESTIMATE, "estimate")
        for number in range(1, messages + 1)
    ]
    facts: list[ConversationOpened | MessageAppended] = [
        ConversationOpened(name, Settings(context_length=8_192)),
        *said,
    ]
    events = [_new_event(number, fact) for number, fact in enumerate(facts)]
    return Append(StreamId("default", name), events, projected=Projected(initial_state(), facts))


def _new_event(number: int, fact: ConversationOpened | MessageAppended) -> NewEvent:
    content = canonical(message_to_proto(fact.message)) if isinstance(fact, MessageAppended) else None
    name, schema_version, payload = encode(fact, sent=content)
    return NewEvent(f"{number}".rjust(16).encode(), name, payload, schema_version, content)
