"""The read table of conversations, written in the transaction that appends their events.

One row a conversation: what ListConversations filters and shows, what a restart needs to find its pending passes and
waits without reading a single event, and what is counted of all of them. A row is the fold at `event_version`; it can
be made again from the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.schema import CreateColumn

from eventlog.event import StreamId
from eventlog.log import Committed
from eventlog.sql import insert_into, runs
from service.domain.conversation import Conversation, evolve, next_remake
from service.domain.events import Event
from service.domain.triggers import HeldBy

__all__ = [
    "Attention",
    "ConversationTable",
    "ListQuery",
    "MemoryConversationTable",
    "Projected",
    "Row",
    "SqlConversationTable",
    "Standing",
]

_SEPARATOR = "\x1f"

Read = Callable[[Callable[[Connection], Any]], Any]
"""Runs a query in a short snapshot and answers what it answers."""

Held = Callable[[Conversation], HeldBy | None]
"""What holds a window past its trigger, as its last event left it."""

_METADATA = MetaData()
_CONVERSATIONS = Table(
    "conversations",
    _METADATA,
    Column("namespace", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("event_version", BigInteger, nullable=False),
    Column("ratio", Float, nullable=False),
    Column("labels", String, nullable=False),
    Column("pending", Integer, nullable=False),
    Column("wait_until_us", BigInteger, nullable=False),
    Column("fallback", Integer, nullable=False),
    Column("model", String, nullable=False),
    Column("calibration_factor", Float, nullable=False),
    Column("usage_reports", Integer, nullable=False),
    Column("view", LargeBinary, nullable=False),
    Column("held_by", String, nullable=False, server_default=""),
    Index("conversations_by_change", "namespace", "position"),
    Index("conversations_attention", "pending", "wait_until_us", "fallback"),
    # Only of those that are counted, so that a count reads them and no others, and most appends write to neither.
    Index("conversations_over_budget", "ratio", sqlite_where=text("ratio > 1")),
    Index("conversations_held", "held_by", sqlite_where=text("held_by <> ''")),
    sqlite_with_rowid=False,
)


class Row(NamedTuple):
    """One conversation, as it is stored: the fields are the table's columns in their order.

    `position` is that of its last event; `labels` has every `name=value` between separators; `view` is its state as the
    contract shows it; `held_by` is empty below the trigger and when nothing holds it.
    """

    namespace: str
    id: str
    position: int
    event_version: int
    ratio: float
    labels: str
    pending: int
    wait_until_us: int
    fallback: int
    model: str
    calibration_factor: float
    usage_reports: int
    view: bytes
    held_by: str = ""


assert Row._fields == tuple(column.name for column in _CONVERSATIONS.columns), "rows are written and read by place"


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Conversations of a namespace, last changed first, before a position (0: from the newest)."""

    namespace: str
    limit: int
    before: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    min_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Attention:
    """A conversation that a start must look at: a pending pass, a wait after failures, or a record to be remade."""

    namespace: str
    id: str
    pending: bool
    wait_until_us: int
    fallback: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """How many conversations' windows cost more than their budget, and how many past their trigger are held by what."""

    over_budget: int
    held: Mapping[HeldBy, int]


@dataclass(slots=True)
class Projected:
    """Rides with an append through the commit: the fold of its events with the times that the log gave them.

    `state` is the state before; `after` the state behind the append's events, set when they are being committed.
    """

    state: Conversation
    events: Sequence[Event]
    after: Conversation | None = None


class ConversationTable(Protocol):
    """Rows by conversation. `project` is the append hook; the reads may run in any thread."""

    def project(self, _transaction: Any, committed: Sequence[Committed], /) -> None:
        """Fold the committed events and write the rows; an exception rolls the commit back."""
        ...

    def page(self, query: ListQuery) -> list[Row]:
        """Rows that match, newest change first."""
        ...

    def attention(self) -> list[Attention]:
        """Every conversation that a start must look at."""
        ...

    def calibrations(self) -> dict[tuple[str, str], float]:
        """For each model of a namespace, the factor that most reports have shaped."""
        ...

    def standing(self) -> Standing:
        """Counts over all conversations, whether their states are in memory or not."""
        ...


def _project(
    committed: Sequence[Committed], view: Callable[[Conversation], bytes], held: Held
) -> dict[tuple[str, str], Row]:
    """The newest row of each conversation in a group of appends."""
    rows: dict[tuple[str, str], Row] = {}
    latest: dict[StreamId, tuple[Conversation, int]] = {}
    for commit in committed:
        projected = commit.projected
        if not isinstance(projected, Projected):
            raise TypeError("an append without its projection")
        state = projected.state
        for event, recorded in zip(projected.events, commit.events, strict=True):
            state = evolve(state, event, recorded.time_us)
        projected.after = state
        latest[commit.stream] = (state, commit.events[-1].position)
    for stream, (state, position) in latest.items():
        rows[stream.namespace, state.id] = Row(
            namespace=stream.namespace,
            id=state.id,
            position=position,
            event_version=state.event_version,
            ratio=state.ratio,
            labels=_labels(state.settings.labels),
            pending=int(state.pending is not None),
            wait_until_us=state.wait_until_us if state.failures_in_row else 0,
            fallback=int(next_remake(state) is not None),
            model=state.settings.model,
            calibration_factor=state.settings.calibration_factor,
            usage_reports=state.usage_reports,
            view=view(state),
            held_by=held(state) or "",
        )
    return rows


