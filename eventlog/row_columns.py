"""The columns of a table of rows in a database, from its declaration."""

from __future__ import annotations

import types
from typing import Any, NamedTuple, get_args, get_type_hints

from abridged.eventlog.rows import RowTable

KEY = ("namespace", "id")
"""The primary key of every table of rows."""


class RowColumn(NamedTuple):
    """A column of values of this type of Python's: str, int, float or bytes."""

    name: str
    type: type
    is_nullable: bool = False


def columns_of(spec: RowTable[Any]) -> tuple[RowColumn, ...]:
    """The columns of the row's fields, and one for its seal."""
    fields = get_type_hints(spec.row).items()
    return (*(_column(name, of) for name, of in fields), RowColumn("seal", bytes))


def conditions_of(spec: RowTable[Any]) -> dict[str, str]:
    """The condition of each mark, word for word that of its index: SQLite takes a partial index for no others."""
    empty = {column.name: "''" if column.type is str else "0" for column in columns_of(spec)}
    return {name: " OR ".join(f"{of} <> {empty[of]}" for of in mark) for name, mark in spec.marks.items()}


def index_of(mark: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of a mark's index, in the order of pages; those of the mark are for counts."""
    return (*KEY, *mark)


def _column(name: str, of: Any) -> RowColumn:
    (kind,) = (kind for kind in (get_args(of) or (of,)) if kind is not types.NoneType)
    return RowColumn(name, kind, is_nullable=isinstance(of, types.UnionType))
