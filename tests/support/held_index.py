"""An index that is late for as long as a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from abridged.service.recall.file import connected


@contextmanager
def held_index(path: Path) -> Iterator[None]:
    """Keep the index from being written, by another connection's transaction; searches read it as it was."""
    with closing(connected(path, writes=True)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
