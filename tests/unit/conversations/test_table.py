"""The read table: reads run in threads while the log writes, counts read no more than they count."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.eventlog.log import Committed
from abridged.eventlog.sqlite.database import make_tables
from abridged.eventlog.sqlite.rows import SqliteRows
from abridged.service.codec.values import settings_from_bytes
from abridged.service.conversations.row import READ_TABLE
from abridged.service.conversations.table import ConversationTable, ListQuery, Projected, is_row_of
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import ConversationOpened, Settings, SettingsChanged


class _Namespace(str):  # noqa: SLOT000 - it carries the table
    """A namespace at whose comparison another thread commits a new conversation."""

    table: ConversationTable
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        opened(self.table, "late")
        return str(self) == str(other)


def opened(table: ConversationTable, name: str) -> None:
    stream = StreamId("default", name)
    begun = ConversationOpened(name, Settings())
    recorded = RecordedEvent(1, stream, 1, b"", "ConversationOpened", 1, 1, "", b"")
    project(table, Committed(stream, (recorded,), Projected(Conversation(), [begun])))


def project(table: ConversationTable, committed: Committed) -> None:
    """Project the commit as a log in memory does."""
    changes: list[Callable[[], None]] = []
    table.project(changes, [committed])
    for change in changes:
        change()


def test_a_commit_during_a_page_does_not_disturb_it():
    """The page is of the rows that were there when it began."""
    table = ConversationTable()
    for name in ("a", "b"):
        opened(table, name)
    namespace = _Namespace("default")
    namespace.table = table

    page = table.page(ListQuery(namespace, 10))

    assert sorted(row.id for row in page) == ["a", "b"]
    assert len(table.page(ListQuery("default", 10))) == 3


def test_a_row_has_the_settings_of_its_last_event():
    """They are encoded once for as long as they stand, and anew when they change, even to earlier ones."""
    table = ConversationTable()
    stream = StreamId("default", "c")
    state = Conversation()
    titles = ["", "first", "second", "first"]
    for version, title in enumerate(titles, 1):
        settings = Settings(title=title)
        event = ConversationOpened("c", settings) if version == 1 else SettingsChanged(settings)
        recorded = RecordedEvent(version, stream, version, b"", type(event).__name__, 1, version, "", b"")
        projected = Projected(state, [event])
        project(table, Committed(stream, (recorded,), projected))
        assert projected.after is not None
        state = projected.after
        (row,) = table.page(ListQuery("default", 10))
        assert is_row_of(row, state, version)
        assert settings_from_bytes(row.settings).title == title


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened_connection:
        yield opened_connection


def plans_of(connection: sqlite3.Connection, read: Callable[[ConversationTable], object]) -> list[list[str]]:
    """Return the plan of each statement of a read, a line for each step."""
    make_tables(connection)
    rows = SqliteRows(READ_TABLE)
    rows.prepare(connection)
    rows.through(lambda query: query(connection))
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    read(ConversationTable(rows))
    connection.set_trace_callback(None)
    plans = [connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall() for statement in asked]
    return [[detail for *_, detail in plan] for plan in plans]


def test_a_count_reads_no_conversation_that_it_does_not_count(connection: sqlite3.Connection):
    """A scrape reads none of a million conversations below their trigger."""
    plans = plans_of(connection, ConversationTable.standing)

    assert len(plans) == 2
    assert all("USING COVERING INDEX conversations_" in plan[0] for plan in plans)


def test_a_page_of_pending_passes_reads_no_other_conversation(connection: sqlite3.Connection):
    """The index has the order of the pages, so no page sorts those of the others."""
    ((step,),) = plans_of(connection, ConversationTable.pending)

    assert step == "SEARCH conversations USING COVERING INDEX conversations_pending ((namespace,id)>(?,?))"
