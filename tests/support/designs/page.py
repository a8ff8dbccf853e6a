"""The table of docs/designs.md, made by playing the presets; no row is written by hand.

`scripts/gen-designs` writes it, and compares it with `--check`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.designs import s0, s1, s2, s3, s4
from tests.support.designs.row import Row

PAGE = Path(__file__).parents[3] / "docs" / "designs.md"
_BEGIN = "<!-- made by scripts/gen-designs -->\n"
_END = "<!-- end of what scripts/gen-designs made -->\n"
_HEAD = "\n| document | feature | expected | seen |\n|---|---|---|---|\n"
_DOCUMENTS = {"S0": s0.played, "S1": s1.played, "S2": s2.played, "S3": s3.played, "S4": s4.played}

Rows = list[tuple[str, Row]]


async def played() -> Rows:
    """Every document's rows, by its name."""
    rows: Rows = []
    for name, play in _DOCUMENTS.items():
        with TemporaryDirectory() as folder:
            rows += [(name, row) for row in await play(Path(folder))]
    return rows


def with_table(page: str, rows: Iterable[tuple[str, Row]]) -> str:
    """The page with these rows in the place of its table."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert begin, f"docs/designs.md has lost its line {_BEGIN!r}"
    assert end, f"docs/designs.md has lost its line {_END!r}"
    lines = [_HEAD, *(_line(name, row) for name, row in rows), "\n"]
    return "".join((before, begin, *lines, end, after))


def _line(name: str, row: Row) -> str:
    seen = f"{row.seen}; deliberately different: {row.differs}" if row.differs else row.seen
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in (name, row.feature, row.expected, seen))} |\n"
