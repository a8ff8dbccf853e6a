"""The columns of a table of rows in a database, from its declaration."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from sqlalchemy import BigInteger, Column, Float, LargeBinary, String, Table

from abridged.eventlog.rows import RowTable

_TYPES: Mapping[Any, Any] = {str: String, int: BigInteger, float: Float, bytes: LargeBinary}


def columns_of(spec: RowTable[Any]) -> list[Column[Any]]:
    """The columns of the row's fields, and one for its seal."""
    fields = [_column(name, of) for name, of in get_type_hints(spec.row).items()]
    return [*fields, Column("seal", LargeBinary, nullable=False)]


def condition_of(table: Table, mark: tuple[str, ...]) -> str:
    """The condition of a mark, word for word that of its index: SQLite takes a partial index for no others."""
    empty = {name: "''" if isinstance(table.c[name].type, String) else "0" for name in mark}
    return " OR ".join(f"{name} <> {value}" for name, value in empty.items())


def index_of(mark: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of a mark's index, in the order of pages; those of the mark are for counts."""
    return ("namespace", "id", *mark)


def _column(name: str, of: Any) -> Column[Any]:
    nullable = isinstance(of, types.UnionType)
    (kind,) = (kind for kind in (get_args(of) or (of,)) if kind is not types.NoneType)
    return Column(name, _TYPES[kind], primary_key=name in {"namespace", "id"}, nullable=nullable)