class MemoryConversationTable:
    """Rows in a dictionary, for the log in memory."""

    def __init__(self, view: Callable[[Conversation], bytes], *, held: Held = lambda _state: None) -> None:
        self._view = view
        self._held = held
        self._rows: dict[tuple[str, str], Row] = {}

    def project(self, _transaction: Any, committed: Sequence[Committed]) -> None:
        """See ConversationTable."""
        self._rows.update(_project(committed, self._view, self._held))

    def page(self, query: ListQuery) -> list[Row]:
        """See ConversationTable."""
        matching = (
            row
            for row in self._all()
            if row.namespace == query.namespace
            and (not query.before or row.position < query.before)
            and row.ratio >= query.min_ratio
            and all(_label(name, value) in row.labels for name, value in query.labels)
        )
        return sorted(matching, key=lambda row: -row.position)[: query.limit]

    def attention(self) -> list[Attention]:
        """See ConversationTable."""
        return [
            Attention(row.namespace, row.id, bool(row.pending), row.wait_until_us, bool(row.fallback))
            for row in self._all()
            if row.pending or row.wait_until_us or row.fallback
        ]

    def calibrations(self) -> dict[tuple[str, str], float]:
        """See ConversationTable."""
        reported = [row for row in self._all() if row.usage_reports and row.model]
        return {
            (row.namespace, row.model): row.calibration_factor
            for row in sorted(reported, key=lambda row: row.usage_reports)
        }

    def standing(self) -> Standing:
        """See ConversationTable."""
        rows = self._all()
        held = Counter(HeldBy(row.held_by) for row in rows if row.held_by)
        return Standing(sum(row.ratio > 1 for row in rows), held)

    def _all(self) -> list[Row]:
        """Copied in one step: reads run in threads while commits write."""
        return list(self._rows.values())


class SqlConversationTable:
    """Rows in the database of the log."""

    def __init__(self, view: Callable[[Conversation], bytes], *, held: Held = lambda _state: None) -> None:
        self._view = view
        self._held = held
        self._read: Read | None = None

    @staticmethod
    def prepare(connection: Connection) -> None:
        """Make the table, or add what one of an older version lacks, in the transaction that opens the log."""
        _METADATA.create_all(connection)
        there = {column["name"] for column in inspect(connection).get_columns(_CONVERSATIONS.name)}
        for column in _CONVERSATIONS.columns:
            if column.name not in there:
                connection.execute(text(f"ALTER TABLE {_CONVERSATIONS.name} ADD COLUMN {CreateColumn(column)}"))
        for index in _CONVERSATIONS.indexes:
            index.create(connection, checkfirst=True)

    def read_through(self, read: Read) -> None:
        """Read by this from now on: the log's own short snapshots."""
        self._read = read

    def project(self, transaction: Any, committed: Sequence[Committed]) -> None:
        """See ConversationTable."""
        rows = list(_project(committed, self._view, self._held).values())
        # On the driver, for SQLAlchemy would look at every parameter; in one statement, for each call of SQLite hands
        # the interpreter's lock over and waits to get it back.
        execute = transaction.connection.driver_connection.execute
        for size, parameters in runs(rows):
            execute(_upsert(size), parameters)

    def page(self, query: ListQuery) -> list[Row]:
        """See ConversationTable."""
        table = _CONVERSATIONS.c
        statement = select(_CONVERSATIONS).where(table.namespace == query.namespace)
        if query.before:
            statement = statement.where(table.position < query.before)
        if query.min_ratio > 0:
            statement = statement.where(table.ratio >= query.min_ratio)
        for name, value in query.labels:
            statement = statement.where(func.instr(table.labels, _label(name, value)) > 0)
        statement = statement.order_by(table.position.desc()).limit(query.limit)
        return [Row(*r) for r in self._rows(statement)]

    def attention(self) -> list[Attention]:
        """See ConversationTable."""
        table = _CONVERSATIONS.c
        wanted = (table.pending != 0) | (table.wait_until_us != 0) | (table.fallback != 0)
        columns = select(table.namespace, table.id, table.pending, table.wait_until_us, table.fallback)
        return [
            Attention(r.namespace, r.id, bool(r.pending), r.wait_until_us, bool(r.fallback))
            for r in self._rows(columns.where(wanted))
        ]

    def calibrations(self) -> dict[tuple[str, str], float]:
        """See ConversationTable."""
        table = _CONVERSATIONS.c
        statement = (
            select(table.namespace, table.model, table.calibration_factor)
            .where(table.usage_reports > 0, table.model != "")
            .order_by(table.usage_reports)
        )
        return {(r.namespace, r.model): r.calibration_factor for r in self._rows(statement)}

    def standing(self) -> Standing:
        """See ConversationTable."""
        (over_budget,) = self._rows(_OVER_BUDGET)[0]
        return Standing(over_budget, {HeldBy(held_by): count for held_by, count in self._rows(_HELD)})

    def _rows(self, statement: Select[Any]) -> Sequence[Any]:
        assert self._read is not None, "read_through comes first"
        rows: Sequence[Any] = self._read(lambda connection: connection.execute(statement).all())
        return rows


# The conditions are those of the indexes, word for word: SQLite takes a partial index for no others.
_OVER_BUDGET = select(func.count()).select_from(_CONVERSATIONS).where(text("ratio > 1"))
_HELD = select(_CONVERSATIONS.c.held_by, func.count()).where(text("held_by <> ''")).group_by(_CONVERSATIONS.c.held_by)


@cache
def _upsert(rows: int) -> str:
    changed = ", ".join(f"{c.name} = excluded.{c.name}" for c in _CONVERSATIONS.columns if not c.primary_key)
    return f"{insert_into(_CONVERSATIONS, rows)} ON CONFLICT (namespace, id) DO UPDATE SET {changed}"


def _labels(labels: Mapping[str, str]) -> str:
    return _SEPARATOR.join(["", *(f"{name}={value}" for name, value in sorted(labels.items())), ""])


def _label(name: str, value: str) -> str:
    return f"{_SEPARATOR}{name}={value}{_SEPARATOR}"
