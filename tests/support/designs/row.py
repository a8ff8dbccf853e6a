"""A row of the table: what a design document asks for, and what a run with its preset showed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """`expected` is what the document says, `seen` what the run showed in the same words.

    The two may only differ if `differs` says why.
    """

    feature: str
    expected: str
    seen: str
    differs: str = ""

    @property
    def holds(self) -> bool:
        """Whether the document's wish is met, or is not and says why."""
        return (self.expected == self.seen) is not bool(self.differs)


def made(folder: Path, name: str) -> Path:
    """A new folder of this name within `folder`, for a log of its own."""
    (folder / name).mkdir()
    return folder / name
