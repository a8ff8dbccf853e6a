"""A table of a log's file: its columns, and the statements that make it.

Tables are declared here and not with SQLAlchemy, because loading that takes a sixth of a start and 12 MiB:
docs/adr/0089-a-file-without-sqlalchemy.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Column(NamedTuple):
    """A column of this name and type."""

    name: str
    type: str
    is_nullable: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.type}" if self.is_nullable else f"{self.name} {self.type} NOT NULL"


class Index(NamedTuple):
    """An index of these columns; with `where`, of the rows of which that is true."""

    name: str
    columns: tuple[str, ...]
    where: str = ""


class Reference(NamedTuple):
    """A foreign key of this name: each value of the column is the `id` of a row of the other table."""

    name: str
    column: str
    table: str

    def __str__(self) -> str:
        return f"CONSTRAINT {self.name} FOREIGN KEY({self.column}) REFERENCES {self.table} (id)"


class Check(NamedTuple):
    """A constraint of this name: the condition is true of each row."""

    name: str
    condition: str

    def __str__(self) -> str:
        return f"CONSTRAINT {self.name} {self.text}"

    @property
    def text(self) -> str:
        """The constraint without its name."""
        return f"CHECK ({self.condition})"


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table whose primary key is `key`, under the name `key_name` if it has one. `constraints` are all
    others but `checks` and `references`, and `options` follow the columns, each as SQLite writes it."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    key_name: str = ""
    constraints: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    references: tuple[Reference, ...] = ()
    options: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    def creation(self, *, schema: str = "", if_not_exists: bool = False) -> str:
        """The statement that makes the table, without its indexes, in the main file or the one attached as `schema`."""
        constraints = self._primary_key, *self.constraints, *self.checks, *self.references
        lines = ",\n\t".join(map(str, (*self.columns, *constraints)))
        unless = "IF NOT EXISTS " if if_not_exists else ""
        name = f"{schema}.{self.name}" if schema else self.name
        return f"CREATE TABLE {unless}{name} (\n\t{lines}\n)\n" + ",\n".join(self.options)

    def index_creations(self) -> Iterator[str]:
        """The statements that make the indexes which are not there."""
        for index in self.indexes:
            where = f" WHERE {index.where}" if index.where else ""
            yield f"CREATE INDEX IF NOT EXISTS {index.name} ON {self.name} ({', '.join(index.columns)}){where}"

    @property
    def _primary_key(self) -> str:
        named = f"CONSTRAINT {self.key_name} " if self.key_name else ""
        return f"{named}PRIMARY KEY ({', '.join(self.key)})"
