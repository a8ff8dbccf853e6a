"""A row of the table: a design document's wish, and the result of a run with its preset."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """`expected` is the document's wish, `seen` the run's result in the same words.

    The two may only differ if `differs` says why.
    """

    feature: str
    expected: str
    seen: str
    differs: str = ""

    @property
    def holds(self) -> bool:
        """True if the document's wish is met, or if it is not and the row says why."""
        return (self.expected == self.seen) is not bool(self.differs)


def made(folder: Path, name: str) -> Path:
    """A new folder of this name within `folder`, for a log of its own."""
    (folder / name).mkdir()
    return folder / name
