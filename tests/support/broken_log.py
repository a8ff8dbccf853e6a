"""A sidecar's own database connections in the test's hands: a full disk, a busy file, a damaged row.

Python reports every connection that it opens; nothing of the product is replaced.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SPARE_PAGES = 12


@dataclass(slots=True)
class Connections:
    """Every connection that was opened in the block. The log's writer is the first if the log is new: one that exists
    is read before it is written."""

    opened: list[sqlite3.Connection] = field(default_factory=list)

    @property
    def writer(self) -> sqlite3.Connection:
        """The one connection that writes, of a new log."""
        return self.opened[0]

    def fill(self) -> None:
        """Leave room for a few pages more."""
        (pages,) = self.writer.execute("PRAGMA page_count").fetchone()
        self.writer.execute(f"PRAGMA max_page_count = {pages + SPARE_PAGES}").fetchall()

    def make_room(self) -> None:
        """The disk is large again."""
        self.writer.execute("PRAGMA max_page_count = 1000000").fetchall()

    def lose_patience(self) -> None:
        """Give up at once where the product waits for a lock."""
        self.writer.execute("PRAGMA busy_timeout = 1").fetchall()


_taking: list[Connections] = []


@contextmanager
def connections() -> Iterator[Connections]:
    """Take down every connection that is opened in the block."""
    found = Connections()
    _taking.append(found)
    try:
        yield found
    finally:
        _taking.remove(found)


def _take_down(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "sqlite3.connect/handle":
        for found in _taking:
            found.opened.append(arguments[0])


# Once, because no hook can be taken away.
sys.addaudithook(_take_down)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes to the file for as long as the block lasts."""
    intruder = sqlite3.connect(path, isolation_level=None)
    try:
        intruder.execute("BEGIN IMMEDIATE")
        yield
        intruder.execute("ROLLBACK")
    finally:
        intruder.close()


def damaged(path: Path, *, position: int) -> None:
    """Change one byte of a stored event."""
    with sqlite3.connect(path) as intruder:
        (payload,) = intruder.execute("SELECT payload FROM events WHERE position = ?", (position,)).fetchone()
        wrong = payload[:-1] + bytes([payload[-1] ^ 1])
        intruder.execute("UPDATE events SET payload = ? WHERE position = ?", (wrong, position))
    intruder.close()
